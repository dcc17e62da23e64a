"""An additive model: a function of each input by itself, and of some pairs of inputs."""

from collections.abc import Callable
from functools import partial
from os import PathLike
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from mlpoly.activations import Activation
from mlpoly.arrays import Array, cast_like, chunks, from_numpy, namespace, safe_inverse, take_rows, to_numpy, widen
from mlpoly.arrays.checks import as_float_array, check_columns, check_points
from mlpoly.errors import FileFormatError
from mlpoly.files import read_tensors, write_tensors
from mlpoly.inputs import input_places
from mlpoly.moments import smoothed
from mlpoly.moments.hermite_products import multi_indices, products
from mlpoly.polynomials.saving import registered
from mlpoly.records import arrays_of, map_arrays, record, static
from mlpoly.special import clenshaw
from mlpoly.tables import Plottable, Table, Tabular

GRID = np.linspace(-3.0, 3.0, 61)  # standard deviations at which the density of an input is known, for pictures
_NUMBERS = 2**20  # values at once
_FORMAT = "mlpoly-additive"


@record
class SharpUnits:
    """Hidden units averaged over all inputs but one: act(mean + slope z + spread w), w a standard normal variable.

    Gated ones are that times (gate mean + gate slope z + gate spread w), plus what is independent of both.
    """

    owners: tuple[int, ...] = static()  # the inputs
    activation: Activation = static()
    means: Array = None  # (k,), and so are all but the weights
    slopes: Array = None
    spreads: Array = None
    weights: Array = None  # (k, o)
    gate_means: Array | None = None
    gate_slopes: Array | None = None
    gate_spreads: Array | None = None

    def of(self, place: int) -> "SharpUnits | None":
        """The units of one input."""
        index = np.flatnonzero(np.asarray(self.owners) == place)
        return map_arrays(self, lambda a: take_rows(a, index)) if len(index) else None

    def __call__(self, z: Array) -> Array:
        """Values (n, o) at standardised values z (n,) of their input."""
        xp, shape = namespace(z=z), (z.shape[0], self.means.shape[0])
        means = self.means + z[:, None] * self.slopes
        spreads = xp.broadcast_to(self.spreads, shape)
        mean, spread = (xp.reshape(a, (-1,)) for a in (means, spreads))
        parts = smoothed(self.activation, mean, spread, int(self.gate_means is not None))
        found = [xp.reshape(a, shape) for a in parts]
        if self.gate_means is not None:  # E[act(y) w] is the second
            found[0] = found[0] * (self.gate_means + z[:, None] * self.gate_slopes) + found[1] * self.gate_spreads
        return found[0] @ self.weights


