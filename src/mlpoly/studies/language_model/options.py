"""Options of a study of a language model; not in `mlpoly.lm`, so that the command line reads them without PyTorch."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, fields
from os import PathLike
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
    method: Literal["gaussian", "neuronwise", "samples"] = "gaussian"
    """Distribution under which the squared error is least, see `convert`."""
    bound: float | None = 3.0
    """Standard deviations of a preactivation beyond which a neuron is a straight line; None for polynomials only."""
    each: bool = True
    """Also replace every block alone."""
    spectrum: int = 6
    """Highest degree of the degree spectra; 0 for none."""
    features: int = 10
    """Number of features of each block, see `block_features`; 0 for none."""
    dtype: str | None = None
    """Dtype of the model, such as "bfloat16"; by default that of the checkpoint."""

    def __post_init__(self) -> None:
        least = {"degree": 1, "tokens": 1, "held_out_tokens": 1, "length": 2, "batch_size": 1}
        for name, smallest in (least | dict.fromkeys(("spectrum", "features"), 0)).items():
            if name != "length" or self.length is not None:
                as_integer(name, getattr(self, name), smallest)
        for degree in self.degrees:
            as_integer("degrees", degree, 1)
        for name in ("groups", "method"):
            choices = get_args(get_type_hints(LmConfig)[name])
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {getattr(self, name)!r}.")
        if self.bound is not None:
            check_bound(self.bound)


def with_options(config: LmConfig | None, options: dict[str, Any]) -> LmConfig:
    """The config, by default that of no options, with options by their names on top."""
    known = {f.name for f in fields(LmConfig)}
    wrong = sorted(set(options) - known)
    if wrong:
        raise TypeError(f"study_lm has no option {wrong[0]!r}; there are {', '.join(sorted(known))}.")
    return LmConfig(**(asdict(config or LmConfig()) | options))


def command_line(
    model: str | PathLike[str] | None, config: LmConfig, paths: dict[str, Any], prompt: str | None, device: str
) -> str:
    """The command line that repeats a study; it has the options that differ from the defaults.

    `paths` are values of flags by their names, None where a flag is left out.
    """
    words = ["mlpoly", "lm", *([] if model is None else [str(model)])]
    given = paths | {"prompt": prompt, "device": None if device == "cpu" else device}
    words += [word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))]
    for f in fields(config):
        value = getattr(config, f.name)
        flag = f.name.replace("_", "-")
        if value == f.default:
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    return shlex.join(words)
