"""How the network's polynomials change while it is trained (the paper's sections 4.1 and 4.2, figures 2 and 3).

Every checkpoint is fitted under three inputs at degree 1 and 2, exactly, and once by the paper's own route. What is
done is on disk at once: a killed study goes on behind the last finished checkpoint.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlpoly.arrays import scalar, to_numpy
from mlpoly.errors import FileFormatError
from mlpoly.files import make_folder, read_json, write_json
from mlpoly.measures import compare, degree_spectrum, fvu
from mlpoly.networks import Layer
from mlpoly.polynomials import DensePolynomial, load
from mlpoly.progress import progress
from mlpoly.records import replace
from mlpoly.studies.paper.approximants import Approximant, approximants
from mlpoly.studies.paper.bench import Bench
from mlpoly.studies.paper.checkpoints import Run
from mlpoly.studies.paper.results import Point, Spectrum
from mlpoly.studies.paper.storage import decoded
from mlpoly.studies.paper.tables import plain

__all__ = ["dynamics", "load_fits"]


def dynamics(
    run: Run, bench: Bench, folder: str | Path, *, show_progress: bool = True
) -> tuple[list[Point], list[Spectrum]]:
    """Fit and judge every checkpoint of a run.

    Parameters
    ----------
    run : Run
    bench : Bench
    folder : path
        For one JSON file and two polynomials per checkpoint. Checkpoints that are finished there, of the same weights,
        data and options, are read and not computed again.
    show_progress : bool

    Returns
    -------
    points : list of Point
    spectra : list of Spectrum
    """
    folder = make_folder(folder)
    points: list[Point] = []
    spectra: list[Spectrum] = []
    with progress(f"dynamics, seed {run.seed}", len(run.steps), show_progress) as update:
        for done, step in enumerate(run.steps):
            update(done, f"step {step}")
            found = _finished(run, step, bench, folder)
            made = found if found is not None else _judged(run, step, bench, folder)
            points += made[0]
            spectra += made[1]
    return points, spectra


def load_fits(folder: Path, step: int, device: str = "cpu") -> tuple[DensePolynomial, DensePolynomial]:
    """The linear and the quadratic polynomial under the mixture, of a checkpoint that `dynamics` has finished.

    Raises
    ------
    FileNotFoundError, FileFormatError
    """
    like = torch.zeros((), dtype=torch.float64, device=device)
    found = []
    for degree, kind in ((1, "linear"), (2, "quadratic")):
        poly = load(_file(folder, step, kind), like=like)
        if not isinstance(poly, DensePolynomial) or poly.degree != degree:
            raise FileFormatError(f"{_file(folder, step, kind)} is no {kind} fit; run `mlpoly dynamics` again.")
        found.append(poly)
    return found[0], found[1]


# -- one checkpoint ----------------------------------------------------------------------------------------------------


def _judged(run: Run, step: int, bench: Bench, folder: Path) -> tuple[list[Point], list[Spectrum]]:
    """Fit, measure, write."""
    net = bench.net(run, step)
    samples = bench.mixture.sample(bench.config.samples, seed=_seed(run.seed, step))
    # The quadratic of the checkpoint before, from which the solver has less far to go.
    before = [s for s in run.steps if s < step and _file(folder, s, "quadratic").is_file()]
    start = load(_file(folder, before[-1], "quadratic"), like=bench.test) if before else None
    points, kept = [], {}
    for found in approximants(net, bench, start, run.seed):
        points.append(_point(net, found, bench, samples, run.seed, step))
        if found.inputs == "mixture":
            kept["quadratic" if found.poly.degree == 2 else "linear"] = found.poly
    spectra = []
    for name in ("gaussian", "mixture"):
        by_degree = degree_spectrum(net, getattr(bench, name), bench.config.max_degree)
        shares, total = tuple(float(s) for s in to_numpy(by_degree.overall)), float(by_degree.total.sum())
        rest, between = float(by_degree.remainder.sum()) / total, float(by_degree.between.sum()) / total
        spectra.append(Spectrum(run.seed, step, name, shares, rest, between))
    _record(folder, step).unlink(missing_ok=True)  # that of an earlier origin must not stand beside these fits
    for kind, poly in kept.items():
        # In float32, and without the mixture, which is larger than the polynomial and the same for all of them.
        replace(poly, inputs=None).to(net.prototype.new_zeros((), dtype=torch.float32)).save(_file(folder, step, kind))
    content = {"origin": _origin(run, step, bench), "points": plain(points), "spectra": plain(spectra)}
    write_json(_record(folder, step), content)
    return points, spectra


def _point(net: Layer, found: Approximant, bench: Bench, samples: Tensor, seed: int, step: int) -> Point:
    poly = found.poly
    mixture = fvu(net, poly, bench.mixture)
    own = fvu(net, poly) if found.inputs in ("standard", "gaussian") else mixture
    drawn, test = compare(net, poly, samples), compare(net, poly, bench.test, bench.test_labels)
    return Point(
        seed=seed,
        step=step,
        degree=poly.degree,
        inputs=found.inputs,
        fvu_own=math.nan if found.inputs == "paper" else scalar(own.total),
        fvu_mixture=scalar(mixture.total),
        fvu_flattened=scalar(mixture.flattened),
        fvu_samples=scalar(drawn.fvu.total),
        fvu_samples_error=_number(drawn.fvu.standard_error),
        fvu_test=scalar(test.fvu.total),
        fvu_test_error=_number(test.fvu.standard_error),
        kl_samples=scalar(drawn.kl.mean),
        kl_samples_error=scalar(drawn.kl.standard_error),
        kl_test=scalar(test.kl.mean),
        kl_test_error=scalar(test.kl.standard_error),
        accuracy=_number(test.accuracy),
        agreement=float(test.agreement),
        iterations=found.iterations,
        seconds=found.seconds,
    )


def _number(a: Any) -> float:
    return math.nan if a is None else float(a)


# -- what is on disk ---------------------------------------------------------------------------------------------------


def _file(folder: Path, step: int, kind: str) -> Path:
    return folder / f"step-{step:07d}-{kind}.safetensors"


def _record(folder: Path, step: int) -> Path:
    return folder / f"step-{step:07d}.json"


def _origin(run: Run, step: int, bench: Bench) -> dict[str, Any]:
    """What the numbers of a checkpoint depend on."""
    weights = hashlib.sha256(run.path(step).read_bytes()).hexdigest()
    return {"checkpoint": weights, "data": bench.fingerprint, "config": asdict(bench.config)}


def _finished(run: Run, step: int, bench: Bench, folder: Path) -> tuple[list[Point], list[Spectrum]] | None:
    """What an earlier call found, if it is whole and of the same origin."""
    files = (_record(folder, step), _file(folder, step, "linear"), _file(folder, step, "quadratic"))
    if not all(f.is_file() for f in files):
        return None
    try:
        content = read_json(files[0])
        if content["origin"] != _origin(run, step, bench):
            return None
        if any((fit.dim_in, fit.dim_out) != (bench.dim, bench.outputs) for fit in load_fits(folder, step)):
            return None
        points = list(decoded(content["points"], tuple[Point, ...], {}))
        spectra = list(decoded(content["spectra"], tuple[Spectrum, ...], {}))
        whole = plain(points) == content["points"] and plain(spectra) == content["spectra"]  # no field too many
        return (points, spectra) if whole else None
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        return None  # damaged, or of another version: computed again


def _seed(seed: int, step: int) -> int:
    """Of the samples: another one for every checkpoint, so that errors of the curve's points are independent."""
    return int.from_bytes(hashlib.sha256(f"{seed} {step}".encode()).digest()[:4], "big")
