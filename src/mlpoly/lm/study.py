"""A whole study of one language model: moments, polynomials, what they cost, what they say, and a report."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlpoly._version import __version__
from mlpoly.arrays import as_integer
from mlpoly.files import make_folder, write_json, write_text
from mlpoly.integrations import find_blocks
from mlpoly.integrations.devices import check_device, describe_machine
from mlpoly.lm.attribution import attribute, plain_polynomials, token_text, trace
from mlpoly.lm.collect import collect
from mlpoly.lm.components import as_components
from mlpoly.lm.conversion import Conversion
from mlpoly.lm.convert import convert
from mlpoly.lm.evaluate import Evaluation, evaluate
from mlpoly.lm.loading import load_model
from mlpoly.lm.moments import Moments
from mlpoly.lm.provenance import describe_model
from mlpoly.lm.reading import BlockFeature, block_features, layer_spectra
from mlpoly.lm.report import FitRow, LmResults, Loss, write_lm_report
from mlpoly.lm.sources import Source, as_path, read_ids, title
from mlpoly.lm.text import split_text, token_batches, vocabulary
from mlpoly.progress import progress
from mlpoly.report.data import to_json

__all__ = ["LmConfig", "study_lm"]

_HELD_OUT = 0.1  # share of a text that nothing is fitted to, where no other is given
_PROMPT = 48  # tokens of the held-out text that are taken apart, where no prompt is given


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
    sequential : bool
        Fit every block to the inputs that the blocks replaced before it give.
    bound : float, optional
        Hold preactivations within this many standard deviations, see `RidgePolynomial.__call__`.
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
    method: str = "gaussian"
    sequential: bool = False
    bound: float | None = None
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


def study_lm(
    model: str | PathLike[str],
    text: Source,
    out: str | PathLike[str],
    config: LmConfig | None = None,
    *,
    held_out: Source | None = None,
    prompt: str | None = None,
    device: str = "cpu",
    resume: bool = True,
    show_progress: bool = True,
    **options: Any,
) -> LmResults:
    """Replace the blocks of a language model by polynomials, measure what that costs, and write it all to a folder.

    Parameters
    ----------
    model : str or path
        A folder, a .gguf file or a name on the hub, see `load_model`.
    text : str or path
        A text file, the text itself, or an .npy file of token ids (n, t), as models without a tokenizer need.
    out : path
        The folder: polynomials in ``<block>/``, moments, tables/*.csv, results.json and report.html. The pass over
        the text, if it was killed, goes on where it was.
    config : LmConfig, optional
        Options; each can also be given by name, ``degree=2``.
    held_out : str or path, optional
        Text to judge by; by default the last tenth of `text`, which is then not used otherwise.
    prompt : str, optional
        What is taken apart token by token; by default the beginning of the held-out text.
    device : str
    resume : bool
        Whether to use moments that the folder already has; on the command line, --restart says no.
    show_progress : bool

    Returns
    -------
    LmResults
    """
    config = _config(config, options)
    folder = make_folder(out)
    study = _Study(config, folder, check_device(device), show_progress)
    study.open(model, text, held_out)
    moments = study.collect(resume)
    study.spectra(moments)
    study.convert(moments)
    study.evaluate()
    study.read(moments)
    study.take_apart(prompt)
    results = study.results
    results.about["command"] = _command(model, text, held_out, out, prompt, device, config)
    _write_tables(folder, results)
    write_json(folder / "results.json", json.loads(to_json(asdict(results))))
    write_lm_report(results, folder / "report.html")
    return results


class _Study:
    """The stages of a study, each of which adds to `results`."""

    def __init__(self, config: LmConfig, folder: Path, device: str, show_progress: bool) -> None:
        self.config, self.folder, self.device, self.show_progress = config, folder, device, show_progress
        told = {"version": __version__, "config": asdict(config), "machine": _machine(device), "seconds": {}}
        self.results = LmResults(told)
        self.polynomials: Conversion
        self.others: dict[int, Conversion] = {}  # by degree

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.results.about["seconds"][name] = time.perf_counter() - began

    def open(self, model: str | PathLike[str], text: Source, held_out: Source | None) -> None:
        """Load the model and cut the text."""
        with self._stage("load"):
            self.model, self.tokenizer = load_model(model, device=self.device, dtype=self.config.dtype)
            find_blocks(self.model, self.config.layers)  # a wrong pattern is told before the work begins
            self.texts: Any = self.tokenizer or _vocabulary(model)
            self.train, self.held_out = _batches(self.tokenizer, text, held_out, self.config)
        self.results.about["model"] = describe_model(self.model)
        path = as_path(text)
        self.results.about["data"] = {
            "text": path.name if path is not None else "a text",
            "held_out": sum(batch.numel() for batch in self.held_out),
        }

    def collect(self, resume: bool) -> Moments:
        """Moments of all blocks, from the folder if they are there."""
        with self._stage("collect"):
            found = collect(
                self.model,
                self.train,
                self.config.layers,
                components=self.config.components,
                tokens=min(self.config.tokens, sum(batch.numel() for batch in self.train)),
                save_to=self.folder / "moments",
                resume=resume,
                show_progress=self.show_progress,
            )
        self.results.about["data"] |= {"tokens": found.tokens}
        return found

    def spectra(self, moments: Moments) -> None:
        """Shares of the degrees in every block; under its Gaussian they also say what any fit leaves unexplained."""
        if self.config.spectrum:
            with self._stage("spectra"):
                highest = max(self.config.spectrum, *self.config.degrees, self.config.degree)
                found = layer_spectra(self.model, moments, highest, show_progress=self.show_progress)
                self.results.spectra = found

    def convert(self, moments: Moments) -> None:
        """Polynomials of all degrees, measured; those of the chosen degree saved and put into the model."""
        degrees = sorted({*self.config.degrees, self.config.degree})
        with self._stage("convert"):
            for degree in degrees:
                self.others[degree] = self._converted(moments, degree, sequential=False)
                self.results.fits += _fit_rows(self.others[degree], degree)
            self.polynomials = self.others.pop(self.config.degree)
            if self.config.sequential:  # the other degrees would not compare
                self.others.clear()
                self.polynomials = self._converted(moments, self.config.degree, sequential=True)
            self.polynomials.save(self.folder)

    def _converted(self, moments: Moments, degree: int, sequential: bool) -> Conversion:
        # The spectra say what these fits leave unexplained; to compute it again costs as much, for every degree.
        known = bool(self.results.spectra) and self.config.method == "gaussian" and not sequential
        sees = sequential or self.config.method == "samples"
        found = convert(
            self.model,
            moments,
            degree,
            method=self.config.method,
            bound=self.config.bound,
            sequential=sequential,
            batches=self.train if sees else None,
            held_out=self.held_out,
            closed_form=not known,
            show_progress=self.show_progress,
        )
        if not known:
            return found
        closed = {s.layer: s.unexplained(degree) for s in self.results.spectra}
        return replace(found, quality={n: replace(q, closed_form=closed[n]) for n, q in found.quality.items()})

    def evaluate(self) -> None:
        """Cross-entropy of the model with all blocks replaced, and with each."""
        options: dict[str, Any] = {"calibration": self.train, "show_progress": self.show_progress}
        with self._stage("evaluate"):
            found = evaluate(self.model, self.polynomials, self.held_out, each=self.config.each, **options)
            self.results.losses += _loss_rows(found, self.config.degree)
            for degree, other in self.others.items():
                found = evaluate(self.model, other, self.held_out, baselines=(), **options)
                self.results.losses += _loss_rows(found, degree)[1:]  # the model as it is was there already
        self.results.losses.sort(key=_place)

    def read(self, moments: Moments) -> None:
        """Features in tokens."""
        if self.config.features and self.config.outputs and self.config.degree >= 2:
            with self._stage("features"):
                self.results.features = self._features(moments)

    def _features(self, moments: Moments) -> list[BlockFeature]:
        chosen, wiring = plain_polynomials(self.polynomials), trace(self.model, [0])
        outputs = _frequent(self.train, token_text(self.texts), self.config.outputs)
        options: dict[str, Any] = {"k": self.config.features, "tokenizer": self.texts, "wiring": wiring}
        found: list[BlockFeature] = []
        with progress("features", len(chosen), self.show_progress) as bar:
            for i, (name, (poly, _)) in enumerate(chosen.items()):
                inputs = moments.gaussian(name, like=poly.sample_array)  # its root is made once
                for token in outputs:
                    found += block_features(poly, self.model, name, token=token, inputs=inputs, **options)
                bar(i + 1, name)
        return found

    def take_apart(self, prompt: str | None) -> None:
        """Contributions to logits, token by token."""
        with self._stage("attribution"):
            given: Any = prompt if prompt is not None else self.held_out[0][0, :_PROMPT]
            found = attribute(self.model, self.polynomials, given, tokenizer=self.texts, centred=True)
            self.results.attribution = found


# ---------------------------------------------------------------------------------------------------------------------
# What goes in
# ---------------------------------------------------------------------------------------------------------------------


def _config(config: LmConfig | None, options: dict[str, Any]) -> LmConfig:
    known = {f.name for f in fields(LmConfig)}
    wrong = sorted(set(options) - known)
    if wrong:
        raise TypeError(f"study_lm has no option {wrong[0]!r}; there are {', '.join(sorted(known))}.")
    return LmConfig(**(asdict(config or LmConfig()) | options))


def _vocabulary(model: str | PathLike[str]) -> list[str] | None:
    """Texts of the tokens of a model that has no tokenizer but a vocab.json."""
    return vocabulary(model) if (Path(model) / "vocab.json").is_file() else None


def _batches(
    tokenizer: Any, text: Source, held_out: Source | None, config: LmConfig
) -> tuple[list[Tensor], list[Tensor]]:
    """Batches to work with, and others to judge by."""
    options: dict[str, Any] = {"length": config.length, "batch_size": config.batch_size}
    sizes = (config.tokens, config.held_out_tokens)
    path = as_path(text)
    if held_out is None and path is not None and path.suffix == ".npy":
        parts: Sequence[Any] = _split_ids(path, config.length)
        return tuple(_tensors(part, config.batch_size, size) for part, size in zip(parts, sizes, strict=True))  # type: ignore[return-value]
    if held_out is None:
        whole = str(text) if path is None else path.read_text(encoding="utf-8")
        if not whole.strip():
            raise ValueError(f"{title(text)} is empty; pass text of a few thousand words.")
        text, held_out = split_text(whole, _HELD_OUT)
    sources = (text, held_out)
    found = [list(token_batches(tokenizer, s, tokens=n, **options)) for s, n in zip(sources, sizes, strict=True)]
    return found[0], found[1]


def _split_ids(path: Path, length: int) -> tuple[Tensor, Tensor]:
    """Rows of token ids to work with, and the last tenth of them to judge by."""
    ids = torch.from_numpy(read_ids(path))
    if ids.ndim == 1:
        ids = ids[: len(ids) // length * length].reshape(-1, length)
    if ids.shape[0] < 2 or ids.shape[1] == 0:
        raise ValueError(
            f"{path} has {ids.shape[0]} sequences of {ids.shape[1]} tokens; two are needed at least, one of them to "
            f"judge by. Pass more, or a held-out file of its own."
        )
    held_out = max(1, round(_HELD_OUT * ids.shape[0]))
    return ids[:-held_out, :length], ids[-held_out:, :length]


def _tensors(ids: Tensor, batch_size: int, tokens: int) -> list[Tensor]:
    rows = math.ceil(tokens / ids.shape[1])
    return list(ids[:rows].split(batch_size))


def _frequent(batches: Sequence[Tensor], text: Any, count: int) -> list[int]:
    """The most frequent tokens with a letter; any, if none has one."""
    counts = Counter(int(i) for batch in batches for i in batch.flatten().tolist())
    order = [i for i, _ in counts.most_common()]
    named = [i for i in order if any(c.isalpha() for c in text(i)) and not text(i).strip().startswith("<")]
    return (named or order)[:count]


# ---------------------------------------------------------------------------------------------------------------------
# What comes out
# ---------------------------------------------------------------------------------------------------------------------


def _fit_rows(found: Conversion, degree: int) -> list[FitRow]:
    errors = found.quality.items()
    return [FitRow(name, degree, _number(q.closed_form), _number(q.held_out)) for name, q in errors]


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _loss_rows(found: Evaluation, degree: int) -> list[Loss]:
    return [
        Loss(row.replaced, row.by, degree if row.by == "polynomial" else 0, row.cross_entropy, row.kl)
        for row in found.rows
    ]


def _place(loss: Loss) -> tuple[int, int]:
    """The model as it is, baselines, polynomials by degree, single blocks."""
    whole = ("", "removed", "mean", "linear", "polynomial")
    return (whole.index(loss.by) if loss.replaced in ("none", "all") else len(whole), loss.degree)


def _machine(device: str) -> dict[str, str]:
    import transformers

    return {**describe_machine(device), "transformers": transformers.__version__}


def _command(model: Any, text: Any, held_out: Any, out: Any, prompt: Any, device: str, config: LmConfig) -> str:
    """The command line that does it again."""
    shown = str(text) if as_path(text) is not None else "TEXT.txt"
    words = ["mlpoly", "lm", str(model), "--text", shown, "--out", str(out)]
    words += ["--held-out", str(held_out)] if held_out is not None and as_path(held_out) is not None else []
    words += ["--prompt", prompt] if prompt is not None else []
    words += ["--device", device] if device != "cpu" else []
    default = LmConfig()
    for f in fields(config):
        value = getattr(config, f.name)
        if value == getattr(default, f.name):
            continue
        flag = f.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    return shlex.join(words)


def _write_tables(folder: Path, results: LmResults) -> None:
    target = make_folder(folder / "tables")
    features = [
        {"layer": f.layer, "output": f.output, "rank": f.rank, "value": f.value}
        | {key: " | ".join(t.text for t in getattr(f, key)) for key in ("reads", "reads_not", "raises", "lowers")}
        for f in results.features
    ]
    spectra = [
        {"layer": s.layer} | {f"degree_{k}": v for k, v in enumerate(s.shares, start=1)} | {"rest": s.rest}
        for s in results.spectra
    ]
    tables = {
        "fvu": [asdict(fit) for fit in results.fits],
        "loss": [asdict(loss) for loss in results.losses],
        "spectrum": spectra,
        "features": features,
        "attribution": results.attribution.rows() if results.attribution is not None else [],
    }
    for name, rows in tables.items():
        if rows:
            text = io.StringIO()
            writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
            write_text(target / f"{name}.csv", text.getvalue())
