"""Hidden units under a Gaussian: means, spreads, gate slopes, Hermite series, inner products."""

from mlpoly.units.inner_products import Angles, angle_count, angles
from mlpoly.units.series import Series, decay, energies, terms, terms_between
from mlpoly.units.units import Gate, Units

__all__ = ["Angles", "Gate", "Series", "Units", "angle_count", "angles", "decay", "energies", "terms", "terms_between"]
