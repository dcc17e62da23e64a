"""Folders of real data, where they are at hand."""

import os
from pathlib import Path

import pytest


def data_folder(name):
    """The folder of that name below MLPOLY_DATA; a test that asks for one that is not there is skipped."""
    folder = Path(os.environ.get("MLPOLY_DATA", "missing")) / name
    if not folder.is_dir():
        pytest.skip(f"set MLPOLY_DATA to a folder that holds {name}/")
    return folder
