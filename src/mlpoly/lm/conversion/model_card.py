"""The README.md of a conversion on the Hugging Face hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlpoly.extras import library
from mlpoly.tables import cell_text

if TYPE_CHECKING:
    from mlpoly.lm.conversion.conversion import Conversion

_COLUMNS = {  # of `BlockErrors`, with their headings in the card
    "block": "block",
    "degree": "degree",
    "closed_form": "FVU, closed form",
    "held_out": "FVU, held-out text",
    "typical": "median error of a token",
    "beyond": "beyond the bound",
}

_CARD = """\
---
{header}
---

# Polynomials for the feedforward blocks of {model}

{polynomials} of degree {degree} in place of feedforward blocks, fitted by least squares with
[mlpoly](https://mlpoly.github.io/mlpoly). The other weights are those of the base model, which is needed beside this
repository. All files are safetensors and JSON; nothing in them is run.

```python
from mlpoly.lm import Conversion, graft, load_model

model, tokenizer = load_model({model!r})
conversion = Conversion.load_from_hub({repo_id!r}, like=next(model.parameters()))
print(conversion)  # block by block
tokens = tokenizer("Once upon a time", return_tensors="pt")
with graft(model, conversion):
    logits = model(**tokens).logits  # of the model with polynomials for blocks
```

{facts}

FVU is the fraction of a block's variance that its polynomial leaves unexplained: under the moments that it was fitted
under, and on held-out text as it is used. The median error of a token is \\|f - p\\|² / \\|f\\|².

{errors}
"""


def model_card(conversion: Conversion, repo_id: str, licence: str | None = None) -> str:
    """Return the README.md of a repository: what the polynomials replace, how good they are, and how to use them."""
    about = conversion.provenance
    model, count = str(about.get("model") or "the model"), len(conversion.polynomials)
    on_hub = model.count("/") == 1  # the name of a folder has one part
    header = library("huggingface_hub", "huggingface_hub", "model_card").ModelCardData(
        library_name="mlpoly",
        tags=["mlpoly", "polynomial", "interpretability"],
        license=licence,
        base_model=model if on_hub else None,
    )
    facts = {
        "base model": f"[{model}](https://huggingface.co/{model})" if on_hub else f"`{model}`",
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
    return _CARD.format(
        header=header.to_yaml(),
        model=model,
        repo_id=repo_id,
        polynomials="A polynomial" if count == 1 else f"{count} polynomials",
        degree=conversion.degree,
        facts=_table(["", ""], [[name, value] for name, value in facts.items() if value is not None]),
        errors=_table([_COLUMNS[name] for name in shown], [[row[name] for name in shown] for row in rows]),
    )


def _table(headings: list[str], rows: list[list[Any]]) -> str:
    """A table in Markdown."""
    lines = [headings, ["---"] * len(headings), *[[cell_text(value) for value in row] for row in rows]]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)
