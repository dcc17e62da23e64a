"""The polynomials of a model's blocks with what is known of them, in memory and on disk."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mlpoly.errors import FileFormatError
from mlpoly.files import make_folder, read_json, write_json
from mlpoly.lm.tables import plain_table
from mlpoly.polynomials import BoundedPolynomial, Polynomial, load

__all__ = ["Conversion", "Quality", "load_conversion", "plain"]

_FORMAT, _VERSION = "mlpoly-conversion", 2
_CONFIG, _POLYNOMIAL = "cfg.json", "polynomial.safetensors"


@dataclass(frozen=True)
class Quality:
    """How well the polynomial of one block does; None is what was not measured, or is no finite number.

    Attributes
    ----------
    closed_form : float or None
        Fraction of the block's variance that the polynomial leaves unexplained, under the Gaussian or mixture that
        it was fitted under; without the bound.
    held_out : float or None
        The same on the block's inputs in the intact model, on held-out text, as the conversion is used: with its
        bound, if it has one.
    held_out_unbounded : float or None
        Likewise, without the bound.
    typical : float or None
        Median over held-out tokens of |f - p|^2 / |f|^2, with the bound. In some blocks a few tokens with massive
        activations are nearly all of the variance; this tells how the others fare.
    beyond : float or None
        The share of preactivations of held-out tokens that lie beyond the bound, where the block is not polynomial.
    seconds : float
        Of the fit, without the pass over the data.
    """

    closed_form: float | None = None
    held_out: float | None = None
    held_out_unbounded: float | None = None
    typical: float | None = None
    beyond: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class Conversion:
    """Polynomials for the blocks of a model. `mlpoly.lm.graft` and `mlpoly.lm.evaluate` take it as it is.

    Attributes
    ----------
    polynomials : mapping of str to Polynomial
        By the names of the blocks, in the model's order.
    quality : mapping of str to Quality
        How well each of them does.
    provenance : dict
        Method, degree and options, model, data and versions, as JSON can hold them.
    """

    polynomials: Mapping[str, Polynomial]
    quality: Mapping[str, Quality]
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def degree(self) -> int:
        """The highest degree among the polynomials."""
        return max((poly.degree for poly in self.polynomials.values()), default=0)

    @property
    def bound(self) -> float | None:
        """Standard deviations beyond which the neurons are straight lines; None if the polynomials are not bounded."""
        return self.provenance.get("bound")

    def unbounded(self) -> Conversion:
        """The same polynomials without their bounds."""
        polynomials = {name: plain(poly) for name, poly in self.polynomials.items()}
        provenance = {**self.provenance, "bound": None}
        return replace(self, polynomials=polynomials, provenance=provenance)

    @property
    def closed_form(self) -> dict[str, float | None]:
        """Fractions of variance unexplained, in closed form, by block."""
        return {name: fit.closed_form for name, fit in self.quality.items()}

    @property
    def held_out(self) -> dict[str, float | None]:
        """Fractions of variance unexplained on held-out text, by block."""
        return {name: fit.held_out for name, fit in self.quality.items()}

    @cached_property
    def grafts(self) -> dict[str, nn.Module]:
        """The polynomials as modules; made once."""
        return {name: poly.to_torch() for name, poly in self.polynomials.items()}

    def table(self) -> list[dict[str, Any]]:
        """One row per block."""
        return [
            {"block": name, "degree": p.degree, **asdict(self.quality[name])} for name, p in self.polynomials.items()
        ]

    def __str__(self) -> str:
        return plain_table(self.table())

    def __repr__(self) -> str:
        bound = "" if self.bound is None else f", bound={self.bound:g}"
        method, count = self.provenance.get("method", ""), len(self.polynomials)
        return f"Conversion({count} {'block' if count == 1 else 'blocks'}, degree={self.degree}, {method}{bound})"

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write ``<block>/cfg.json`` and ``<block>/polynomial.safetensors`` for every block.

        Parameters
        ----------
        folder : path
            Made if it is missing. What else is in it stays.

        Returns
        -------
        Path
            The folder.
        """
        target = make_folder(folder)
        for number, (name, poly) in enumerate(self.polynomials.items()):
            place = make_folder(target / (name or "_"))
            poly.save(place / _POLYNOMIAL)
            fit = asdict(self.quality[name])
            config = {
                "format": _FORMAT,
                "version": _VERSION,
                "hookpoint": name,
                "number": number,
                "degree": poly.degree,
                "bound": self.bound,
                "method": self.provenance.get("method"),
                "d_in": poly.dim_in,
                "d_out": poly.dim_out,
                "seconds": fit.pop("seconds"),
                "fvu": fit,
                "provenance": self.provenance,
            }
            write_json(place / _CONFIG, config)
        return target


