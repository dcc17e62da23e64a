"""The polynomials of every checkpoint: optimal, measured right, and computed once only."""

import math
import shutil
import signal
from dataclasses import asdict, fields, replace

import numpy as np
import pytest
import torch
from support.small_studies import CONFIG, blobs

import mlpoly as mp
from mlpoly.fitting.mixture.gram import GramOperator
from mlpoly.studies.paper import dynamics as dynamics_module
from mlpoly.studies.paper.dynamics import Setting, approximants, dynamics, load_fits
from mlpoly.studies.paper.options import DynamicsConfig
from mlpoly.studies.paper.results import Point
from mlpoly.studies.paper.training import TrainingRun, train

IMAGES = blobs(spread=0.3)  # wide enough that all units bend within the data, and samples of the misfit have no tails
FITS = DynamicsConfig(samples=4000, tolerance=1e-10, paper_steps=20, max_degree=4)
KINDS = [(name, degree) for name in ("standard", "gaussian", "mixture") for degree in (1, 2)] + [("paper", 2)]
SMALL = blobs(classes=2, side=3)
QUICK = DynamicsConfig(paper_steps=0, samples=50, max_degree=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(IMAGES, tmp_path_factory.mktemp("run"), replace(CONFIG, steps=16))


@pytest.fixture(scope="module")
def setting():
    return Setting(IMAGES, FITS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fits")


@pytest.fixture(scope="module")
def kept():
    """Polynomials as they were made, before they went to disk."""
    return {}


@pytest.fixture(scope="module")
def found(run, setting, folder, kept):
    """Points and spectra."""

    def watched(net, setting, start, seed):
        for made in approximants(net, setting, start, seed):
            kept[len(kept) // len(KINDS), made.inputs, made.poly.degree] = made.poly
            yield made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamics_module, "approximants", watched)
        return dynamics(run, setting, folder)


def at(points, step):
    return {(p.inputs, p.degree): p for p in points if p.step == step}


def without_seconds(points):
    """Comparable: NaN as None, and without the clock."""
    return [
        {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(p).items() if k != "seconds"}
        for p in points
    ]


@pytest.fixture
def calls(monkeypatch):
    """Number of checkpoints that were fitted, at [0]."""
    counted = [0]

    def counting(*arguments):
        counted[0] += 1
        return approximants(*arguments)

    monkeypatch.setattr(dynamics_module, "approximants", counting)
    return counted


def test_a_point_for_everything(found, run):
    points, spectra = found
    assert [(p.step, p.inputs, p.degree) for p in points] == [(s, *kind) for s in run.steps for kind in KINDS]
    assert {p.seed for p in points} == {CONFIG.seed}
    for p in points:
        assert math.isnan(p.fvu_own) == (p.inputs == "paper")
        assert p.inputs != "mixture" or p.fvu_own == p.fvu_mixture
        assert all(math.isfinite(getattr(p, f.name)) for f in fields(Point) if f.name not in ("inputs", "fvu_own"))
        assert p.fvu_samples_error > 0 < p.kl_test_error
        # Sixteen pixels are solved directly.
        assert p.iterations == (FITS.paper_steps if p.inputs == "paper" else 0)
        assert p.seconds > 0
    assert [(s.step, s.inputs) for s in spectra] == [(t, name) for t in run.steps for name in ("gaussian", "mixture")]


def test_exact_fits_are_the_best(found, run):
    """No polynomial of the same degree does better under the mixture, however it was found."""
    for step in run.steps:
        points = at(found[0], step)
        for degree in (1, 2):
            others = [p.fvu_mixture for (name, d), p in points.items() if d <= degree and name != "mixture"]
            assert points["mixture", degree].fvu_mixture < min(others)
        assert points["mixture", 2].fvu_mixture < points["mixture", 1].fvu_mixture
        # Each is the best under its own inputs, too: 1e-9 for rounding and the solver's tolerance of 1e-10.
        for name in ("standard", "gaussian"):
            assert points[name, 2].fvu_own <= points[name, 1].fvu_own + 1e-9


def test_closed_form_against_samples(found):
    points, _ = found
    for p in points:
        assert abs(p.fvu_mixture - p.fvu_samples) < 4 * p.fvu_samples_error
    # The samples can tell: they are not all the same, and their errors are small.
    assert {p.fvu_samples_error < 0.2 * p.fvu_samples for p in points} == {True}
    assert any(abs(p.fvu_mixture - p.fvu_samples) > p.fvu_samples_error for p in points)


def test_measures_on_test_images(found, run, setting, kept):
    """Against the functions for each of them, and plain NumPy."""
    for i, step in list(enumerate(run.steps))[::3]:
        net = run.net(step)
        for (name, degree), p in at(found[0], step).items():
            poly = kept[i, name, degree]
            f, g = net(setting.test).numpy(), poly(setting.test).numpy()
            assert p.fvu_test == pytest.approx(((f - g) ** 2).sum() / ((f - f.mean(0)) ** 2).sum(), rel=1e-12)
            assert p.kl_test == pytest.approx(float(mp.kl(net, poly, setting.test)), rel=1e-12)
            assert p.accuracy == np.mean(g.argmax(1) == IMAGES.test_labels)
            assert p.agreement == np.mean(g.argmax(1) == f.argmax(1))
            assert p.fvu_flattened == float(mp.fvu(net, poly, setting.mixture).flattened)


def test_samples_are_fresh_at_every_checkpoint():
    seeds = [dynamics_module._seed(seed, step) for seed in range(3) for step in (0, 1, 2, 4, 8)]
    assert len(set(seeds)) == len(seeds)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return train(SMALL, tmp_path_factory.mktemp("small"), replace(CONFIG, steps=2))


@pytest.fixture(scope="module")
def quick():
    return Setting(SMALL, QUICK)


@pytest.fixture(scope="module")
def first(small, quick, tmp_path_factory):
    """A folder of finished fits, their points and spectra."""
    folder = tmp_path_factory.mktemp("first")
    return folder, *dynamics(small, quick, folder)


@pytest.fixture
def done(first, tmp_path):
    """A copy of the finished fits."""
    return shutil.copytree(first[0], tmp_path / "done")


def test_second_call_reads(found, run, setting, folder, monkeypatch):
    def never(*arguments):
        raise AssertionError("computed again")

    monkeypatch.setattr(dynamics_module, "approximants", never)
    points, spectra = dynamics(run, setting, folder)
    np.testing.assert_equal([asdict(p) for p in points], [asdict(p) for p in found[0]])  # NaN too
    assert spectra == found[1]
    assert isinstance(spectra[0].shares, tuple)
    fresh = Setting(IMAGES, FITS)  # of the same data
    assert dynamics(TrainingRun.open(run.folder), fresh, folder)[1] == found[1]


@pytest.mark.parametrize(
    "changed", [{"shrinkage": 0.1}, {"samples": 51}, {"max_degree": 3}, "train", "test", "test_labels"], ids=str
)
def test_changed_options_and_data(small, first, done, calls, changed):
    images, options = SMALL, QUICK
    if isinstance(changed, dict):
        options = replace(QUICK, **changed)
    else:
        values = getattr(SMALL, changed).copy()
        values[:9] = values[0]
        images = SMALL._replace(**{changed: values})
    points, spectra = dynamics(small, Setting(images, options), done)
    assert calls[0] == len(small.steps)
    assert (without_seconds(points), spectra) != (without_seconds(first[1]), first[2])


def test_changed_checkpoint(small, quick, first, done, tmp_path, calls):
    copied = TrainingRun.open(shutil.copytree(small.folder, tmp_path / "run"))
    copied.path(1).write_bytes(copied.path(2).read_bytes())
    points, _ = dynamics(copied, quick, done)
    assert calls[0] == 1
    for p, q in zip(first[1], points, strict=True):
        assert (p == q) == (p.step != 1)


def test_interrupt_keeps_what_is_finished(small, quick, first, tmp_path, monkeypatch):
    counted = [0]

    def stopped(*arguments):
        counted[0] += 1
        for i, made in enumerate(approximants(*arguments)):
            if counted[0] == 3 and i == 2:
                raise KeyboardInterrupt
            yield made

    monkeypatch.setattr(dynamics_module, "approximants", stopped)
    with pytest.raises(KeyboardInterrupt):
        dynamics(small, quick, tmp_path)
    assert sorted(p.name for p in tmp_path.glob("*.json")) == ["step-0000000.json", "step-0000001.json"]
    kept = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert not any(name.startswith(".") for name in kept)
    points, spectra = dynamics(small, quick, tmp_path)
    assert counted[0] == 3 + len(small.steps) - 2
    assert {name: (tmp_path / name).read_bytes() for name in kept} == kept
    assert without_seconds(points) == without_seconds(first[1])  # as if nothing had happened
    assert spectra == first[2]


def test_interrupt_between_fits_and_record(small, quick, done, monkeypatch):
    """Fits of new options never stand beside numbers of old ones."""
    before = load_fits(done, 0)[1].quadratic

    def stopped(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(dynamics_module, "write_json", stopped)
        with pytest.raises(KeyboardInterrupt):
            dynamics(small, Setting(SMALL, replace(QUICK, shrinkage=0.5)), done)
    assert not torch.equal(load_fits(done, 0)[1].quadratic, before)
    dynamics(small, quick, done)
    assert torch.equal(load_fits(done, 0)[1].quadratic, before)


def interrupting(original, at):
    """The same function, which is interrupted at one of its calls."""
    counted = [0]

    def call(*arguments, **options):
        counted[0] += 1
        if counted[0] == at:
            signal.raise_signal(signal.SIGINT)
        return original(*arguments, **options)

    return call


def test_interrupt_in_the_mixture_solver(run, setting, tmp_path, monkeypatch):
    monkeypatch.setattr("mlpoly.fitting.mixture.quadratic._DIRECT", 0)  # iteratively, as with more pixels
    original = GramOperator.apply
    monkeypatch.setattr(GramOperator, "apply", interrupting(original, 3))
    net = run.net(16)
    with pytest.warns(UserWarning, match="the mixture fit was interrupted"):
        mp.fit(net, setting.mixture, 2, method=mp.methods.Exact(tolerance=1e-10))  # by itself it answers with its best
    monkeypatch.setattr(GramOperator, "apply", interrupting(original, 3))
    with pytest.raises(KeyboardInterrupt):
        dynamics(run, setting, tmp_path)
    assert list(tmp_path.iterdir()) == []
