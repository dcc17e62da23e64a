"""The polynomials of a model's blocks with their errors, in memory and on disk."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mlpoly.charts.chart import Part, Ranking, shortened
from mlpoly.codec import from_plain, to_plain
from mlpoly.errors import FileFormatError
from mlpoly.files import make_folder, read_json, write_json
from mlpoly.measures import fvu
from mlpoly.networks import Layer
from mlpoly.polynomials import BoundedPolynomial, Polynomial, load
from mlpoly.scores import ErrorSums
from mlpoly.tables import Plottable, Table, Tabular

_FORMAT, _VERSION = "mlpoly-conversion", 3
_CONFIG, _POLYNOMIAL = "cfg.json", "polynomial.safetensors"


@dataclass(frozen=True)
class BlockErrors:
    """Errors of the polynomial of one block; None where an error was not measured, or is not finite."""

    block: str
    degree: int
    # Fraction of the block's variance left unexplained: by the best polynomial of this degree, without lines, under the
    # Gaussian or mixture of the fit; by the polynomial with its lines on the block's inputs in the intact model, on
    # held-out text; and there by the best polynomial without lines.
    closed_form: float | None = None
    held_out: float | None = None
    held_out_unbounded: float | None = None
    # Median over held-out tokens of |f - p|^2 / |f|^2, with the bound. In some blocks a few tokens with massive
    # activations are nearly all of the variance; this is the error of the others.
    typical: float | None = None
    beyond: float | None = None  # fraction of the preactivations of held-out tokens that lie beyond the bound
    seconds: float = 0.0  # for the fit, without the pass over the data


def closed_form_error(net: Layer, poly: Polynomial) -> float | None:
    """Return the fraction of variance unexplained under the inputs of the fit; None if an output is constant."""
    try:
        return _finite(fvu(net, poly).total)
    except ValueError:
        return None


class HeldOutErrors:
    """Errors over a stream of inputs: of all tokens, of each relative to its output, and how many pass the bound."""

    def __init__(self, net: Layer, poly: Polynomial, plain: Polynomial) -> None:
        self._net, self._poly, self._without = net, poly, plain
        self._bounded, self._plain = ErrorSums(standard_error=False), ErrorSums(standard_error=False)
        self._beyond: Any = 0.0
        self._relative: list[Tensor] = []

    def add(self, x: Tensor) -> None:
        """Take inputs (n, d)."""
        x, poly = x.to(self._net.prototype.dtype), self._poly
        f = self._net(x).double()
        plain = p = self._without(x).double()
        if isinstance(poly, BoundedPolynomial):
            p = poly(x).double()
            t = poly.units.standardise(poly.forms_at(x)[0])
            self._beyond = self._beyond + (t.abs() > poly.bounds).double().mean(1).sum()
        self._bounded.update(f, p)
        self._plain.update(f, plain)
        self._relative.append(((f - p) ** 2).sum(1) / (f**2).sum(1))

    def result(self) -> dict[str, float | None]:
        """Return the fields of `BlockErrors` that were measured; none for an expert that got no token."""
        if not self._relative:
            return {}
        relative = torch.cat(self._relative)
        return {
            "held_out": _finite(self._bounded.total),
            "held_out_unbounded": _finite(self._plain.total),
            "typical": _finite(relative.median()),
            "beyond": float(self._beyond) / len(relative) if isinstance(self._poly, BoundedPolynomial) else None,
        }


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True, eq=False, repr=False)
class Conversion(Tabular, Plottable):
    """Polynomials for the blocks of a model, for `mlpoly.lm.graft` and `mlpoly.lm.evaluate`.

    Attributes
    ----------
    polynomials : mapping of str to Polynomial
        Polynomials by the names of their blocks, in the model's order.
    errors : mapping of str to BlockErrors
    provenance : dict
        Method, degree and options, model, data and versions, as JSON can hold them.
    unbounded : mapping of str to Polynomial
        The polynomials without straight lines beyond a bound, where their errors were measured; not saved.
    """

    polynomials: Mapping[str, Polynomial]
    errors: Mapping[str, BlockErrors]
    provenance: dict[str, Any] = field(default_factory=dict)
    unbounded: Mapping[str, Polynomial] = field(default_factory=dict)

    @property
    def degree(self) -> int:
        """The highest degree among the polynomials."""
        return max((poly.degree for poly in self.polynomials.values()), default=0)

    @property
    def bound(self) -> float | str | None:
        """Standard deviations beyond which neurons are straight lines, None for polynomials everywhere, or "auto"."""
        return self.provenance.get("bound")

    def table(self) -> list[dict[str, Any]]:
        """Return one row per block, with its errors."""
        return [asdict(self.errors[name]) for name in self.polynomials]

    def _table(self) -> Table:
        return Table.of(self.table())

    def chart(self) -> Ranking:  # type: ignore[override]
        """Bars of the blocks' fractions of variance unexplained, on held-out text or else in closed form."""
        measured = any(e.held_out is not None for e in self.errors.values())
        found = {e.block: e.held_out if measured else e.closed_form for e in self.errors.values()}
        parts = [Part(shortened(name), error, f"{error:.2g}") for name, error in found.items() if error is not None]
        title = f"Fraction of variance unexplained, {'held-out text' if measured else 'closed form'}"
        return Ranking(parts, title, title, colour="blue")

    def __repr__(self) -> str:
        bound = "" if self.bound is None else f", bound={self.bound if self.bound == 'auto' else f'{self.bound:g}'}"
        method, count = self.provenance.get("method", ""), len(self.polynomials)
        return f"Conversion({count} {'block' if count == 1 else 'blocks'}, degree={self.degree}, {method}{bound})"

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write ``<block>/cfg.json`` and ``<block>/polynomial.safetensors`` for every block; return the folder."""
        places = [_subfolder(name) for name in self.polynomials]  # all of them before anything is written
        target = make_folder(folder)
        shared: dict[str, Any] = {"method": self.provenance.get("method")}
        for number, (name, poly) in enumerate(self.polynomials.items()):
            place = make_folder(target / places[number])
            poly.save(place / _POLYNOMIAL)
            shared |= {"d_in": poly.dim_in, "d_out": poly.dim_out, "provenance": self.provenance}
            shared["bound"] = float(poly.bounds.min()) if isinstance(poly, BoundedPolynomial) else None
            config = _BlockConfig(block=name, number=number, errors=self.errors[name], **shared)
            write_json(place / _CONFIG, to_plain(config))
        return target

    @classmethod
    def load(cls, folder: str | PathLike[str], like: Tensor | None = None) -> "Conversion":
        """Read what `save` wrote, on the CPU and in its dtype, or on the device and in the dtype of `like`."""
        source = Path(folder)
        blocks: list[tuple[_BlockConfig, Path]] = []
        for path, cfg in _configs(source):
            if (version := cfg.get("version")) != _VERSION:
                raise FileFormatError(
                    f"{path} has version {version!r:.40} of the format, not {_VERSION}; convert again."
                )
            try:
                config = from_plain(_BlockConfig, cfg)
                _subfolder(config.block)
            except ValueError as error:
                raise FileFormatError(f"{path} is damaged ({error}); convert again.") from None
            bounded = config.bound is None or config.bound > 0
            if not bounded or config.errors.block != config.block or to_plain(config) != cfg:
                raise FileFormatError(f"{path} is damaged (an entry is out of its range, or unknown); convert again.")
            blocks.append((config, path.parent))
        blocks.sort(key=lambda block: block[0].number)
        if not blocks:
            raise FileNotFoundError(f"no conversion in {source}; make one with mlpoly.lm.convert(...).save(folder).")
        polynomials: dict[str, Polynomial] = {}
        for config, place in blocks:
            try:
                poly = polynomials[config.block] = load(place / _POLYNOMIAL, library="torch", like=like)
            except FileNotFoundError as error:
                raise FileFormatError(f"the conversion in {source} is damaged ({error}); convert again.") from None
            if (poly.dim_in, poly.dim_out) != (config.d_in, config.d_out):
                raise FileFormatError(f"the polynomial in {place} is not of the block's size; convert again.")
        provenance = blocks[0][0].provenance
        if any(config.provenance != provenance for config, _ in blocks):
            raise FileFormatError(f"{source} holds blocks of several conversions; save each in a folder of its own.")
        return cls(polynomials, {config.block: config.errors for config, _ in blocks}, provenance)


@dataclass(frozen=True, kw_only=True)
class _BlockConfig:
    """The cfg.json of one block."""

    format: str = _FORMAT
    version: int = _VERSION
    block: str
    number: int  # in the model's order
    bound: float | None
    method: str | None
    d_in: int
    d_out: int
    errors: BlockErrors
    provenance: dict[str, Any]


def discard(folder: Path) -> None:
    """Delete a conversion, if there is one in the folder; other files stay."""
    for path, _ in _configs(folder):
        path.with_name(_POLYNOMIAL).unlink(missing_ok=True)
        path.unlink()


def _configs(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Every cfg.json of a conversion in the folder, with its contents."""
    found = [(path, read_json(path)) for path in sorted(folder.glob(f"*/{_CONFIG}"))]
    return [(path, cfg) for path, cfg in found if isinstance(cfg, dict) and cfg.get("format") == _FORMAT]


def _subfolder(block: str) -> str:
    """Name of a block's folder. Names of blocks come from files too, and none may lead out of the conversion's."""
    if block in (".", "..") or any(character in block for character in "/\\:"):
        raise ValueError(f"the name of the block {block!r:.80} is a path; use one without / \\ or :.")
    return block or "_"
