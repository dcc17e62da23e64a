"""Polynomials with explicit coefficients under one Gaussian: matrices (MATH 4), or products of Hermite polynomials."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mlpoly.arrays import Array, constant, namespace, take_rows
from mlpoly.inputs import Gaussian
from mlpoly.inputs.coordinates import Coordinates
from mlpoly.moments.expansion import Expansion
from mlpoly.moments.hermite_products import Ladder, conditioned, ladder


@dataclass(frozen=True, eq=False)
class Quadratic:
    """f_o(x) = mean_o + b_o.u + (u' C_o u - tr C_o S), with u = x - E[x] and the covariance S of x."""

    inputs: Gaussian
    mean: Array  # (o,)
    linear: Array | None = None  # (o, d), the b_o; None at degree 0
    # From an output o to its symmetric C_o (d, d), so that all of them need not exist at once; None below degree 2.
    form: Callable[[int], Array] | None = None

    @property
    def degree(self) -> int:
        """Total degree."""
        return 2 if self.form is not None else 1 if self.linear is not None else 0

    @classmethod
    def of(cls, f: Expansion, degree: int) -> "Quadratic":
        """The parts of a function of hidden units up to a degree of at most two."""
        units, series = f.units, f.series(degree)
        if degree == 0:
            return cls(f.inputs, f.mean)
        if degree == 1:
            return cls(f.inputs, f.mean, f.slopes())
        # P_2 he_2(t) + Q_1 t e, with he_2(t) = (t^2 - 1) / sqrt 2, t = w.u / s and e = v.u - slope t.
        W, inverse, weights = units.directions, units.inverse_scales, f.weights
        square, mixed, V = series.plain[2, :] * inverse**2 / math.sqrt(2), None, W
        if series.gated is not None and units.gate is not None:
            mixed, V = series.gated[1, :] * inverse, units.gate.directions
            square = square - mixed * units.gate.slopes * inverse

        def form(o: int) -> Array:
            C = ((weights[o, :] * square)[:, None] * W).T @ W
            if mixed is None:
                return C
            half = ((weights[o, :] * mixed / 2)[:, None] * W).T @ V
            return C + half + half.T

        return cls(f.inputs, f.mean, f.slopes(), form)

    def minus(self, other: "Quadratic") -> "Quadratic":
        """Difference of two functions under the same inputs."""
        b, c, one, two = self.linear, other.linear, self.form, other.form
        linear = b if c is None else -c if b is None else b - c
        form = one
        if two is not None:
            form = (lambda o: -two(o)) if one is None else (lambda o: one(o) - two(o))
        return Quadratic(self.inputs, self.mean - other.mean, linear, form)

    def covariances(self, other: "Quadratic", times: Callable[[Array], Array] | None, full: bool) -> list[Array]:
        """E[f g] at degree 1 and 2: b K b' and 2 tr(C K C' K), with the covariance K of the x of f and that of g."""
        xp, times = namespace(mean=self.mean), times or self.inputs.times_covariance
        rows = []
        if self.linear is not None and other.linear is not None:
            along = times(self.linear)
            rows.append(along @ other.linear.T if full else xp.vecdot(along, other.linear))
        if self.form is not None and other.form is not None:
            one, two, outputs = self.form, other.form, range(int(self.mean.shape[0]))
            if full:
                left, right = (xp.stack([times(form(o)) for o in outputs]) for form in (one, two))
                count, d = len(outputs), left.shape[1]
                right = xp.reshape(xp.matrix_transpose(right), (count, d * d))
                rows.append(2 * xp.reshape(left, (count, d * d)) @ right.T)
            else:
                products = ((p := times(one(o)), p if other is self else times(two(o))) for o in outputs)
                rows.append(xp.stack([2 * xp.sum(p * q.T) for p, q in products]))
        return rows

    def in_products(self, back: Array, own: Ladder) -> Array:
        """Coefficients (t, o) in the Hermite products of w, for x = mean + back w."""
        xp, count = namespace(back=back), own.variables
        rows = [self.mean[None, :]]
        if self.linear is not None:
            rows.append((self.linear @ back).T)
        if self.form is not None:
            # w'Cw - tr C = sum_i C_ii sqrt(2) he_2(w_i) + sum_{i<j} 2 C_ij w_i w_j
            i, j = np.triu_indices(count)
            scale = constant(np.where(i == j, math.sqrt(2), 2.0), back)
            forms = [back.T @ self.form(o) @ back for o in range(int(self.mean.shape[0]))]
            rows.append(xp.stack([take_rows(xp.reshape(C, (-1,)), i * count + j) * scale for C in forms], axis=1))
        missing = len(own.exponents) - sum(int(r.shape[0]) for r in rows)
        return xp.concat([*rows, constant(np.zeros((missing, int(self.mean.shape[0]))), back)])


@dataclass(frozen=True, eq=False)
class Products:
    """f(x) = sum_b values_b prod_i he_{b_i}(z_i) in the standard coordinates z of a Gaussian."""

    coordinates: Coordinates
    own: Ladder  # the exponents b
    values: Array  # (t, o)

    @property
    def mean(self) -> Array:
        """E[f] (o,)."""
        return self.values[0, :]

    @property
    def degree(self) -> int:
        """Total degree."""
        return int(self.own.degrees.max(initial=0))

    def like(self, other: "Expansion | Quadratic | Products", degree: int) -> "Products":
        """Another function under the same inputs, up to a degree, in these products."""
        own = self.own if degree == self.degree else ladder(self.own.variables, degree)
        if isinstance(other, Products):
            return Products(self.coordinates, own, other.values[: len(own.exponents), :])
        return Products(self.coordinates, own, other.in_products(self.coordinates.back, own))

    def minus(self, other: "Products") -> "Products":
        """Difference of two functions in the same products."""
        return Products(self.coordinates, self.own, self.values - other.values)

    def covariances(self, other: "Products", times: Callable[[Array], Array] | None, full: bool) -> list[Array]:
        """E[f g] at degree 1, 2, ..., where `times` multiplies with the covariance of the x of f and that of g."""
        values = other.values
        if times is not None:
            forward = self.coordinates.forward
            values = conditioned(values, times(forward) @ forward.T, self.own)
        if full:
            blocks = [np.flatnonzero(self.own.degrees == k) for k in range(1, self.degree + 1)]
            spans = [slice(int(b[0]), int(b[-1]) + 1) if len(b) else slice(0, 0) for b in blocks]
            return [self.values[s, :].T @ values[s, :] for s in spans]
        each = constant(np.arange(1, self.degree + 1)[:, None] == self.own.degrees, values)
        return list(each @ (self.values * values))
