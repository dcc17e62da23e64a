"""Least squares over the components of a mixture, one after the other, by orthogonal transformations (MATH 4).

With f_c and the basis functions written in the orthonormal Hermite products of component c, as a vector f_c and the
columns of a matrix B_c, the expected squared error of the polynomial with coefficients x is

    sum_c pi_c |B_c x - f_c|^2  +  a part that no polynomial of this degree can reduce

Its normal equations square the condition number. A small or distant component makes the columns differ by many orders
of magnitude, and then most of the polynomial would be lost to rounding. A QR decomposition of the rows keeps it.
"""

import numpy as np

from mlpoly.arrays import Array, constant, namespace, readable, safe_inverse, scalar, to_numpy, triangular_factor

_ROUNDINGS = 4  # roundings of each coefficient between here and the value of the polynomial
_NOISE = 10
_VANISHING = 64  # rounding errors in the value of a basis function that is zero
_WELL_CONDITIONED = 1e-4  # smallest diagonal entry of a triangular factor with columns of length one
_BEYOND_DOUBT = 1e-2  # the same, where rounding makes no difference in single precision either


class LeastSquares:
    """Rows [B f] seen so far, for t basis functions and o outputs; leading axes are separate problems.

    They are kept as their triangular factor: up to a constant, |B x - f|^2 is |R_B x - R_f|^2. `rank` is the number of
    combinations of basis functions that `solve` found to be above rounding, summed over all problems.
    """

    def __init__(self) -> None:
        self.factor: Array = None  # (..., m, t + o)
        self.rank = 0
        self._terms = 0

    def add(self, weight: Array, basis: Array, targets: Array) -> "LeastSquares":
        """Add weight (), or (m, 1), basis (..., m, t) and targets (..., m, o) of one component; returns self."""
        xp = namespace(basis=basis)
        rows = xp.sqrt(weight) * xp.concat([basis, targets], axis=-1)
        self._terms = int(basis.shape[-1])
        self.factor = triangular_factor(rows if self.factor is None else xp.concat([self.factor, rows], axis=-2))
        return self

    def solve(self, rounding: float, noise: float = _NOISE) -> Array:
        """Coefficients (..., t, o) of least expected squared error, rounding errors included.

        A coefficient x_j of a basis function of size s_j will be stored, and its term evaluated, with a relative error
        of about `rounding`. So the objective is the expected squared error plus (rounding s_j x_j)^2 summed over j:
        where the optimum is a small difference of huge terms, it avoids those that rounding would destroy. Combinations
        of basis functions that vanish on all components get coefficient zero: `noise` rounding errors may add up to
        their singular value.
        """
        xp, t = namespace(factor=self.factor), self._terms
        basis, targets = self.factor[..., :t], self.factor[..., t:]
        largest = xp.max(xp.abs(basis), axis=-2, keepdims=True)  # divided out, because squares may overflow
        # Basis functions are orthonormal under a Gaussian like the inputs. One that is of the size of rounding errors
        # vanishes on all components, such as t^2 - 1 if t is 1 or -1; divided by its size it would be made of noise.
        largest = xp.where(largest > _VANISHING * float(xp.finfo(basis.dtype).eps), largest, 0.0)
        unit = basis * safe_inverse(largest)
        sizes = xp.sqrt(xp.sum(unit * unit, axis=-2, keepdims=True))
        unit = unit * safe_inverse(sizes)
        one = len(unit.shape) == 2 and unit.shape[0] >= t
        if one and scalar(xp.min(xp.abs(xp.linalg.diagonal(unit)))) > _WELL_CONDITIONED:
            # A single problem with a well-conditioned triangular factor is solved directly.
            self.rank = t
            solved = xp.linalg.solve(unit[:t, :], targets[:t, :])
        else:
            many, direct, well = len(unit.shape) > 2 and unit.shape[-2] >= t, 0.0, False
            if many:
                # Among many, those that leave no doubt are solved directly too: singular values that coincide, such as
                # those of components with the same mean, have no derivatives. Others stand in for them below.
                square, plain = unit[..., :t, :], constant(np.diag(np.arange(1.0, t + 1)), unit)
                well = (xp.min(xp.abs(xp.linalg.diagonal(square)), axis=-1) > _BEYOND_DOUBT)[..., None, None]
                direct = xp.linalg.solve(xp.where(well, square, plain), targets[..., :t, :])
                unit = xp.where(well, constant(np.eye(unit.shape[-2], t), unit) @ plain, unit)
            left, values, right = xp.linalg.svd(unit, full_matrices=False)
            floor = noise * float(xp.finfo(unit.dtype).eps) * xp.max(values, axis=-1, keepdims=True)
            self.rank = int(to_numpy(values > floor).sum()) if readable(values) else 0
            stretch = xp.where(values > floor, values / (values**2 + (_ROUNDINGS * rounding) ** 2), 0.0)
            inner = xp.matrix_transpose(left) @ targets
            solved = xp.matrix_transpose(right) @ (stretch[..., None] * inner)
            solved = xp.where(well, direct, solved) if many else solved
        return solved * xp.matrix_transpose(safe_inverse(largest) * safe_inverse(sizes))

    def certificate(self, values: Array) -> tuple[float, float]:
        """Misfit of coefficients (t, o) of a single problem, and the norm of its gradient relative to that at zero."""
        xp, basis, targets = namespace(values=values), self.factor[:, : self._terms], self.factor[:, self._terms :]
        residual = basis @ values - targets
        gradient, at_zero = (scalar(xp.linalg.vector_norm(basis.T @ a)) for a in (residual, targets))
        return scalar(xp.sum(residual * residual)), gradient / max(at_zero, 1e-300)
