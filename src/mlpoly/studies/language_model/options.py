"""Options of a study of a language model, without PyTorch; the text below a field is its help on the command line."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args, get_type_hints

from mlpoly.arrays import as_integer
from mlpoly.polynomials.bounded import check_bound


@dataclass(frozen=True)
class LmConfig:
    """Options of a study; its report lists them."""

    degree: int = 3
    """Degree of the polynomials that are put into the model, saved and read."""
    degrees: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Degrees in the tables of errors and losses."""
    tokens: int = 20_000
    """Number of tokens that the moments are collected from."""
    held_out_tokens: int = 4_000
    """Number of held-out tokens for errors and losses."""
    length: int | None = None
    """Tokens in a sequence; by default 512, or fewer if the model takes no more."""
    batch_size: int = 8
    """Sequences in a batch."""
    blocks: str | None = None
    """Pattern of the names of blocks, as in a shell: "layers.[0-3].mlp"; by default all blocks."""
    groups: Literal["none", "first", "norm", "clusters"] = "first"
    """Tokens with moments of their own: the first of each sequence, or those of unusual norm; see `collect`."""
    method: Literal["gaussian", "neuronwise", "joint", "samples"] = "gaussian"
    """Distribution under which the squared error is least, see `convert`."""
    bound: float | Literal["auto"] | None = 3.0
    """Standard deviations beyond which a neuron is a straight line, "auto" for the best of each block, or None."""
    single_blocks: bool = True
    """Measure the loss with each block replaced by itself, too."""
    spectrum_degree: int = 6
    """Highest degree of the table that divides each block's variance by degree; 0 for no such table."""
    features_per_block: int = 10
    """Number of features that are read in each block, see `block_features`; 0 for none."""
    dtype: str | None = None
    """Dtype of the model, such as "bfloat16"; by default that of the checkpoint."""

    def __post_init__(self) -> None:
        least = {"degree": 1, "tokens": 1, "held_out_tokens": 1, "length": 2, "batch_size": 1}
        for name, smallest in (least | {"spectrum_degree": 0, "features_per_block": 0}).items():
            if name != "length" or self.length is not None:
                as_integer(name, getattr(self, name), smallest)
        for degree in self.degrees:
            as_integer("degrees", degree, 1)
        for name in ("groups", "method"):
            choices = get_args(get_type_hints(LmConfig)[name])
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {getattr(self, name)!r}.")
        if self.bound not in (None, "auto"):
            check_bound(self.bound)

    def updated(self, options: dict[str, Any]) -> "LmConfig":
        """The same with some options by their names."""
        unknown = sorted(set(options) - {f.name for f in fields(self)})
        if unknown:
            raise TypeError(f"there is no option {unknown[0]!r}; there are {', '.join(f.name for f in fields(self))}.")
        return LmConfig(**(asdict(self) | options))
