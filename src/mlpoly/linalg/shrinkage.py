"""Least squares from second moments, with the coefficients shrunk towards zero (MATH 13)."""

from mlpoly.arrays import Array, eye, namespace, safe_inverse, scalar

MANY = 4096  # features beyond which an eigendecomposition takes a hundred times as long as solving for one shrinkage


class ShrunkLeastSquares:
    """Targets on features that are scaled to variance one, for every shrinkage.

    Minimises E|y - level - F C|^2 + shrinkage |D C|^2, with D the standard deviations of the m features F. Directions
    in which the features do not vary get no coefficient: without shrinkage D C is of least norm. The problem is given
    by the sums of products of 1, features and o targets over samples, (1 + m + o, 1 + m + o).

    One eigendecomposition serves all shrinkages. With more than 4096 features each is solved for by itself, and is at
    least of the size of rounding errors.
    """

    def __init__(self, moments: Array, features: int) -> None:
        xp, m = namespace(moments=moments), features
        self.mean = moments[0, 1:] / moments[0, 0]
        second = moments[1:, 1:] / moments[0, 0]
        cov = second - self.mean[:, None] * self.mean
        eps = float(xp.finfo(cov.dtype).eps)
        squares, variances = xp.linalg.diagonal(second)[:m], xp.linalg.diagonal(cov)[:m]
        real = variances > 100 * eps * squares  # below that a feature is constant up to rounding of the sums
        self.inverse = xp.where(real, safe_inverse(xp.sqrt(xp.where(real, variances, 1.0))), 0.0)
        self.gram, self.right = self.inverse[:, None] * cov[:m, :m] * self.inverse, self.inverse[:, None] * cov[:m, m:]
        # Entries known to a rounding error e move eigenvalues by at most m e; a factor of ten is a margin.
        self.least = 10 * m * eps * scalar(xp.linalg.matrix_norm(self.gram))
        self.basis: Array = None
        if m <= MANY:
            values, self.basis = xp.linalg.eigh(self.gram)
            self.values = xp.where(values > 10 * m * eps * xp.max(values), values, 0.0)
            self.right = self.basis.T @ self.right

    @property
    def rank(self) -> int:
        """Number of directions in which the features vary."""
        xp = namespace(gram=self.gram)
        if self.basis is None:
            return int(scalar(xp.count_nonzero(xp.linalg.eigvalsh(self.gram) > self.least)))
        return int(scalar(xp.count_nonzero(self.values)))

    def effective(self, shrinkage: float) -> float:
        """Effective number of coefficients of each target."""
        xp = namespace(gram=self.gram)
        if self.basis is None:
            shrunk = self._shrunk(shrinkage)
            return scalar(xp.linalg.trace(xp.linalg.solve(shrunk, self.gram)))
        return scalar(xp.sum(self.values * safe_inverse(self.values + shrinkage)))

    def solve(self, shrinkage: float) -> tuple[Array, Array]:
        """Coefficients C (m, o) and level (o,)."""
        solved = self._solved(shrinkage)
        change = self.inverse[:, None] * (solved if self.basis is None else self.basis @ solved)
        return change, self.mean[change.shape[0] :] - self.mean[: change.shape[0]] @ change

    def errors(self, others: Array, shrinkages: list[float]) -> list[float]:
        """Mean squared errors, summed over targets, on other samples with these moments."""
        xp, m = namespace(others=others), self.inverse.shape[0]
        second, other = others[1:, 1:] / others[0, 0], others[0, 1:] / others[0, 0]
        cross = other[:, None] * self.mean
        around = second - cross - cross.T + self.mean[:, None] * self.mean  # about the mean of the first samples
        gram, right = self.inverse[:, None] * around[:m, :m] * self.inverse, self.inverse[:, None] * around[:m, m:]
        if self.basis is not None:
            gram, right = self.basis.T @ gram @ self.basis, self.basis.T @ right
        start, errors = xp.linalg.trace(around[m:, m:]), []
        for shrinkage in shrinkages:
            solved = self._solved(shrinkage)
            errors.append(scalar(start + xp.sum(solved * (gram @ solved - 2 * right))))
        return errors

    def _solved(self, shrinkage: float) -> Array:
        """Coefficients (m, o) of the scaled features, in the eigenbasis if there is one."""
        if self.basis is None:
            return namespace(gram=self.gram).linalg.solve(self._shrunk(shrinkage), self.right)
        return safe_inverse(self.values + shrinkage * (self.values > 0))[:, None] * self.right

    def _shrunk(self, shrinkage: float) -> Array:
        return self.gram + max(shrinkage, self.least) * eye(self.gram.shape[0], self.gram)
