"""What a release says about itself agrees."""

import re
from pathlib import Path

import yaml

from mlpoly import __version__

ROOT = Path(__file__).parent.parent


def test_version_date_and_paper_agree() -> None:
    read = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("CITATION.cff", "CHANGELOG.md")}
    citation, page = yaml.safe_load(read["CITATION.cff"]), (ROOT / "docs" / "citing.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", read["CHANGELOG.md"], re.M)
    assert releases[:2] == [("Unreleased", ""), (__version__, str(citation["date-released"]))]
    assert citation["version"] == __version__ and f"version = {{{__version__}}}" in page
    assert f"year    = {{{citation['date-released'].year}}}" in page
    assert citation["title"] in page and citation["repository-code"] in page
    (paper,) = citation["references"]
    assert f"eprint        = {{{paper['url'].rpartition('/')[2]}}}" in page
