"""Provenance of a polynomial."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """Provenance of a fitted polynomial, kept in its file.

    Attributes
    ----------
    activation : str
        Activation of the network; empty if unknown.
    method : str
        Which optimum it is, for example "least squares under a Gaussian"; empty for a polynomial made by arithmetic.
    inputs : str
        Fingerprint of the distribution it was fitted under; empty if unknown.
    """

    activation: str = ""
    method: str = ""
    inputs: str = ""

    def __post_init__(self) -> None:
        if not all(isinstance(text, str) for text in (self.activation, self.method, self.inputs)):
            raise TypeError(
                f"a source is made of three texts, got {self.activation!r}, {self.method!r}, {self.inputs!r}."
            )

    def __str__(self) -> str:
        return ", ".join(part for part in (self.activation, self.method) if part) or "of unknown source"
