"""The language model that is shipped with the package, and the language that it was trained on."""

from pathlib import Path

EXAMPLE = Path(__file__).parent / "model"
"""Folder of the model and its tokenizer; `tools/train_example_model.py` makes it."""
