"""Block Lanczos against a dense eigendecomposition: repeated, clustered and missing eigenvalues, and no convergence."""

import numpy as np
import pytest
from support.backends import assert_close, make, to_numpy

from mlpoly.linalg import lanczos
from mlpoly.linalg.lanczos import dense_eigenpairs, largest_eigenpairs

SIZE, K = 60, 3

SPECTRA = {
    "decaying, of both signs": 0.8 ** np.arange(SIZE) * (-1.0) ** np.arange(SIZE),
    "one value three times": np.r_[np.full(3, 2.0), np.linspace(1, 0, SIZE - 3)],
    "both signs of one value": np.r_[2.0, -2.0, 1.5, np.linspace(1, 0, SIZE - 3)],
    "a cluster": np.r_[2.0, 2 - 1e-6, 2 - 2e-6, np.linspace(1, 0, SIZE - 3)],
    "rank one": np.r_[2.0, np.zeros(SIZE - 1)],
    "flat": np.linspace(1, 0.9, SIZE),
}


def problem(values, seed=0):
    """A symmetric matrix with given eigenvalues, and a first block."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((SIZE, SIZE)))[0]
    matrix = (turn * values) @ turn.T
    return 0.5 * (matrix + matrix.T), rng.standard_normal((SIZE, K + 4))


@pytest.mark.parametrize("values", SPECTRA.values(), ids=SPECTRA)
def test_eigenpairs_are_those_of_the_matrix(values):
    matrix, start = problem(values)
    found, vectors, residual = largest_eigenpairs(lambda block: matrix @ block, start, K)
    assert_close(np.abs(found), np.sort(np.abs(values))[::-1][:K], 1e-12)
    assert_close(vectors.T @ vectors, np.eye(K), 1e-13)
    assert residual <= 1000 * np.finfo(float).eps
    error = np.linalg.norm(matrix @ vectors - vectors * found, axis=0).max()
    # It says how good they are: products with the matrix are turned with the vectors in at most twelve steps, each a
    # sum over at most SIZE columns, so that each adds up to SIZE roundings.
    assert abs(error / np.abs(values).max() - residual) <= 12 * SIZE * np.finfo(float).eps
    assert_close(np.abs(dense_eigenpairs(matrix, K)[0]), np.abs(found), 1e-12)


def test_in_every_library(backend):
    matrix, start = problem(SPECTRA["decaying, of both signs"])
    there = make(matrix, backend)
    found, vectors, _ = largest_eigenpairs(lambda block: there @ block, make(start, backend), K)
    assert_close(found, SPECTRA["decaying, of both signs"][:K], 100 * backend.tolerance)
    pairs = to_numpy(vectors)
    assert_close(matrix @ pairs, pairs * to_numpy(found), 1000 * backend.tolerance)


def test_products_are_few():
    """Not a matrix's worth of columns, where the spectrum decays."""
    matrix, start = problem(0.5 ** np.arange(SIZE))
    columns = []

    def apply(block):
        columns.append(block.shape[1])
        return matrix @ block

    largest_eigenpairs(apply, start, K)
    assert sum(columns) <= SIZE


def test_without_convergence_the_residual_says_so(monkeypatch):
    monkeypatch.setattr(lanczos, "_RESTARTS", 1)
    monkeypatch.setattr(lanczos, "_STEPS", 1)
    matrix, start = problem(SPECTRA["flat"])
    found, vectors, residual = largest_eigenpairs(lambda block: matrix @ block, start, K)
    error = np.linalg.norm(matrix @ vectors - vectors * found, axis=0).max() / np.abs(found).max()
    assert residual > 1e-4 and residual == pytest.approx(error, rel=1e-6)
