"""Block conjugate gradients against a direct solution, where directions are dependent, few, or all noise."""

import numpy as np
import pytest
from support.backends import assert_close, make, to_numpy

from mlpoly.linalg import block_cg as module
from mlpoly.linalg.block_cg import block_cg

SIZE, OUTPUTS = 30, 4


@pytest.fixture(params=[False, True], ids=["processor", "as on a GPU"], autouse=True)
def lazy(request, monkeypatch):
    """On a GPU directions are not made orthonormal, to save a wait for the host; both ways must do."""
    monkeypatch.setattr(module, "on_cpu", lambda a: not request.param)
    return request.param


def system(condition=1e3, rank=SIZE, outputs=OUTPUTS, seed=0):
    """A symmetric matrix, right-hand sides in its range, and the solution of minimum norm."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((SIZE, SIZE)))[0]
    values = np.geomspace(1, 1 / condition, SIZE) * (np.arange(SIZE) < rank)
    matrix = (turn * values) @ turn.T
    x = rng.standard_normal((outputs, SIZE)) @ matrix @ np.linalg.pinv(matrix)
    return 0.5 * (matrix + matrix.T), x @ matrix, x


def solve(matrix, b, start=None, tolerance=0.0, iterations=500, precondition=lambda r: r * 1.0):
    misfit = float(np.sum(to_numpy(b) ** 2)) * 1e4
    options = {"start": start, "misfit": misfit, "tolerance": tolerance, "max_iterations": iterations}
    return block_cg(lambda x: x @ matrix, precondition, b, **options)


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6])
def test_solves(condition):
    matrix, b, x = system(condition)
    found = solve(matrix, b)
    assert found.converged and found.exhausted and not found.interrupted
    assert_close(found.x, x, 2e-13 * condition)  # the residual ends at some hundred roundings
    if condition < 1e6:
        assert len(found.history) <= 25  # four directions at a time: eight iterations without rounding


def test_in_every_library(backend):
    matrix, b, x = system(100.0)
    before = make(b, backend)
    found = solve(make(matrix, backend), before, start=make(0.5 * x, backend))
    assert_close(found.x, x, 100 * backend.tolerance)
    assert_close(before, make(b, backend), 0)  # solved in place, but not in the caller's


def test_a_preconditioner_saves_iterations():
    matrix, b, x = system(1e6)
    plain, helped = solve(matrix, b), solve(matrix, b, precondition=lambda r: r @ np.linalg.inv(matrix))
    assert_close(helped.x, x, 1e-9)
    assert len(helped.history) < len(plain.history) / 2


DEPENDENT = {
    "one output twice": lambda b: b[[0, 1, 1, 2]],
    "nearly one output twice": lambda b: np.stack([b[0], b[1], b[1] + 1e-7 * b[2], b[3]]),
    "an output of zeros": lambda b: b * np.array([[1.0], [0.0], [1.0], [1.0]]),
    "sizes far apart": lambda b: b * np.array([[1e-8], [1.0], [1e4], [1.0]]),
    "more outputs than directions": lambda b: np.tile(b, (10, 1)) * np.linspace(1, 2, 40)[:, None],
}


@pytest.mark.parametrize("change", DEPENDENT.values(), ids=DEPENDENT)
def test_dependent_outputs(change):
    matrix, b, _ = system(100.0)
    b = change(b)
    found = solve(matrix, b)
    assert found.converged
    for x, right in zip(found.x, b, strict=True):
        # Outputs share their directions, so that of a small one is known to the rounding of the largest.
        error = np.abs(x @ matrix - right).max()
        assert error <= 1e-13 * max(np.abs(b).max() * 1e-3, np.abs(right).max())


def test_a_good_start_may_first_get_worse():
    """A residual may grow for a while, all the more where the start errs most in what the matrix hardly sees."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.standard_normal((200, 200)))[0]
    values = np.geomspace(1, 1e-5, 200)
    matrix = (turn * values) @ turn.T
    x = rng.standard_normal((4, 200)) @ turn.T
    error = (rng.standard_normal((4, 200)) / values**2) @ turn.T
    energy = np.sum(x * (x @ matrix))
    error *= 0.03 * np.sqrt(energy / np.sum(error * (error @ matrix)))
    b, single = x @ matrix, 1.2e-7
    limits = {"misfit": 1.001 * energy, "tolerance": 1e-4, "max_iterations": 500, "rounding": single}
    found = block_cg(lambda v: v @ matrix, lambda r: r * 1.0, b, start=x + error, **limits)
    left = found.x - x
    # What was asked for, of 9e-4 at the start; the stopping rule extrapolates.
    assert np.sum(left * (left @ matrix)) <= limits["tolerance"] * limits["misfit"]


@pytest.mark.parametrize("place", ["apply", "precondition"])
@pytest.mark.parametrize("call", [3, 6])
def test_an_interrupt_leaves_the_last_iterate(place, call):
    matrix, b, _ = system(1e3)
    calls = {"apply": 0, "precondition": 0}

    def interrupted(name, work):
        def run(v):
            calls[name] += 1
            if name == place and calls[name] == call:
                raise KeyboardInterrupt
            return work(v)

        return run

    works = interrupted("apply", lambda v: v @ matrix), interrupted("precondition", lambda r: r * 1.0)
    found = block_cg(*works, b, misfit=1e4, tolerance=0.0, max_iterations=50)
    assert found.interrupted and not found.converged
    same = solve(matrix, b, iterations=len(found.history))
    assert_close(found.x, same.x, 0)
    assert len(found.history) == call - 1


def test_a_singular_system_ends_when_residuals_are_noise():
    """Residuals then grow again; going on would only add rounding errors to what the matrix does not see."""
    for seed in range(20):
        matrix, b, x = system(1e5, rank=20, seed=seed)
        found = solve(matrix, b)
        assert found.converged and len(found.history) < 60
        assert_close(found.x @ matrix, x @ matrix, 1e-10)


def test_nothing_to_do():
    matrix, b, x = system(10.0)
    assert solve(matrix, b * 0).history == ()
    assert_close(solve(matrix, b * 0, start=x).x, x * 0, 1e-13)  # and a start that is not the answer
    again = solve(matrix, b, start=x)
    assert again.converged and again.history == ()
    limited = solve(matrix, b, iterations=0)
    assert not limited.converged and not limited.x.any()
