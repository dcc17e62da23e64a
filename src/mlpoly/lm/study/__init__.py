"""A whole study of one language model: moments, polynomials, what they cost, what they say, and a report."""

from mlpoly.lm.study.config import LmConfig
from mlpoly.lm.study.run import study_lm

__all__ = ["LmConfig", "study_lm"]
