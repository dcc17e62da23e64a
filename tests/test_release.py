"""What a release says about itself agrees, and the workflows run nothing that can change under them."""

import re
from pathlib import Path
from typing import Any

import pytest

from mlpoly import __version__

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_version_date_and_paper_agree() -> None:
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["version"] == __version__
    releases = re.findall(r"^## (\S+)(?: \((.+)\))?$", read("CHANGELOG.md"), re.M)
    assert releases[0] == ("Unreleased", "")
    assert releases[1] == (__version__, str(citation["date-released"]))
    page = read("docs/citing.md")
    assert f"version = {{{__version__}}}" in page
    assert f"year    = {{{citation['date-released'].year}}}" in page
    assert citation["title"] in page and citation["repository-code"] in page
    (paper,) = citation["references"]
    assert paper["title"] == "Converting MLPs into Polynomials in Closed Form"
    assert f"eprint        = {{{paper['url'].rpartition('/')[2]}}}" in page


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_rights_are_few(path: Path) -> None:
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 60
        assert {n for n in _list(job.get("needs"))} <= set(workflow["jobs"])
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
        rights = job.get("permissions", {})
        assert "id-token" not in rights or name in ("publish", "deploy")
        assert not (rights and any("checkout" in step.get("uses", "") for step in job["steps"]))


def test_only_a_tag_publishes_and_only_what_was_tried() -> None:
    workflow = yaml.safe_load(read(".github/workflows/release.yml"))
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 takes the word "on" for a boolean
    publish = workflow["jobs"]["publish"]
    assert set(publish["needs"]) == {"try", "test"} and workflow["jobs"]["try"]["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"} and publish["environment"]["name"] == "pypi"
    assert [step["uses"].partition("@")[0] for step in publish["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]


def _list(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)
