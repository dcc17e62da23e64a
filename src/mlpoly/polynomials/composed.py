"""Polynomials of polynomials: one for every layer of a deep network (MATH 9)."""

import dataclasses
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from mlpoly.arrays import Array, cast_like, check_points, constant, eye, namespace, promote
from mlpoly.polynomials.base import Polynomial
from mlpoly.polynomials.bounded import BoundedPolynomial
from mlpoly.polynomials.dense import DensePolynomial, to_dense
from mlpoly.polynomials.fields import store_floats
from mlpoly.polynomials.neurons import NeuronPolynomial
from mlpoly.polynomials.ridge import RidgePolynomial
from mlpoly.polynomials.substitution import substituted, take_columns
from mlpoly.polynomials.symmetric import multisets, places
from mlpoly.records import record, replace, static
from mlpoly.units import Series


@record
class ComposedPolynomial(Polynomial):
    """`p(x) = stages[-1](... stages[1](stages[0](x)))`, plus x where `skip` is true, as around a residual connection.

    Its degree is the product of those of its stages, and its size that of the network.

    Attributes
    ----------
    stages : tuple of polynomials
        Each takes the outputs of the one before: `RidgePolynomial`, `BoundedPolynomial`, `DensePolynomial` or another
        `ComposedPolynomial`. They have neither inputs nor reports.
    guarded : tuple of Series or None, optional
        Series that replace those of the ridge stages wherever the polynomial is evaluated, so that it does not explode;
        None for stages that keep theirs. `bounded` drops them: lines do not explode.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.Chain([mp.MLP(np.eye(2), activation="gelu"), mp.MLP(np.eye(2), activation="gelu")])
    >>> poly = mp.fit(net, mp.Gaussian.standard(2), degree=3, method="composed")
    >>> poly.degree, [stage.degree for stage in poly.stages]
    (9, [3, 3])
    """

    stages: tuple[Polynomial, ...]
    guarded: tuple[Series | None, ...] | None = None
    skip: bool = static(default=False)

    closed_form: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        stages = self.stages
        if not isinstance(self.skip, bool):
            raise TypeError(f"skip must be True or False, got {self.skip!r:.60}.")
        if not isinstance(stages, tuple | list) or not stages:
            raise TypeError(f"stages must be a list of polynomials, at least one, got {stages!r:.60}.")
        for i, stage in enumerate(stages):
            if not isinstance(stage, NeuronPolynomial | DensePolynomial | ComposedPolynomial):
                kind = type(stage).__name__
                raise TypeError(f"stages[{i}] must be a ridge, bounded, dense or composed polynomial, got {kind}.")
        namespace(**{f"stages_{i}": stage.prototype for i, stage in enumerate(stages)})
        for i, (one, two) in enumerate(pairwise(stages)):
            if one.dim_out != two.dim_in:
                raise ValueError(f"stages[{i}] has {one.dim_out} outputs, but the next one takes {two.dim_in} inputs.")
            dtypes = [stage.prototype.dtype for stage in (one, two)]
            if dtypes[0] != dtypes[1]:
                raise TypeError(
                    f"stages[{i}] is {dtypes[0]}, and the next one {dtypes[1]}; convert it with .to(array)."
                )
        if self.skip and stages[0].dim_in != stages[-1].dim_out:
            maps = f"{stages[0].dim_in} -> {stages[-1].dim_out}"
            raise ValueError(f"stages map {maps}; with skip they need as many outputs as inputs.")
        guarded = (None,) * len(stages) if self.guarded is None else tuple(self.guarded)
        object.__setattr__(self, "guarded", guarded)
        store_floats(self, "guarded")
        if len(guarded) != len(stages):
            raise ValueError(f"guarded has {len(guarded)} entries, expected {len(stages)}: a Series or None per stage.")
        for i, (stage, series) in enumerate(zip(stages, self.guarded or (), strict=True)):
            if series is not None and not (isinstance(stage, RidgePolynomial) and _alike(series, stage.series)):
                raise ValueError(f"guarded[{i}] must be None, or a Series like that of a ridge polynomial stages[{i}].")
        if all(series is None for series in guarded):
            object.__setattr__(self, "guarded", None)
        object.__setattr__(self, "stages", tuple(replace(stage, inputs=None, report=None) for stage in stages))

    @property
    def applied(self) -> tuple[Polynomial, ...]:
        """The stages as they are evaluated: with the guarded series, if there are any."""
        if self.guarded is None:
            return self.stages
        pairs = zip(self.stages, self.guarded, strict=True)
        return tuple(stage if series is None else replace(stage, series=series) for stage, series in pairs)

    @property
    def piecewise(self) -> bool:
        """Whether a stage continues as straight lines beyond a bound."""
        return any(stage.piecewise for stage in self.stages)

    @property
    def polynomial(self) -> "ComposedPolynomial":
        """The polynomial without bounds."""
        if not self.piecewise:
            return self
        parts = (s.polynomial if isinstance(s, BoundedPolynomial | ComposedPolynomial) else s for s in self.stages)
        return replace(self, stages=tuple(parts))

    @property
    def degree(self) -> int:
        """Total degree, within the bounds if there are any."""
        product = math.prod(stage.degree for stage in self.stages)
        return max(product, 1) if self.skip else product

    @property
    def dim_out(self) -> int:
        """Number of outputs o."""
        return self.stages[-1].dim_out

    @property
    def prototype(self) -> Array:
        """An array of the first stage, which has the library, dtype and device of the polynomial."""
        return self.stages[0].prototype

    @property
    def _origin(self) -> Array:
        """The point x = 0."""
        return constant(np.zeros(self.dim_in), self.prototype)

    def __repr__(self) -> str:
        notes = [", skip"] * self.skip + [", guarded"] * (self.guarded is not None) + [", bounded"] * self.piecewise
        shape = f"{self.dim_in} -> {self.dim_out}, {len(self.stages)} stages{''.join(notes)}"
        return f"ComposedPolynomial(degree={self.degree}, {shape}, {self.source})"

    # -- values and derivatives ---------------------------------------------------------------------------------------

    def __call__(self, x: Array) -> Array:
        """Values (..., o) at points x (..., d)."""
        value = x = check_points(x, self.dim_in, polynomial=self.prototype)
        for stage in self.applied:
            value = stage(value)
        return sum(promote(x, value)) if self.skip else value

    def gradient(self, x: Array) -> Array:
        """Jacobian (..., o, d) at points x (..., d), by the chain rule."""
        *first, last = self._path(x)[1]
        for slope in reversed(first):  # from the outputs, which are often few
            last = last @ slope
        return last + eye(self.dim_in, last) if self.skip else last

    def hessian(self, x: Array) -> Array:
        """Second derivatives (..., o, d, d) at points x (..., d)."""
        return self.hessian_along(x, eye(self.dim_out, self.prototype))

    def hessian_along(self, x: Array, directions: Array) -> Array:
        """Second derivatives (..., a, d, d) of the outputs along directions (..., a, o), at points x (..., d).

        Sum over l of J_l' H_l J_l, with the Jacobian J_l of all stages before the l-th, and its second derivatives H_l
        along what the stages behind it make of the directions.
        """
        stages, (points, slopes) = self.applied, self._path(x)
        xp, before = namespace(x=slopes[0]), [None]  # Jacobians of all stages before each; None is the identity
        for slope in slopes[:-1]:
            before.append(slope if before[-1] is None else slope @ before[-1])
        total: Array = 0.0
        for stage, point, slope, J in reversed(list(zip(stages, points, slopes, before, strict=True))):
            term = stage.hessian_along(point, directions)
            total = total + (term if J is None else xp.matrix_transpose(J)[..., None, :, :] @ term @ J[..., None, :, :])
            directions = promote(directions, slope)[0] @ slope
        return total

    def _path(self, x: Array) -> tuple[list[Array], list[Array]]:
        """Points at which the stages are evaluated for points x (..., d), and the Jacobians of the stages there."""
        points, slopes = [check_points(x, self.dim_in, polynomial=self.prototype)], []
        for stage in self.applied:
            slopes.append(stage.gradient(points[-1]))
            points.append(stage(points[-1]))
        return points[:-1], slopes

    # -- coefficients -------------------------------------------------------------------------------------------------

    def _tensor(self, k: int) -> Array:
        p = self.polynomial  # without bounds
        xp, origin = namespace(polynomial=p.prototype), p._origin
        if k == 0:
            return p(origin)
        if k == 1:
            return p.gradient(origin)
        if k == 2:
            return p.hessian(origin) / 2
        index = places(np.stack(np.unravel_index(np.arange(self.dim_in**k), (self.dim_in,) * k), axis=-1))
        return xp.reshape(take_columns(self.power_series(k)[k], index), (self.dim_out, *[self.dim_in] * k))

    def power_series(self, degree: int) -> list[Array]:
        """Symmetric coefficients (o, t) of degree 0, 1, ... at x = 0, at the entries of `polynomials.symmetric`."""
        p, d = self.polynomial, self.dim_in  # without bounds
        xp, origin = namespace(polynomial=p.prototype), p._origin
        # x itself: no constant, the identity, nothing above
        empty = [len(multisets(d, j)) for j in range(2, degree + 1)]
        x = [origin[:, None], eye(d, origin), *(xp.broadcast_to(origin[:, None], (d, t)) for t in empty)]
        return substituted(p, x)[: degree + 1]

    def tensor_slices(self, k: int) -> Callable[[tuple[int, ...]], Array]:
        """Return a function of k - 2 input indices to the slice (o, d, d) of the tensor of degree k >= 2 there."""
        entries, d = self.power_series(k)[k], self.dim_in
        pairs = np.stack(np.meshgrid(np.arange(d), np.arange(d), indexing="ij"), axis=-1)

        def part(lead: tuple[int, ...]) -> Array:
            index = places(np.concatenate([np.broadcast_to(np.asarray(lead, int), (d, d, k - 2)), pairs], axis=-1))
            return namespace(entries=entries).reshape(take_columns(entries, index.ravel()), (-1, d, d))

        return part

    def tensor_numbers(self, k: int) -> int:
        """Number of entries of `tensor(k)` and of the arrays that it is computed from."""
        d = self.dim_in
        widest = max(stage.dim_in + stage.tensor_numbers(0) for stage in self.stages)  # the latter counts neurons too
        return self.dim_out * d**k + (3 * widest * math.comb(d + k - 1, k) if k > 2 else widest * d ** max(k - 1, 0))

    # -- other forms --------------------------------------------------------------------------------------------------

    def _truncated(self, degree: int) -> "ComposedPolynomial":
        remedy = "mlpoly.fit(net, inputs, 2) gives the closest polynomial of low degree to the whole network"
        raise TypeError(f"a ComposedPolynomial of degree {self.degree} cannot be truncated; {remedy}.")

    def bounded(self, bound: float) -> "ComposedPolynomial":
        """The polynomial with straight lines beyond `bound` standard deviations of every preactivation; unguarded."""
        linear = [isinstance(stage, DensePolynomial) and stage.degree < 2 for stage in self.stages]
        made = (s if straight else s.bounded(bound) for s, straight in zip(self.stages, linear, strict=True))
        report = self.report and dataclasses.replace(self.report, details={**self.report.details, "guard": 0.0})
        return replace(self, stages=tuple(made), guarded=None, report=report)

    # -- arithmetic ---------------------------------------------------------------------------------------------------

    def _scaled(self, factor: Any) -> "ComposedPolynomial":
        return self._with_last(lambda stage: stage._scaled(factor))

    def _shifted(self, by: Array) -> "ComposedPolynomial":
        return self._with_last(lambda stage: stage._shifted(by))

    def _mapped(self, matrix: Array) -> "ComposedPolynomial":
        return self._with_last(lambda stage: stage._mapped(matrix))

    def _precomposed(self, factors: Array, offset: Array) -> "ComposedPolynomial":
        if not self.skip:
            return replace(self, stages=(self.stages[0]._precomposed(factors, offset), *self.stages[1:]))
        zero = self._origin  # the input is added to the outputs as it is: a stage of its own changes it
        scale = cast_like(factors[:, None] * eye(self.dim_in, factors), zero)
        return ComposedPolynomial((DensePolynomial(zero, cast_like(offset, zero), scale), self))

    def _with_last(self, change: Callable[[Any], Any]) -> "ComposedPolynomial":
        """The polynomial with a linear change of its outputs."""
        if self.skip:  # the outputs are those of a stage and x: a stage of its own changes them
            zero = self._origin
            return ComposedPolynomial((self, change(DensePolynomial(zero, zero, eye(self.dim_out, zero)))))
        stages = (*self.stages[:-1], change(self.stages[-1]))
        guarded = self.guarded
        if guarded is not None and guarded[-1] is not None:
            guarded = (*guarded[:-1], change(self.applied[-1]).series)
        return replace(self, stages=stages, guarded=guarded)

    def _plus(self, other: "ComposedPolynomial") -> "ComposedPolynomial":
        raise self._no_sum()

    def _absorbed(self, other: Polynomial) -> Polynomial | None:
        if self.piecewise:
            return None
        if max(self.degree, other.degree) > 2:
            raise self._no_sum()
        return to_dense(self, self._origin)._plus(other)

    def _no_sum(self) -> TypeError:
        return TypeError(
            f"a sum with a ComposedPolynomial of degree {self.degree} has no common form; add their values, "
            f"lambda x: p(x) + q(x)."
        )


def _alike(one: Any, two: Series) -> bool:
    """Whether the first is a series with the degrees and the number of units of the second."""
    shapes = [[None if a is None else a.shape for a in (s.plain, s.gated)] for s in (one, two) if isinstance(s, Series)]
    return len(shapes) == 2 and shapes[0] == shapes[1]
