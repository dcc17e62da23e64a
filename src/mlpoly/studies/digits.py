"""The demo: train a small network on handwritten digits, replace it by polynomials, and look at what they say.

``python -m mlpoly.studies.digits --out DIR`` takes a few seconds on a laptop and writes

- ``results.json``: accuracy, agreement, unexplained variance and time of every polynomial;
- ``quadratic.safetensors``: the quadratic polynomial, for `mlpoly.load`;
- ``eigenfeatures.png``: its strongest features as images;
- ``spectrum.png``: how much of the network's variance lives at each polynomial degree.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from mlpoly.arrays import as_integer
from mlpoly.features import eigenfeatures
from mlpoly.fitting import fit
from mlpoly.inputs import Gaussian
from mlpoly.integrations.torch import from_torch
from mlpoly.layers import GLU, MLP
from mlpoly.measures import DegreeSpectrum, degree_spectrum, fvu
from mlpoly.plots import plot_eigenfeatures
from mlpoly.polynomials import RidgePolynomial

__all__ = ["Fit", "Results", "main", "run"]

_DEGREES = (1, 2, 3)
_SHAPE = (8, 8)
_SHOWN = (0, 3, 4, 6)  # digits in the picture
_BATCH = 128
_REPEATS = 5  # fits timed for each degree; the median is reported


class Digits(NamedTuple):
    """Images (n, 64) in [0, 1] and labels (n,), to train on and held out."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


@dataclass(frozen=True)
class Fit:
    """One polynomial against the network, on held-out digits.

    Attributes
    ----------
    degree : int
    accuracy : float
        Share of digits that it recognises.
    agreement : float
        Share of digits on which it chooses what the network chooses.
    fvu : float
        Fraction of the variance of the network's logits that it leaves unexplained.
    exact_fvu : float
        The same under the Gaussian it was fitted under, in closed form, without a sample.
    milliseconds : float
        Time of the fit.
    """

    degree: int
    accuracy: float
    agreement: float
    fvu: float
    exact_fvu: float
    milliseconds: float


@dataclass(frozen=True)
class Results:
    """What results.json holds."""

    seed: int
    hidden: int
    steps: int
    held_out: int
    network_accuracy: float
    fits: list[Fit]


def run(out: Path, seed: int = 0, hidden: int = 64, steps: int = 2000, console: Console | None = None) -> Results:
    """Run the whole study; the same seed gives the same results.

    Parameters
    ----------
    out : Path
        Folder for the files; made if it is missing.
    seed : int
        Of the split, the initial weights and the batches.
    hidden : int
        Hidden units of the network.
    steps : int
        Training steps.
    console : rich.console.Console, optional
        Where to print.
    """
    console = console or Console()
    hidden, steps = as_integer("hidden", hidden, 1), as_integer("steps", steps, 1)
    out.mkdir(parents=True, exist_ok=True)
    digits = load_data(seed)
    net = from_torch(train(digits, hidden, steps, seed, console))
    inputs = Gaussian.from_samples(digits.train_x)
    polynomials = {degree: _timed_fit(net, inputs, degree) for degree in _DEGREES}
    results = Results(
        seed=seed,
        hidden=hidden,
        steps=steps,
        held_out=len(digits.test_y),
        network_accuracy=_share(net(digits.test_x), digits.test_y),
        fits=[_measure(net, poly, digits, ms) for poly, ms in polynomials.values()],
    )
    _write(out, results, polynomials[2][0], degree_spectrum(net, inputs, max_degree=6))
    _report(console, results, out)
    return results


# -- the network -------------------------------------------------------------------------------------------------------


def load_data(seed: int) -> Digits:
    """scikit-learn's digits, 1797 images of 8 x 8 pixels, split 80/20 with equal shares of every digit."""
    x, y = load_digits(return_X_y=True)
    parts = train_test_split(x / 16, y, test_size=0.2, random_state=seed, stratify=y)
    train_x, test_x, train_y, test_y = (torch.tensor(part) for part in parts)
    return Digits(train_x, train_y, test_x, test_y)


