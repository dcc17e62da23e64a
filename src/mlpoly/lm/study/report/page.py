"""The page: its sections in order, with the style and the script that they need."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from mlpoly.lm.study.lm_results import LmResults
from mlpoly.lm.study.report.features import features_section
from mlpoly.lm.study.report.fits import fits_section
from mlpoly.lm.study.report.losses import losses_section
from mlpoly.lm.study.report.prompt import prompt_section
from mlpoly.lm.study.report.spectra import spectra_section
from mlpoly.lm.study.report.summary import introduction
from mlpoly.page import Page, asset
from mlpoly.page.rerun import rerun_section

__all__ = ["write_lm_report"]

_FILES = ("results.json", "tables/*.csv", "moments/moments.safetensors")
_QUIET = "This page asks no network for anything."


def write_lm_report(results: LmResults, path: str | PathLike[str]) -> Path:
    """Write the report, one HTML file that opens without a network.

    Parameters
    ----------
    results : LmResults
        A section for which it holds nothing is left out.
    path : path
        Usually ``report.html`` in the folder of the results; files beside it are linked if they are there by then.

    Returns
    -------
    Path
        The file.
    """
    target = Path(path)
    made = f"mlpoly {results.about.get('version', '')}".strip()
    name = results.about.get("model", {}).get("model", "A language model")
    page = Page(f"{name} with polynomials for blocks", f"A study by {made}", f"Made by {made}. {_QUIET}")
    page.style, page.script = (asset("mlpoly.lm.study.report", file) for file in ("lm.css", "lm.js"))
    page.introduce(*introduction(results))
    if results.fits:
        fits_section(page, results.fits)
    if results.losses:
        losses_section(page, results)
    if results.spectra:
        spectra_section(page, results.spectra)
    if results.features:
        features_section(page, results.features)
    if results.attribution is not None:
        prompt_section(page, results.attribution)
    rerun_section(page, results.about, target.parent, _FILES)
    return page.write(target)