def plain(poly: Any) -> Polynomial:
    """A polynomial without its bounds, if it has any."""
    made: Polynomial = poly.polynomial if isinstance(poly, BoundedPolynomial) else poly
    return made


def load_conversion(folder: str | PathLike[str], like: Tensor | None = None) -> Conversion:
    """Read what `Conversion.save` wrote.

    Parameters
    ----------
    folder : path
    like : Tensor, optional
        Device and dtype of the polynomials; by default the CPU, and the dtype that they were saved in.

    Raises
    ------
    FileNotFoundError
        If there is no conversion in the folder.
    FileFormatError
        If a file is damaged.
    """
    source = Path(folder)
    found = [(place, read_json(place)) for place in sorted(source.glob(f"*/{_CONFIG}"))]
    ours = [(place.parent, cfg) for place, cfg in found if isinstance(cfg, dict) and cfg.get("format") == _FORMAT]
    if not ours:
        raise FileNotFoundError(f"no conversion in {source}; make one with mlpoly.lm.convert(...).save(folder).")
    polynomials, quality = {}, {}
    try:
        for place, cfg in ours:
            _check_config(place, cfg)
        for place, cfg in sorted(ours, key=lambda item: item[1]["number"]):
            quality[cfg["hookpoint"]] = Quality(**cfg["fvu"], seconds=cfg["seconds"])
            polynomials[cfg["hookpoint"]] = load(place / _POLYNOMIAL, library="torch", like=like)
            poly = polynomials[cfg["hookpoint"]]
            if (poly.dim_in, poly.dim_out) != (cfg["d_in"], cfg["d_out"]):
                raise FileFormatError(f"the polynomial in {place} is not of the block's size; convert again.")
        first = ours[0][1]
        if any(cfg["provenance"] != first["provenance"] for _, cfg in ours):
            raise FileFormatError(f"{source} holds blocks of several conversions; save each in a folder of its own.")
        return Conversion(polynomials, quality, first["provenance"])
    except (KeyError, TypeError, AttributeError, FileNotFoundError) as error:
        raise FileFormatError(f"the conversion in {source} is damaged ({error}); convert again.") from None


def _check_config(place: Path, cfg: dict[str, Any]) -> None:
    """Raise unless a cfg.json is of this version, and its entries are what they should be."""
    if cfg.get("version") != _VERSION:
        raise FileFormatError(
            f"{place / _CONFIG} has version {cfg.get('version')!r:.40} of the format, this library reads {_VERSION}; "
            f"convert again."
        )
    if cfg.get("apart"):
        raise FileFormatError(
            f"{place / _CONFIG} has a polynomial for each kind of token, which this version no longer has; convert "
            f"again."
        )
    numbers = [cfg["seconds"], *cfg["fvu"].values(), cfg["bound"]]
    good = {
        "hookpoint": isinstance(cfg["hookpoint"], str),
        "number": type(cfg["number"]) is int,
        "fvu, seconds or bound": all(v is None or type(v) in (int, float) for v in numbers),
        "bound": cfg["bound"] is None or 0 < cfg["bound"] <= sys.float_info.max,
        "provenance": isinstance(cfg["provenance"], dict),
    }
    if odd := [name for name, fine in good.items() if not fine]:
        raise FileFormatError(f"{place / _CONFIG} is damaged ({odd[0]}); convert again.")