def train(digits: Digits, hidden: int, steps: int, seed: int, console: Console) -> nn.Sequential:
    """A network of one hidden ReLU layer, trained with cross-entropy in double precision."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10)).double()
    optimiser = _optimiser(module)
    order = torch.Generator().manual_seed(seed)
    for step in _steps(steps, console):
        batch = torch.randint(len(digits.train_y), (_BATCH,), generator=order)
        loss = nn.functional.cross_entropy(module(digits.train_x[batch]), digits.train_y[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if not console.is_terminal and (step + 1) % max(steps // 4, 1) == 0:
            console.print(f"step {step + 1} of {steps}: loss {loss.item():.4f}")
    if hasattr(optimiser, "eval"):
        optimiser.eval()  # schedule-free optimisers keep the averaged weights aside until then
    return module.requires_grad_(False)


def _optimiser(module: nn.Module) -> Any:
    # Without decay, pixels that are never lit would keep their random initial weights.
    rate, decay = 0.01, 0.5
    try:
        from schedulefree import AdamWScheduleFree
    except ImportError:
        return torch.optim.AdamW(module.parameters(), lr=rate, weight_decay=decay)
    optimiser = AdamWScheduleFree(module.parameters(), lr=rate, weight_decay=decay, warmup_steps=50)
    optimiser.train()
    return optimiser


def _steps(steps: int, console: Console) -> Iterator[int]:
    """Count steps, with a progress bar if someone is watching."""
    if not console.is_terminal:
        yield from range(steps)
        return
    yield from track(range(steps), description="training the network", console=console, transient=True)


# -- the polynomials ---------------------------------------------------------------------------------------------------


def _timed_fit(net: MLP | GLU, inputs: Gaussian, degree: int) -> tuple[RidgePolynomial, float]:
    poly, times = fit(net, inputs, degree), []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        fit(net, inputs, degree)
        times.append(1000 * (time.perf_counter() - start))
    return poly, statistics.median(times)


def _measure(net: MLP | GLU, poly: RidgePolynomial, digits: Digits, milliseconds: float) -> Fit:
    theirs, ours = net(digits.test_x), poly(digits.test_x)
    return Fit(
        degree=poly.degree,
        accuracy=_share(ours, digits.test_y),
        agreement=_share(ours, theirs.argmax(dim=1)),
        fvu=float(fvu(net, poly, samples=digits.test_x).total),
        exact_fvu=float(fvu(net, poly).total),
        milliseconds=milliseconds,
    )


def _share(logits: Tensor, labels: Tensor) -> float:
    """Share of rows whose largest logit is at the label."""
    return float((logits.argmax(dim=1) == labels).double().mean())


# -- what comes out ----------------------------------------------------------------------------------------------------


def _write(out: Path, results: Results, quadratic: RidgePolynomial, spectrum: DegreeSpectrum) -> None:
    (out / "results.json").write_text(json.dumps(asdict(results), indent=2) + "\n", encoding="utf-8")
    quadratic.save(out / "quadratic.safetensors")
    # Whitened, so that features rank by what they change on digits, not by pixels that are never lit.
    features = {f"digit {c}": eigenfeatures(quadratic, output=c, k=16, metric="whitened") for c in _SHOWN}
    figure = plot_eigenfeatures(features, _SHAPE, title="Strongest quadratic features of a digit classifier")
    figure.savefig(out / "eigenfeatures.png", dpi=120)
    spectrum.plot().savefig(out / "spectrum.png", dpi=120)


def _report(console: Console, results: Results, out: Path) -> None:
    console.print(_table(results))
    linear, quadratic, cubic = results.fits
    console.print(
        f"The quadratic polynomial agrees with the network on {quadratic.agreement:.1%} of {results.held_out} held-out "
        f"digits and leaves {quadratic.fvu:.1%} of the variance of its logits unexplained (linear {linear.fvu:.1%}, "
        f"cubic {cubic.fvu:.1%}). It came from the weights and the mean and covariance of the training digits alone, "
        f"in {quadratic.milliseconds:.1f} ms, without an iteration. The exact FVU is that under the Gaussian."
    )
    console.print(
        f"Files: results.json, quadratic.safetensors, eigenfeatures.png and spectrum.png in {out}", soft_wrap=True
    )


def _table(results: Results) -> Table:
    table = Table(title=f"Handwritten digits, {results.held_out} held out")
    table.add_column("model")
    for heading in ("accuracy", "agreement", "FVU, digits", "FVU, exact", "fit (ms)"):
        table.add_column(heading, justify="right")
    table.add_row("network", f"{results.network_accuracy:.1%}", "", "", "", "")
    for f in results.fits:
        table.add_row(
            f"degree {f.degree}",
            f"{f.accuracy:.1%}",
            f"{f.agreement:.1%}",
            f"{f.fvu:.4f}",
            f"{f.exact_fvu:.4f}",
            f"{f.milliseconds:.1f}",
        )
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m mlpoly.studies.digits", description="Replace a small digit classifier by polynomials."
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the files")
    parser.add_argument("--seed", type=int, default=0, help="of split, weights and batches (default 0)")
    parser.add_argument("--hidden", type=int, default=64, help="hidden units (default 64)")
    parser.add_argument("--steps", type=int, default=2000, help="training steps (default 2000)")
    run(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
