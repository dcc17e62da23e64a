"""Every feedforward block of stories260K as a polynomial: what `benchmarks.smollm2` does, on a model for two cores.

Moments from 20 480 tokens of its own stories, evaluated on 16 384 others. Needs MLPOLY_DATA/stories260K.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import Skip, save
from benchmarks.smollm2 import BOUND, cases, compare


def opened(tiny: bool) -> tuple[Any, list[Any], list[Any]]:
    """Return the model, and tokens to fit to and to evaluate on."""
    from mlpoly.lm import load_model

    folder = Path(os.environ.get("MLPOLY_DATA", ""), "stories260K")
    if not folder.is_dir():
        raise Skip("it needs MLPOLY_DATA with stories260K")
    model, _ = load_model(folder)
    ids = torch.from_numpy(np.load(folder / "tokens.npy").astype(np.int64))
    train, held_out = (4, 2) if tiny else (80, 64)  # sequences of 256 tokens
    return model, list(ids[:train].split(16)), list(ids[-held_out:].split(16))


def main(tiny: bool = False) -> None:
    """Run at one bound; others tell little about a model without massive activations."""
    model, train, held_out = opened(tiny)
    chosen = [c for c in cases(train) if "beyond" not in c.title or f"beyond {BOUND:g} " in c.title]
    save("stories", compare(model, train, held_out, chosen))


if __name__ == "__main__":
    main()
