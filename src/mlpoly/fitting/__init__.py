"""How: from a network and a distribution to its closest polynomial."""

from mlpoly.fitting.fit import fit

__all__ = ["fit"]
