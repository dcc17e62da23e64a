"""Fixtures and profiles of the whole suite."""

import contextlib
import os
import random
import re
import signal

import hypothesis
import numpy as np
import pytest
import torch
from support.backends import BACKENDS, record_margin
from support.browser import find_browser, open_browser

from mlpoly.activations import registry

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported; no test needs a network

hypothesis.settings.register_profile("mlpoly", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("mlpoly")


@pytest.fixture(params=BACKENDS, ids=lambda b: b.name)
def backend(request):
    with request.param.active():
        yield request.param


@pytest.hookimpl(tryfirst=True)  # before the marks decide what runs
def pytest_collection_modifyitems(config, items):
    """JAX in less than double precision runs with the slow tests, and so does what it would show twice.

    It compiles every operation anew, for a sixth of the time of all tests together. What it shows is shown by JAX in
    double precision, with the same operations, and by NumPy and PyTorch in single, with the same rounding. Hardtanh has
    the route of ReLU, ELU that of SiLU, and ReLU in a gated unit that of both. Single steps of fits, polynomials and
    features in JAX run with the slow tests too: tests/test_backends.py goes through all of them, and
    tests/fitting/test_every_way.py through the solvers.
    """
    again = re.compile(
        r"jax[-_](float32|float16|bfloat16)"
        r"|test_backends.*\b(hardtanh|elu|relu glu)-jax-float64"
        r"|tests/(linalg|paper|features|polynomials|fitting/(?!test_every_way)).*jax-float64"
    )
    for item in items:
        if again.search(item.nodeid):
            item.add_marker(pytest.mark.slow)
    seed = config.getoption("--shuffle")
    if seed is not None:
        # First the files, then the tests in each, so that fixtures of a file are still made once.
        rng, files = random.Random(seed), dict[object, list[pytest.Item]]()
        for item in items:
            files.setdefault(item.path, []).append(item)
        order = list(files.values())
        rng.shuffle(order)
        for group in order:
            rng.shuffle(group)
        items[:] = [item for group in order for item in group]


def pytest_addoption(parser):
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order, which SEED decides")


@pytest.fixture(autouse=True)
def seeded():
    """Weights that a test draws do not depend on the tests that ran before it."""
    torch.manual_seed(0)


@pytest.fixture
def rng():
    return np.random.default_rng(20250214)


@pytest.fixture
def scratch_registry(monkeypatch):
    """Registrations made in a test end with it."""
    monkeypatch.setattr(registry, "_families", dict(registry._families))
    monkeypatch.setattr(registry, "_aliases", dict(registry._aliases))


def pytest_assertion_pass(item, lineno, orig, expl):
    """Note the margin of a comparison whose tolerance is written out, such as ``assert error <= 1e-12 * size``."""
    if not os.environ.get("MLPOLY_MARGINS") or not re.search(r"<=? .*\de-\d", orig):
        return
    sides = re.split(r" <=? ", expl.splitlines()[0])
    if len(sides) != 2:
        return
    with contextlib.suppress(Exception):  # what pytest shows need not be arithmetic
        error, tolerance = (float(eval(side, {"np": np}, {})) for side in sides)
        record_margin(error, tolerance, f":{lineno}")


@pytest.fixture(scope="module")
def window():
    """A real browser; tests that ask for it are skipped where there is none."""
    if find_browser() is None:
        pytest.skip("needs chromium and chromedriver (Debian: apt install chromium chromium-driver)")
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="session", autouse=True)
def interrupts_arrive():
    """Tests of interrupts, and the processes they start, need SIGINT, which a shell's background jobs ignore."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
