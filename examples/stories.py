"""A language model with polynomials for blocks: stories260K, in less than a minute on two cores.

    python examples/stories.py [FOLDER]

FOLDER holds stories260K, a Llama of 260 thousand parameters trained on children's stories, as a checkpoint of
transformers, with the token ids of some stories (tokens.npy, 256 x 256) and the texts of its tokens (vocab.json). By
default it is looked for in MLPOLY_DATA/stories260K.

Only the mean and covariance of the inputs of each of its five SwiGLU blocks are taken from the text. They and the
weights give the cubics that are closest to the blocks in mean square. These take the blocks' places, and the model
continues to tell stories.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch

from mlpoly.lm import attribute, block_features, collect, convert, evaluate, graft, load_model, read_features
from mlpoly.lm.text.tokens import vocabulary


def story(model: torch.nn.Module, words: list[str], length: int = 60) -> str:
    """Return the story that the model tells when it always takes the likeliest token."""
    ids = torch.tensor([[1]])  # the beginning of a text
    with torch.no_grad():
        for _ in range(length):
            ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], 1)
    return "".join(words[i] for i in ids[0, 1:].tolist()).strip()


def main() -> None:
    """Collect, convert, graft, evaluate, read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("MLPOLY_DATA", "."), "stories260K")
    parser.add_argument("folder", nargs="?", type=Path, default=default, help="default: MLPOLY_DATA/stories260K")
    folder = parser.parse_args().folder
    missing = [name for name in ("config.json", "tokens.npy", "vocab.json") if not (folder / name).is_file()]
    if missing:
        raise SystemExit(f"{folder} has no {missing[0]}; name a folder with stories260K, see --help")

    began = time.perf_counter()
    model, _ = load_model(folder)
    words = vocabulary(folder)
    ids = torch.from_numpy(np.load(folder / "tokens.npy").astype(np.int64))
    train, held_out = list(ids[:96].split(8)), list(ids[-16:].split(8))

    moments = collect(model, train)
    print(moments)
    cubic = convert(model, moments, degree=3, held_out=held_out)
    print(cubic)

    print("\nas it is:   ", story(model, words))
    with graft(model, cubic):
        print("as cubics:  ", story(model, words))
    print(evaluate(model, cubic, held_out))

    name = list(cubic.polynomials)[2]
    features = block_features(cubic.polynomials[name], model, name, k=3, inputs=moments.gaussian(name))
    for reading in read_features(model, features, held_out, tokenizer=words):
        print(f"\n{reading}")

    found = attribute(model, cubic, ids[-1, :12], tokenizer=words, centred=True)
    print("\nwhat each degree adds to the logit of the next token, all blocks together:")
    for read, goal, parts in zip(found.tokens, found.target_tokens, found.parts.sum(0), strict=True):
        print(f"  {read!r:>12} -> {goal!r:<12}" + "".join(f"{part:9.2f}" for part in parts))
    print(f"\n{time.perf_counter() - began:.0f} seconds")


if __name__ == "__main__":
    main()
