"""Models of llama2.c: files written from models of transformers come back as they were."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support.data import data_folder
from support.llama2c_files import checkpoint_bytes, vocabulary_bytes
from support.tiny_models import VOCABULARY, llama

from mlpoly.datasets.llama2c import convert_llama2c, generate_tokens
from mlpoly.datasets.sources import _SOURCES
from mlpoly.lm import load_model

PIECES = [f"piece {i}".encode() for i in range(VOCABULARY - 1)] + ["é".encode()]


def test_a_model_comes_back_bit_for_bit(tmp_path: Path) -> None:
    model = llama(tie_word_embeddings=True, rms_norm_eps=1e-5)
    (tmp_path / "model.bin").write_bytes(checkpoint_bytes(model))
    (tmp_path / "tok.bin").write_bytes(vocabulary_bytes(PIECES))
    convert_llama2c(tmp_path / "model.bin", tmp_path / "tok.bin", tmp_path / "folder")
    read, _ = load_model(tmp_path / "folder")
    expected, found = model.state_dict(), read.state_dict()
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)
    ids = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        torch.testing.assert_close(read(ids).logits, model(ids).logits, atol=1e-6, rtol=1e-5)
    assert json.loads((tmp_path / "folder" / "vocab.json").read_text())[-2:] == ["piece 30", "é"]


@pytest.mark.data
def test_the_checksums_are_those_of_stories260k() -> None:
    """The files, made anew from the weights and texts that are here, have the checksums that a download must have."""
    folder = data_folder("stories260K")
    known = _SOURCES["stories260K"].checksums
    pieces = [piece.encode("latin-1") for piece in json.loads((folder / "vocab.json").read_text())]
    found = vocabulary_bytes(pieces)
    assert f"sha256:{hashlib.sha256(found).hexdigest()}" == known["tok512.bin"]
    content = checkpoint_bytes(load_model(folder)[0])
    assert len(content) == 1_056_540
    weights, cosines = (hashlib.sha256(part).hexdigest() for part in (content[:-16384], content[-16384:]))
    assert weights == "340685034718160b936c5502a60a6da5c636afa1c53db33cefd0476ba3731205"
    # The cosines and sines at its end, which nobody reads, may be rounded otherwise on another processor.
    if cosines == "19bcef3a6c283ddcae8701ab619fdf141ae71939ce13908eb896919f17c084d2":
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == known["stories260K.bin"]


def test_text_is_drawn_from_the_model() -> None:
    model = llama()
    before = torch.random.get_rng_state()
    tokens = generate_tokens(model, 4000, 3, start=1)
    assert torch.equal(torch.random.get_rng_state(), before)
    with torch.no_grad():
        p = model(torch.tensor([[1]])).logits[0, -1].softmax(-1).double().numpy()
    counts = np.bincount(tokens[:, 1], minlength=VOCABULARY)
    errors = (counts - 4000 * p) / np.sqrt(4000 * p * (1 - p))
    assert np.abs(errors).max() < 5 and tokens.shape == (4000, 3) and (tokens[:, 0] == 1).all()
