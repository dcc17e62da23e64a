"""Conversions on the Hugging Face hub: upload with a model card, and download of their files alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mlpoly.extras import library
from mlpoly.files import write_text
from mlpoly.tables import cell_text

if TYPE_CHECKING:
    from mlpoly.lm.conversion.conversion import Conversion

_FILES = ("*/cfg.json", "*/polynomial.safetensors")  # of a conversion; nothing else is downloaded or replaced
_PACKAGE = "huggingface_hub"

_COLUMNS = {  # of `BlockErrors`, with their headings in the card
    "block": "block",
    "degree": "degree",
    "closed_form": "FVU, closed form",
    "held_out": "FVU, held-out text",
    "typical": "median error of a token",
    "beyond": "beyond the bound",
}


def upload(
    conversion: Conversion, repo_id: str, private: bool | None, message: str, token: str | None, licence: str | None
) -> str:
    """Write a conversion and its card to a repository, which is made if it is missing; return the repository's URL."""
    hub = library(_PACKAGE, _PACKAGE, "push_to_hub")
    api = hub.HfApi(token=token)
    with TemporaryDirectory(prefix="mlpoly-") as scratch, _explained(repo_id):
        folder = conversion.save(scratch)
        write_text(folder / "README.md", model_card(conversion, repo_id, licence))
        made = api.create_repo(repo_id, private=private, exist_ok=True)
        # Blocks of an earlier conversion that this one lacks would make the repository one of two conversions.
        api.upload_folder(
            repo_id=repo_id, folder_path=str(folder), commit_message=message, delete_patterns=list(_FILES)
        )
    return str(made)


def download(repo_id: str, revision: str | None, token: str | None) -> Path:
    """Download the files of a conversion into the cache of the hub, unless they are there, and return their folder."""
    hub = library(_PACKAGE, _PACKAGE, "load_from_hub")
    with _explained(repo_id, revision):
        folder = Path(hub.snapshot_download(repo_id, revision=revision, token=token, allow_patterns=list(_FILES)))
    if not any(folder.glob(_FILES[0])):
        raise FileNotFoundError(
            f"the repository {repo_id} holds no conversion{_at(revision)}; write one with conversion.push_to_hub."
        )
    return folder


@contextmanager
def _explained(repo_id: str, revision: str | None = None) -> Iterator[None]:
    """Turn the errors of the hub's library into built-in ones that say what to do."""
    errors = library("huggingface_hub.errors", _PACKAGE, "the hub")
    login = "log in with `hf auth login`, or give token="
    try:
        yield
    except errors.RepositoryNotFoundError as error:  # what the hub says of private ones and wrong tokens, too
        raise FileNotFoundError(
            f"there is no repository {repo_id} that you can read; check the name, or if it is private {login}."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise FileNotFoundError(
            f"the repository {repo_id} has no revision {revision!r}; name a branch, tag or commit that it has."
        ) from error
    except errors.HfHubHTTPError as error:
        if getattr(error.response, "status_code", None) in (401, 403):
            raise PermissionError(f"the hub refuses access to {repo_id}; {login} of an account that has it.") from error
        raise OSError(f"the hub could not answer about {repo_id} ({error}); try again later.") from error
    except (ConnectionError, errors.LocalEntryNotFoundError, errors.HTTPError) as error:
        raise ConnectionError(
            f"the hub cannot be reached, and {repo_id}{_at(revision)} is not in its cache ({error}); check the "
            f"connection, HF_ENDPOINT and HF_HUB_OFFLINE."
        ) from error


def _at(revision: str | None) -> str:
    return "" if revision is None else f" at revision {revision}"


# -- the card ----------------------------------------------------------------------------------------------------------


def model_card(conversion: Conversion, repo_id: str, licence: str | None = None) -> str:
    """Return the README.md of a repository: what the polynomials replace, how good they are, and how to use them."""
    about = conversion.provenance
    model = str(about.get("model") or "the model")
    named = model.count("/") == 1  # a name on the hub; a folder has one part
    header: dict[str, Any] = {"library_name": "mlpoly", "tags": ["mlpoly", "polynomial", "interpretability"]}
    header |= {"license": licence} if licence else {}
    header |= {"base_model": model} if named else {}
    count = len(conversion.polynomials)
    facts = {
        "base model": f"[{model}](https://huggingface.co/{model})" if named else f"`{model}`",
        "its commit": about.get("commit"),
        "architecture": about.get("architecture"),
        "blocks": count,
        "degree": conversion.degree,
        "method": about.get("method"),
        "bound": conversion.bound and f"straight lines beyond {conversion.bound:g} standard deviations",
        "tokens of the moments": (about.get("moments") or {}).get("tokens"),
        "tokens held out": (about.get("held_out") or {}).get("tokens"),
        "mlpoly": (about.get("versions") or {}).get("mlpoly"),
    }
    rows = conversion.table()
    shown = [name for name in _COLUMNS if any(row[name] is not None for row in rows)]
    return "\n".join(
        [
            "---",
            # A JSON string or list is one of YAML too, whatever characters it holds.
            *(f"{name}: {json.dumps(value)}" for name, value in header.items()),
            "---",
            "",
            f"# Polynomials for the feedforward blocks of {model}",
            "",
            f"{'A polynomial' if count == 1 else f'{count} polynomials'} of degree {conversion.degree} in place of "
            "feedforward blocks, fitted by least squares with "
            "[mlpoly](https://mlpoly.github.io/mlpoly). The other weights are those of the base model, which is needed "
            "beside this repository. All files are safetensors and JSON; nothing in them is run.",
            "",
            "```python",
            "from mlpoly.lm import Conversion, graft, load_model",
            "",
            f"model, tokenizer = load_model({json.dumps(model)})",
            f"conversion = Conversion.load_from_hub({json.dumps(repo_id)}, like=next(model.parameters()))",
            "print(conversion)  # block by block",
            'tokens = tokenizer("Once upon a time", return_tensors="pt")',
            "with graft(model, conversion):",
            "    logits = model(**tokens).logits  # of the model with polynomials for blocks",
            "```",
            "",
            *_table(["", ""], [[name, value] for name, value in facts.items() if value is not None]),
            "",
            "FVU is the fraction of a block's variance that its polynomial leaves unexplained: under the moments that "
            "it was fitted under, and on held-out text as it is used. The median error of a token is "
            "\\|f - p\\|² / \\|f\\|².",
            "",
            *_table([_COLUMNS[name] for name in shown], [[row[name] for name in shown] for row in rows]),
            "",
        ]
    )


def _table(headings: list[str], rows: list[list[Any]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [headings, ["---"] * len(headings), *[[cell_text(value) for value in row] for row in rows]]
    return ["| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines]
