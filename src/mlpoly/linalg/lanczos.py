"""Largest eigenpairs of a symmetric operator that is known only through its products with vectors."""

from collections.abc import Callable

import numpy as np

from mlpoly.arrays import Array, namespace, to_numpy

_STEPS = 12  # blocks in the basis before a restart
_RESTARTS = 60


def dense_eigenpairs(matrix: Array, k: int) -> tuple[Array, Array]:
    """The k eigenpairs of largest magnitude of a symmetric matrix: values (k,), vectors (d, k)."""
    xp = namespace(matrix=matrix)
    values, vectors = xp.linalg.eigh(0.5 * (matrix + matrix.T))
    order = xp.argsort(-xp.abs(values))[:k]
    return xp.take(values, order), xp.take(vectors, order, axis=1)


def largest_eigenpairs(apply: Callable[[Array], Array], start: Array, k: int) -> tuple[Array, Array, float]:
    """The k eigenpairs of largest magnitude by block Lanczos with full reorthogonalisation and thick restarts.

    In blocks, clusters and repeated eigenvalues are found together. `apply` multiplies the operator with a block
    (d, m), and `start` (d, b) is the first one, b > k. Returns values (k,) of descending magnitude, vectors (d, k), and
    the largest |A v - value v| over the largest |value|.
    """
    xp = namespace(start=start)
    tolerance = 1000 * float(xp.finfo(start.dtype).eps)
    width = start.shape[1]
    basis = xp.linalg.qr(start)[0]
    image = apply(basis)
    values, vectors, images = _ritz(basis, image)
    for _ in range(_RESTARTS):
        for _ in range(_STEPS):
            residual = _residual(values[:k], vectors[:, :k], images[:, :k])
            if residual <= tolerance:
                return values[:k], vectors[:, :k], residual
            if basis.shape[1] + width > basis.shape[0]:
                break  # no room for another block: restart from the best part
            # The residuals of the leading pairs span the next Krylov block.
            fresh = images[:, :width] - vectors[:, :width] * values[:width]
            # A converged column is noise after projection: scale it up, so that QR still finds a direction off the
            # basis. Projecting twice is enough for full orthogonality.
            for _ in range(3):
                fresh = fresh - basis @ (basis.T @ fresh)
                size = xp.sqrt(xp.sum(fresh * fresh, axis=0))
                fresh = xp.linalg.qr(fresh / xp.where(size > 0, size, 1.0))[0]
            fresh = fresh - basis @ (basis.T @ fresh)
            basis, image = xp.concat([basis, fresh], axis=1), xp.concat([image, apply(fresh)], axis=1)
            values, vectors, images = _ritz(basis, image)
        keep = min(k + width, vectors.shape[1])
        basis, image = vectors[:, :keep], images[:, :keep]
    return values[:k], vectors[:, :k], _residual(values[:k], vectors[:, :k], images[:, :k])


def _ritz(basis: Array, image: Array) -> tuple[Array, Array, Array]:
    """Ritz values by magnitude, their vectors, and the operator's products with those."""
    values, small = dense_eigenpairs(basis.T @ image, basis.shape[1])
    return values, basis @ small, image @ small


def _residual(values: Array, vectors: Array, images: Array) -> float:
    gap = np.linalg.norm(to_numpy(images - vectors * values), axis=0)
    return float(np.max(gap, initial=0.0) / max(float(np.max(np.abs(to_numpy(values)))), 1e-300))
