"""Polynomials on disk: safetensors with a JSON header, never pickle."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from mlpoly._version import __version__
from mlpoly.activations import Activation, get
from mlpoly.arrays import Array, Library, check_names, constant, from_numpy, to_numpy, widen
from mlpoly.errors import FileFormatError, UnknownActivationError
from mlpoly.files import read_tensors, write_tensors
from mlpoly.inputs import Gaussian, GaussianMixture
from mlpoly.polynomials.base import Polynomial
from mlpoly.polynomials.source import Source
from mlpoly.records import arrays_of, from_arrays, replace
from mlpoly.units import Series

# Layouts 1 and 2, without and with straight lines, have no inputs and use the names of version 0.1.
_LAYOUT = 3
# Tensors of a ridge polynomial: name in layouts 1 and 2 to the present name.
_OLD_NAMES = {
    "directions": "units.directions",
    "shifts": "units.shifts",
    "scales": "units.scales",
    "series": "series.plain",
    "gate.directions": "units.gate.directions",
    "gate.shifts": "units.gate.shifts",
    "gate.slopes": "units.gate.slopes",
    "gate.series": "series.gated",
}

# Inputs that are saved, with the shapes of their tensors; of others a file holds only the fingerprint.
_INPUTS: dict[type, dict[str, str]] = {
    Gaussian: {"mean": "d", "cov?": "d | d d"},
    GaussianMixture: {"weights": "c", "means": "c d", "covs?": "d | d d | c d | c d d"},
}
_SERIES = {"plain": "m h", "gated?": "n h"}
_DEEPEST = 32  # stages within stages; a residual connection within another adds one
_NOT_NEGATIVE = ("scales", "spreads", "bounds", "weights")
_LARGEST = sys.float_info.max


def save_polynomial(p: Polynomial, path: str | PathLike[str]) -> None:
    """Write a polynomial, whole or not at all."""
    header = {"format": "mlpoly", "layout": _LAYOUT, "version": __version__, **_description(p)}
    arrays = {name: to_numpy(a) for name, a in arrays_of(p).items() if "inputs" not in name.split(".")}
    for name in _integers(type(p)):
        arrays[name] = np.asarray(getattr(p, name), dtype=np.int64)
    if type(p.inputs) in _INPUTS:
        names = None if p.inputs.names is None else list(p.inputs.names)
        shared = getattr(p.inputs, "shared", None)
        header["distribution"] = {"kind": type(p.inputs).__name__, "shared": shared, "names": names}
        arrays |= {f"inputs.{name}": to_numpy(a) for name, a in arrays_of(p.inputs).items()}
    write_tensors(path, arrays, header)


def _description(p: Polynomial) -> dict[str, Any]:
    """What the header says of a polynomial, and of each of its stages if it is composed of others."""
    source = p.source
    if not source.inputs and p.inputs is not None:
        source = replace(source, inputs=p.inputs.fingerprint)
    made = {
        "kind": type(p).__name__,
        "degree": p.degree,
        "dim_in": p.dim_in,
        "dim_out": p.dim_out,
        "registered": _registered(source.activation) == getattr(getattr(p, "inner", p), "activation", None),
        **asdict(source),
    }
    if isinstance(p, _composed()):
        made |= {"skip": p.skip, "stages": [_description(stage) for stage in p.stages]}
    return made


def _composed() -> Any:
    from mlpoly.polynomials.composed import ComposedPolynomial  # imports forms that import this module

    return ComposedPolynomial


def load(path: str | PathLike[str], library: Library = "numpy", like: Array | None = None) -> Polynomial:
    """Read a polynomial written by `save`, with the inputs that it was fitted under if the file holds them.

    Parameters
    ----------
    path : path
    library : {"numpy", "torch", "jax"}
        Array library of the result.
    like : array, optional
        Take library, dtype and device from this array instead; inputs are in float64 where the library has it.

    Raises
    ------
    FileNotFoundError
    FileFormatError
        If the file is corrupt, truncated or not written by this library.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np, mlpoly as mp
    >>> poly = mp.fit(mp.MLP(np.eye(2), activation="relu"), mp.Gaussian.standard(2), degree=3)
    >>> with TemporaryDirectory() as folder:
    ...     poly.save(f"{folder}/poly.safetensors")
    ...     again = mp.load(f"{folder}/poly.safetensors")
    >>> again.degree, again.inputs, np.allclose(again(np.eye(2)), poly(np.eye(2)))
    (3, Gaussian(dim=2, identity covariance), True)
    """
    place = Path(path)
    if not place.is_file():
        raise FileNotFoundError(f"no polynomial file at {place}; polynomials are written with poly.save(path).")
    header, arrays = read_tensors(place)
    header = _checked(place, header)
    if header["layout"] < _LAYOUT and header["kind"] == "RidgePolynomial":
        header, arrays = _migrated(place, header, arrays)
    given = {name: arrays.pop(name) for name in list(arrays) if name.startswith("inputs.")}
    inside = {name.removeprefix("inputs."): a for name, a in given.items()}

    def placed(a: np.ndarray, wide: bool = False) -> Array:
        if like is None:
            return from_numpy(a, library)
        return constant(a, widen(constant(0.0, like)) if wide else like)

    try:
        made = _read(header, arrays, placed)
        if wrong := _damaged_inputs(header, inside):
            raise FileFormatError(wrong)
    except FileFormatError as error:
        raise FileFormatError(f"{place} has {error}; the file is damaged, save it again.") from None
    if not inside:
        return made
    about, under = header["distribution"], {name: placed(a, True) for name, a in inside.items()}
    if any(name.startswith("covs.") for name in under):  # one per component, None for the identity
        count = int(under["means"].shape[0])
        under["covs"] = tuple(under.pop(f"covs.{c}", None) for c in range(count))
    names = check_names(about.get("names"), made.dim_in)
    if about["kind"] == "Gaussian":
        return replace(made, inputs=from_arrays(Gaussian, under, {"names": names}))
    return replace(made, inputs=from_arrays(GaussianMixture, under, {"shared": bool(about["shared"]), "names": names}))


def _read(
    about: dict[str, Any], arrays: dict[str, np.ndarray], placed: Callable[[np.ndarray], Array], depth: int = 0
) -> Polynomial:
    """The polynomial of a description and its tensors; an error says what is wrong with them."""
    for name in ("degree", "dim_in", "dim_out"):
        if not _is_size(about.get(name)):
            raise FileFormatError(f"{name} {repr(about.get(name))[:40]} in its header, which is not a size")
    form = Polynomial.forms[about["kind"]]
    source = Source(**{f.name: str(about.get(f.name, "")) for f in fields(Source)})
    if form is _composed():
        made = _read_stages(about, arrays, placed, source, depth)
    else:
        sizes = {"d": about["dim_in"], "o": about["dim_out"], "2": 2, "n": about["degree"], "m": about["degree"] + 1}
        readouts = [name.replace("?", "") for name in form.shapes if name.replace("?", "").split(".")[-1] == "readout"]
        if readouts and not set(readouts) & set(arrays):  # the neurons are the outputs
            sizes["h"] = about["dim_out"]
        missing = [other for name, other in form.needs.items() if name in arrays and other not in arrays]
        wrong = _misfit(form.shapes, arrays, sizes, missing) or _odd_numbers(arrays, _integers(form))
        if wrong := wrong or form.damage(arrays):
            raise FileFormatError(wrong)
        known = _registered(source.activation) if about.get("registered") is True else None
        static = form.static_fields(source, known)
        static |= {name: tuple(map(tuple, arrays.pop(name).tolist())) for name in _integers(form)}
        made = from_arrays(form, {name: placed(a) for name, a in arrays.items()}, static)
    if made.degree != about["degree"]:
        raise FileFormatError(f"the degree {about['degree']} in its header, but terms of degree {made.degree}")
    return made


def _read_stages(
    about: dict[str, Any],
    arrays: dict[str, np.ndarray],
    placed: Callable[[np.ndarray], Array],
    source: Source,
    depth: int,
) -> Polynomial:
    """A polynomial composed of others; the tensors of stage i are called stages.i.name."""
    listed, skip, form = about.get("stages"), about.get("skip"), _composed()
    if not isinstance(listed, list) or not listed or not isinstance(skip, bool):
        raise FileFormatError(f"stages {repr(listed)[:40]} and skip {repr(skip)[:40]}, which describe no polynomials")
    if depth >= _DEEPEST:
        raise FileFormatError(f"stages within stages, more than {_DEEPEST} deep")
    parts: dict[str, dict[str, np.ndarray]] = {}
    for name, a in arrays.items():
        field, number, rest = [*name.split(".", 2), "", ""][:3]
        if field not in ("stages", "guarded") or number not in map(str, range(len(listed))):
            raise FileFormatError(f"missing or misshapen tensors ({name!r} is unknown)")
        parts.setdefault(f"{field}.{number}", {})[rest] = a
    stages: list[Polynomial] = []
    guarded: list[Series | None] = []
    for i, stage in enumerate(listed):
        if not isinstance(stage, dict) or stage.get("kind") not in form.kinds:
            raise FileFormatError(f"{repr(stage)[:60]} as the description of stages.{i}")
        try:
            stages.append(_read(stage, parts.get(f"stages.{i}", {}), placed, depth + 1))
            series = parts.get(f"guarded.{i}", {})
            if series and (wrong := _misfit(_SERIES, series, {}, []) or _odd_numbers(series, [])):
                raise FileFormatError(wrong)
        except FileFormatError as error:
            raise FileFormatError(f"{error}, in stages.{i}") from None
        guarded.append(from_arrays(Series, {name: placed(a) for name, a in series.items()}) if series else None)
    try:
        made = form(tuple(stages), tuple(guarded), skip, source=source)
    except (TypeError, ValueError) as error:
        raise FileFormatError(f"stages that do not fit together ({str(error).rstrip('.')})") from None
    if (made.dim_in, made.dim_out) != (about["dim_in"], about["dim_out"]):
        raise FileFormatError(f"the sizes {about['dim_in']} -> {about['dim_out']} in its header, but {made!r}")
    return made


def _registered(name: str) -> Activation | None:
    """The activation of that name, or None if there is none."""
    try:
        return get(name) if name else None
    except (UnknownActivationError, ValueError):
        return None


def _migrated(
    path: Path, header: dict[str, Any], arrays: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A ridge polynomial of layouts 1 and 2 under the present names; with lines it becomes a bounded polynomial."""
    lines = {name: arrays.pop(f"tails.{old}", None) for name, old in (("slopes", "slopes"), ("gate_slopes", "gate"))}
    arrays = {_OLD_NAMES.get(name, name): a for name, a in arrays.items()}
    if lines["slopes"] is None and lines["gate_slopes"] is None:
        return header, arrays
    bound: Any = header.get("bound")
    # Lines made by hand have an infinite bound; integers may be too large for a float.
    if not (isinstance(bound, float) or _is_size(bound)) or not (0 < bound <= _LARGEST or bound == math.inf):
        shown = f"the bound {repr(bound)[:40]}, which is not a positive number"
        raise FileFormatError(f"{path} has {shown}; the file is damaged, save it again.")
    made = {f"inner.{name}": a for name, a in arrays.items()}
    made |= {name: a for name, a in lines.items() if a is not None}
    if "units.shifts" in arrays:
        made["bounds"] = np.full_like(arrays["units.shifts"], float(bound))
    return header | {"kind": "BoundedPolynomial"}, made


