"""Options of a study."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from mlpoly.arrays import as_integer
from mlpoly.lm.convert.fitters import Method, check_method
from mlpoly.lm.moments.groups import as_components
from mlpoly.polynomials.bounded import check_bound

__all__ = ["LmConfig", "with_options"]


@dataclass(frozen=True)
class LmConfig:
    """Options of a study; all of them are told in its report.

    Attributes
    ----------
    degree : int
        Of the polynomials that are put into the model, saved and read.
    degrees : tuple of int
        Those that the table of errors has.
    tokens : int
        How many the moments are made of.
    held_out_tokens : int
        How many the result is judged on.
    length : int
        Tokens in a sequence.
    batch_size : int
        Sequences in a batch.
    layers : str, optional
        Which blocks, as in a shell: "layers.[0-3].mlp"; by default all.
    components : str
        Inputs with moments of their own: "none", "first" or "norm"; see `collect`.
    method : str
        What the squared error is least under: "gaussian", "neuronwise" or "samples"; see `convert`.
    bound : float, optional
        Beyond this many standard deviations of its preactivation a neuron goes on as a straight line, see `convert`;
        None for polynomials everywhere. The report shows what the model loses without it, too.
    each : bool
        Also replace every block alone.
    spectrum : int
        Highest degree of the degree spectra; 0 for none.
    outputs : int
        Tokens towards which features are read, the most frequent ones with a letter; 0 for none.
    features : int
        How many for each block and token.
    dtype : str, optional
        Of the model, such as "bfloat16"; by default that of the checkpoint.
    """

    degree: int = 3
    degrees: tuple[int, ...] = (1, 2, 3, 4, 5)
    tokens: int = 20_000
    held_out_tokens: int = 4_000
    length: int = 512
    batch_size: int = 8
    layers: str | None = None
    components: str = "first"
    method: Method = "gaussian"
    bound: float | None = 3.0
    each: bool = True
    spectrum: int = 6
    outputs: int = 6
    features: int = 5
    dtype: str | None = None

    def __post_init__(self) -> None:
        least = {"degree": 1, "tokens": 1, "held_out_tokens": 1, "length": 2, "batch_size": 1}
        for name, smallest in (least | dict.fromkeys(("spectrum", "outputs", "features"), 0)).items():
            as_integer(name, getattr(self, name), smallest)
        for degree in self.degrees:
            as_integer("degrees", degree, 1)
        as_components(self.components)
        if self.bound is not None:
            check_bound(self.bound)
        check_method(self.method)


def with_options(config: LmConfig | None, options: dict[str, Any]) -> LmConfig:
    """The config, by default that of no options, with options by their names on top."""
    known = {f.name for f in fields(LmConfig)}
    wrong = sorted(set(options) - known)
    if wrong:
        raise TypeError(f"study_lm has no option {wrong[0]!r}; there are {', '.join(sorted(known))}.")
    return LmConfig(**(asdict(config or LmConfig()) | options))
