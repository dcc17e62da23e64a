"""What a study of a language model found: the records that its tables and its report are made from."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from mlpoly.lm.evaluate.losses import Loss
from mlpoly.lm.reading.attribution import Attribution
from mlpoly.lm.reading.token_features import BlockFeature, LayerSpectrum

__all__ = ["FitRow", "LmResults", "Loss"]


@dataclass(frozen=True)
class FitRow:
    """One polynomial against its block.

    Attributes
    ----------
    layer : str
    degree : int
    closed_form : float
        FVU under the inputs that it was fitted under, from weights and moments alone; NaN if unknown.
    held_out : float
        FVU on inputs from text that the moments have not seen, as the polynomial is used: with the bound, if there is
        one. NaN if unknown, as are the following.
    unbounded : float
        The same without the bound.
    typical : float
        Median over tokens of |f - p|^2 / |f|^2, with the bound.
    beyond : float
        Share of preactivations beyond the bound, where the neurons are straight lines.
    """

    layer: str
    degree: int
    closed_form: float
    held_out: float
    unbounded: float = math.nan
    typical: float = math.nan
    beyond: float = math.nan


@dataclass
class LmResults:
    """What a study of a language model found.

    Attributes
    ----------
    about : dict
        "version", "command", "config", "model", "data", "machine", "seconds" (by stage).
    fits, losses, spectra, features : list
    attribution : Attribution or None
    """

    about: dict[str, Any] = field(default_factory=dict)
    fits: list[FitRow] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    spectra: list[LayerSpectrum] = field(default_factory=list)
    features: list[BlockFeature] = field(default_factory=list)
    attribution: Attribution | None = None