@record
class AdditiveModel(Tabular, Plottable):
    """f(x) = mean + sum_i g_i(x_i), and pairs g_ij(x_i, x_j) if there are some: called like a network.

    Every g_i and g_ij has mean zero; a g_ij is orthogonal to all functions of x_i and of x_j alone.

    Attributes
    ----------
    mean : array (o,)
    center, scale : array (d,)
        Mean and standard deviation of the inputs; z = (x - center) / scale.
    series : array (n + 1, d, o)
        Coefficients of the g_i in orthonormal Hermite polynomials of z, up to `degree` n.
    additive, pairwise : array (o,)
        Fractions of the variance of the outputs that the g_i explain, and that pairs explain beyond; see `fraction`.
    variance, bound : array (o,)
        Variance of the function, and a bound on the root mean square error of the g_i from the series, as a multiple
        of the standard deviation of the output; rounding aside.
    importance : array (d, o)
        Standard deviation of every g_i.
    places : tuple of pairs of int
        Inputs of the pairs, the strongest first.
    names, output_names : tuple of str or None
    note : str
        Under which inputs it is closest, and to what.
    """

    mean: Array
    center: Array
    scale: Array
    series: Array
    additive: Array
    pairwise: Array
    variance: Array
    bound: Array
    importance: Array
    density: Array  # (d, 61), of the standardised inputs on `GRID`
    sharp: SharpUnits | None = None  # units that the series would need too many degrees for
    pair_series: Array | None = None  # (p, t, o), in he_a(u) he_b(v), u = z_i and v what z_j has beyond it
    pair_correlations: Array | None = None  # (p,)
    places: tuple[tuple[int, int], ...] = static(default=())
    names: tuple[str, ...] | None = static(default=None)
    output_names: tuple[str, ...] | None = static(default=None)
    note: str = static(default="")

    @property
    def degree(self) -> int:
        """Highest degree of the series."""
        return int(self.series.shape[0]) - 1

    @property
    def dim_in(self) -> int:
        """Number of inputs d."""
        return int(self.center.shape[0])

    @property
    def dim_out(self) -> int:
        """Number of outputs o."""
        return int(self.mean.shape[0])

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the inputs, x0, x1, ... where they have none."""
        return self.names or tuple(f"x{i}" for i in range(self.dim_in))

    @property
    def fraction(self) -> dict[str, Array]:
        """Fractions (o,) of the variance: "additive", "pairwise" beyond that, and "neither", which add up to one."""
        rest = 1 - self.additive - self.pairwise
        return {"additive": self.additive, "pairwise": self.pairwise, "neither": rest}

    def __call__(self, x: Array) -> Array:
        """Values (..., o) at points x (..., d)."""
        check_columns("x", x, self.names)
        x = check_points(x, self.dim_in, model=self.mean)
        xp, shape = namespace(x=x), x.shape[:-1]
        rows = xp.reshape(x, (-1, self.dim_in))
        size = max(1, _NUMBERS // (self.dim_in * self.dim_out))
        found = [self._values(rows[part, :]) for part in chunks(rows.shape[0], size)]
        total = xp.concat(found) if found else self._values(rows)
        return xp.reshape(cast_like(total, self.mean), (*shape, self.dim_out))

    def _values(self, x: Array) -> Array:
        z, xp = self._standardised(x), namespace(x=x)
        total = widen(self.mean) + xp.sum(clenshaw(widen(self.series), z[..., None]), axis=-2)
        for i in range(self.dim_in) if self.sharp is not None else ():
            total = total + self._sharp_part(i, z[:, i])
        for number, (i, j) in enumerate(self.places):
            total = total + self._pair(number, z[:, i], z[:, j])
        return total

    def _standardised(self, x: Array, i: Any = slice(None)) -> Array:
        return (widen(x) - widen(self.center)[i]) * safe_inverse(widen(self.scale))[i]

    def shape(self, which: int | str) -> Callable[[Array], Array]:
        """The function g_i of an input, by index or name: values (...) of it to (..., o)."""
        return partial(self._shape_at, self.place(which))

    def _shape_at(self, i: int, values: Array) -> Array:
        z = self._standardised(as_float_array("values", values, integers=True), i)
        xp = namespace(z=z, model=self.mean)
        flat = xp.reshape(z, (-1,))
        total = clenshaw(widen(self.series)[:, None, i, :], flat[:, None])
        total = total + self._sharp_part(i, flat)
        return xp.reshape(cast_like(total, self.mean), (*z.shape, self.dim_out))

    def _sharp_part(self, i: int, z: Array) -> Array | float:
        units = self.sharp.of(i) if self.sharp is not None and z.shape[0] else None
        return 0.0 if units is None else map_arrays(units, widen)(z)

    def pair(self, one: int | str, two: int | str) -> Callable[[Array, Array], Array]:
        """The function g_ij of two inputs, by index or name: values (...) of both to (..., o)."""
        i, j = self.place(one), self.place(two)
        places = (min(i, j), max(i, j))
        if places not in self.places:
            known = ", ".join(self._pair_names()) or "none"
            raise ValueError(f"there is no function of {self.labels[i]} and {self.labels[j]}; the pairs are: {known}.")
        return partial(self._pair_at, self.places.index(places), i > j)

    def _pair_names(self) -> list[str]:
        return [" and ".join(self.labels[k] for k in places) for places in self.places]

    def _pair_at(self, number: int, swapped: bool, one: Array, two: Array) -> Array:
        values = [as_float_array("values", v, integers=True) for v in ((two, one) if swapped else (one, two))]
        z = [self._standardised(v, i) for v, i in zip(values, self.places[number], strict=True)]
        return cast_like(self._pair(number, *z), self.mean)

    def _pair(self, number: int, one: Array, two: Array) -> Array:
        xp, rho = namespace(one=one), widen(self.pair_correlations)[number]
        beyond = (two - rho * one) * safe_inverse(xp.sqrt(xp.clip(1 - rho * rho, 0, None)))
        series = widen(self.pair_series)[number, ...]
        features = products(xp.stack([one, beyond], axis=-1), pair_exponents(int(series.shape[0])))
        return xp.moveaxis(features, 0, -1) @ series

    def place(self, which: int | str) -> int:
        """Number of an input, given by index or name."""
        known: Any = SimpleNamespace(dim=self.dim_in, names=self.labels)
        return int(input_places("which", [which], known)[0])

    def _table(self) -> Table:
        weight = to_numpy(self.variance) / (to_numpy(self.variance).sum() or 1.0)
        parts = {name: float(to_numpy(a) @ weight) for name, a in self.fraction.items()}
        spread = np.sqrt((to_numpy(self.importance) ** 2).sum(axis=1)).tolist()
        rows = sorted(zip(self.labels, spread, strict=True), key=lambda row: -row[1])
        many = ", all outputs together" if self.dim_out > 1 else ""
        title = f"Closest additive model: {parts['additive']:.4g} of the variance{many}"
        more = ""
        if self.pair_series is not None:
            degree = int(pair_exponents(int(self.pair_series.shape[1])).max())
            more = f"pairs up to degree {degree}: {', '.join(self._pair_names())}; "
            more += f"{parts['pairwise']:.4g} of the variance beyond"
        precise = f"series up to degree {self.degree}, error at most {float(to_numpy(self.bound).max()):.1g}"
        note = "\n".join(filter(None, (more, f"neither: {parts['neither']:.4g}", f"{self.note}; {precise}")))
        return Table(("input", "standard deviation of g"), tuple(rows), title=title, note=note, limit=40)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file with a JSON header; `AdditiveModel.load` reads it."""
        header: dict[str, Any] = {"format": _FORMAT, "layout": 1, "places": self.places, "note": self.note}
        header |= {"names": self.names, "output_names": self.output_names}
        if self.sharp is not None:
            name = self.sharp.activation.name
            if registered(name) != self.sharp.activation:
                why = "a file holds names, not functions; use degree= so that no unit is kept beside the series"
                raise ValueError(f"the activation {name!r} is not one of mlpoly.activations, and {why}.")
            header |= {"owners": self.sharp.owners, "activation": name}
        write_tensors(path, {name: to_numpy(a) for name, a in arrays_of(self).items()}, header)

    @classmethod
    def load(cls, path: str | PathLike[str], library: Any = "numpy") -> "AdditiveModel":
        """Read what `save` wrote, in the array library "numpy", "torch" or "jax"."""
        header, arrays = read_tensors(path)
        if header is None or header.get("format") != _FORMAT or header.get("layout") != 1:
            raise FileFormatError(f"{path} holds no additive model; was it written by AdditiveModel.save?")
        try:
            own: dict[str, Any] = {name: a for name, a in arrays.items() if "." not in name}
            for key in ("names", "output_names"):
                own[key] = None if header[key] is None else tuple(map(str, header[key]))
            inner = {name.split(".")[1]: a for name, a in arrays.items() if "." in name}
            sharp = None
            if "owners" in header:
                activation = cast(Any, registered(header["activation"]))
                sharp = SharpUnits(tuple(map(int, header["owners"])), activation, **inner)
            places = tuple((int(i), int(j)) for i, j in header["places"])
            made = cls(**own, sharp=sharp, places=places, note=str(header["note"]))
            made(to_numpy(made.center))  # shapes that do not fit raise here
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise FileFormatError(f"{path} is damaged: {str(error).rstrip('.')}. Save it again.") from error
        return map_arrays(made, lambda a: from_numpy(a, library))


def pair_exponents(count: int) -> np.ndarray:
    """The `count` multi-indices of two variables, by degree."""
    degree = int((np.sqrt(8 * count + 1) - 3) / 2 + 0.5)
    return multi_indices(2, degree)
