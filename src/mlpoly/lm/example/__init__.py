"""The language model that is shipped with the package, and the language that it was trained on."""

from pathlib import Path

EXAMPLE = Path(__file__).parent / "mlpoly-example"
"""Folder of the model and its tokenizer, by which studies call it; `tools/train_example_model.py` makes it."""
