"""Certificates: bounds that hold for every input of a region, beside values that are attained in it (MATH 15)."""

from mlpoly.certificates.certify import Certificate, certify
from mlpoly.certificates.classes import SameClass, same_class

__all__ = ["Certificate", "SameClass", "certify", "same_class"]