def _integers(form: type[Polynomial]) -> list[str]:
    """Names of the static fields that a file holds as tensors."""
    return [f.name for f in fields(form) if f.metadata.get("static") and f.name in form.shapes]  # type: ignore[arg-type]


# -- checks of a file --------------------------------------------------------------------------------------------------


def _checked(path: Path, header: dict[str, Any] | None) -> dict[str, Any]:
    """Return the header, or raise unless it belongs to a polynomial in a known layout."""
    about: dict[str, Any] = header or {}
    kind, layout = about.get("kind"), about.get("layout", -1)
    known = isinstance(kind, str) and kind in Polynomial.forms
    if about.get("format") != "mlpoly" or not known or not _is_size(layout):
        raise FileFormatError(f"{path} is a safetensors file but holds no mlpoly polynomial; was it written by save()?")
    if layout > _LAYOUT:
        raise FileFormatError(f"{path} has file layout {layout}, mlpoly {__version__} knows {_LAYOUT}; upgrade it.")
    if layout < 1:
        raise FileFormatError(f"{path} has the impossible file layout {layout}; the file is damaged, save it again.")
    return about


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _damaged_inputs(header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Describe what is wrong with the tensors of the inputs; empty if nothing is, or if there are none."""
    about: Any = header.get("distribution")
    if about is None and not arrays:
        return ""
    kinds = {kind.__name__: kind for kind in _INPUTS}
    known = isinstance(about, dict) and isinstance(about.get("kind"), str) and about["kind"] in kinds
    if not known or about.get("shared") not in (None, True, False):
        return f"inputs {repr(about)[:60]}, which are not a distribution"
    names, count = about.get("names"), header["dim_in"]
    if names is not None and (not isinstance(names, list) or len(set(map(str, names))) != count or len(names) != count):
        return f"names {repr(names)[:60]} of its inputs, which are not one for each"
    shapes = dict(_INPUTS[kinds[about["kind"]]])
    sizes = {"d": header["dim_in"]}
    if "covs?" in shapes:
        shapes["covs?"] = "d | d d" if about.get("shared") else "c d | c d d"
        count = len(arrays.get("means", ()))
        shapes |= {f"covs.{c}?": "d | d d" for c in range(count)}
    wrong = _misfit(shapes, arrays, sizes, []) or _odd_numbers(arrays, [])
    if wrong:
        return f"{wrong}, among its inputs"
    for name, a in arrays.items():
        if name.split(".")[0] not in ("cov", "covs"):
            continue
        d = header["dim_in"]
        full = a.ndim == 3 or (a.ndim == 2 and not (name == "covs" and not about.get("shared")))
        matrices = a.reshape(-1, d, d) if full else np.zeros((0, d, d))
        variances = np.einsum("kii->ki", matrices) if full else a
        if (variances < 0).any() or not all(map(is_symmetric, matrices)):
            return f"a matrix in {name!r} that is not a covariance, among its inputs"
    return ""


def _misfit(
    shapes: Mapping[str, str], arrays: Mapping[str, np.ndarray], sizes: dict[str, int], missing: list[str]
) -> str:
    """Describe a tensor that is missing, unknown or misshapen; empty if none is.

    Parameters
    ----------
    shapes : mapping from name to letters
        A "?" after a part of a name makes it, and everything below it, optional; "|" separates alternatives.
    sizes : dict from letter to number
        Known sizes; the others are read off the tensors.
    missing : list of str
        Tensors that are known to be missing.
    """
    plain = {name.replace("?", ""): letters for name, letters in shapes.items()}
    for marked in shapes:
        parts = marked.split(".")
        above = [".".join(parts[: i + 1]).replace("?", "") for i, part in enumerate(parts) if part.endswith("?")]
        # A tensor of an optional part is required only if another tensor of that part is present.
        if marked.endswith("?") or not all(any(n.startswith(f"{a}.") for n in arrays) for a in above):
            continue
        if marked.replace("?", "") not in arrays:
            missing = [*missing, marked.replace("?", "")]
    if odd := sorted(missing) or sorted(set(arrays) - set(plain)):
        return f"missing or misshapen tensors ({odd[0]!r} is {'not there' if missing else 'unknown'})"
    for name, a in arrays.items():
        for letters in (alternative.split() for alternative in plain[name].split("|")):
            known = dict(sizes)
            if a.ndim == len(letters) and all(
                known.setdefault(s, n) == n for s, n in zip(letters, a.shape, strict=True)
            ):
                sizes.update(known)
                break
        else:
            expected = ", ".join(str(sizes.get(s, s)) for s in plain[name].split("|")[-1].split())
            return f"missing or misshapen tensors ({name!r} is {a.shape}, expected ({expected}))"
    return ""


def _odd_numbers(arrays: Mapping[str, np.ndarray], integers: list[str]) -> str:
    """Describe numbers that a polynomial or its inputs cannot have; empty if there are none."""
    for name, a in arrays.items():
        last = name.split(".")[-1]
        if a.dtype.kind != ("i" if name in integers else "f"):
            return f"numbers of type {a.dtype} in {name!r}"
        if a.dtype.kind == "f" and not (np.isfinite(a) | ((last == "bounds") & (a == np.inf))).all():
            return f"NaN or infinite numbers in {name!r}"
        if last in _NOT_NEGATIVE and (a < 0).any():
            return f"negative {last}"
    return ""


def is_symmetric(matrix: np.ndarray) -> bool:
    """Whether a matrix is symmetric up to rounding."""
    with np.errstate(over="ignore"):
        gap = np.abs(matrix - matrix.T).max(initial=0)
    return bool(gap <= math.sqrt(np.finfo(matrix.dtype).eps) * np.abs(matrix).max(initial=0))
