"""The polynomials of a model's blocks with their errors, in memory and on disk."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from mlpoly.errors import FileFormatError
from mlpoly.files import make_folder, read_json, write_json
from mlpoly.lm.convert.block_errors import BlockErrors, unbounded
from mlpoly.lm.tables import plain_table
from mlpoly.polynomials import Polynomial, load

__all__ = ["Conversion"]

_FORMAT, _VERSION = "mlpoly-conversion", 3
_CONFIG, _POLYNOMIAL = "cfg.json", "polynomial.safetensors"


@dataclass(frozen=True, eq=False, repr=False)
class Conversion:
    """Polynomials for the blocks of a model, for `mlpoly.lm.graft` and `mlpoly.lm.evaluate`.

    Attributes
    ----------
    polynomials : mapping of str to Polynomial
        Polynomials by the names of their blocks, in the model's order.
    errors : mapping of str to BlockErrors
        Errors of each of them.
    provenance : dict
        Method, degree and options, model, data and versions, as JSON can hold them.
    """

    polynomials: Mapping[str, Polynomial]
    errors: Mapping[str, BlockErrors]
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
        """Return the same polynomials without their bounds."""
        polynomials = {name: unbounded(poly) for name, poly in self.polynomials.items()}
        return replace(self, polynomials=polynomials, provenance={**self.provenance, "bound": None})

    def table(self) -> list[dict[str, Any]]:
        """Return one row per block, with its errors."""
        return [asdict(self.errors[name]) for name in self.polynomials]

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
            Folder, made if it is missing. Other files in it stay.

        Returns
        -------
        Path
            The folder.
        """
        target = make_folder(folder)
        for number, (name, poly) in enumerate(self.polynomials.items()):
            place = make_folder(target / (name or "_"))
            poly.save(place / _POLYNOMIAL)
            config = {
                "format": _FORMAT,
                "version": _VERSION,
                "block": name,
                "number": number,
                "bound": self.bound,
                "method": self.provenance.get("method"),
                "d_in": poly.dim_in,
                "d_out": poly.dim_out,
                "errors": asdict(self.errors[name]),
                "provenance": self.provenance,
            }
            write_json(place / _CONFIG, config)
        return target

    @classmethod
    def load(cls, folder: str | PathLike[str], like: Tensor | None = None) -> Conversion:
        """Read what `save` wrote.

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
            If a file is damaged, or of an older version of the format.
        """
        source = Path(folder)
        found = [(path.parent, read_json(path)) for path in sorted(source.glob(f"*/{_CONFIG}"))]
        ours = [(place, cfg) for place, cfg in found if isinstance(cfg, dict) and cfg.get("format") == _FORMAT]
        if not ours:
            raise FileNotFoundError(f"no conversion in {source}; make one with mlpoly.lm.convert(...).save(folder).")
        try:
            for place, cfg in ours:
                _check_config(place / _CONFIG, cfg)
            ours.sort(key=lambda item: item[1]["number"])
            errors = {cfg["block"]: BlockErrors(**cfg["errors"]) for _, cfg in ours}
            polynomials = {c["block"]: load(place / _POLYNOMIAL, library="torch", like=like) for place, c in ours}
        except (KeyError, TypeError, AttributeError, FileNotFoundError) as error:
            raise FileFormatError(f"the conversion in {source} is damaged ({error}); convert again.") from None
        for place, cfg in ours:
            poly = polynomials[cfg["block"]]
            if (poly.dim_in, poly.dim_out) != (cfg.get("d_in"), cfg.get("d_out")):
                raise FileFormatError(f"the polynomial in {place} is not of the block's size; convert again.")
        provenance = ours[0][1]["provenance"]
        if any(cfg["provenance"] != provenance for _, cfg in ours):
            raise FileFormatError(f"{source} holds blocks of several conversions; save each in a folder of its own.")
        return cls(polynomials, errors, provenance)


def _check_config(path: Path, cfg: dict[str, Any]) -> None:
    """Raise unless a cfg.json is of this version, and its entries are what they should be."""
    if cfg.get("version") != _VERSION:
        raise FileFormatError(
            f"{path} has version {cfg.get('version')!r:.40} of the format, this library reads {_VERSION}; convert "
            f"again."
        )
    name, bound, errors = cfg["block"], cfg["bound"], dict(cfg["errors"])
    good = {
        "block": isinstance(name, str) and errors.pop("block") == name,
        "number": type(cfg["number"]) is int,
        "degree": type(errors["degree"]) is int,
        "errors": all(v is None or type(v) in (int, float) for v in errors.values()),
        "bound": bound is None or (type(bound) in (int, float) and 0 < bound <= sys.float_info.max),
        "provenance": isinstance(cfg["provenance"], dict),
    }
    if odd := [name for name, fine in good.items() if not fine]:
        raise FileFormatError(f"{path} is damaged ({odd[0]}); convert again.")
