"""A language model with polynomials for blocks: stories260K, in less than a minute on two cores.

    python examples/stories.py [FOLDER] [--pictures docs/images]

FOLDER holds stories260K, a Llama of 260 thousand parameters trained on children's stories, as a checkpoint of
transformers, with the token ids of some stories (tokens.npy, 256 x 256) and the texts of its tokens (vocab.json). By
default it is looked for in MLPOLY_DATA/stories260K, and where ``mlpoly data download stories260K`` puts it.

Only the mean and covariance of the inputs of each of its five SwiGLU blocks are taken from the text. They and the
weights give the cubics that are closest to the blocks in mean square. These take the blocks' places, and the model
continues to tell stories. With --pictures, the results are drawn as plot-NAME.png.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from mlpoly.lm import (
    attribute,
    block_features,
    block_forms,
    block_spectra,
    collect,
    convert,
    evaluate,
    graft,
    load_model,
    read_features,
)
from mlpoly.lm.text.tokens import vocabulary
from mlpoly.studies.paper.images import searched_folders


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
    places = searched_folders("stories260K")  # of MLPOLY_DATA, and what `mlpoly data download` made
    default = next((place for place in places if place.is_dir()), places[0])
    parser.add_argument("folder", nargs="?", type=Path, default=default, help=f"default: {default}")
    parser.add_argument("--pictures", type=Path, help="folder for pictures of the results")
    options = parser.parse_args()
    folder = options.folder
    missing = [name for name in ("config.json", "tokens.npy", "vocab.json") if not (folder / name).is_file()]
    if missing:
        raise SystemExit(f"{folder} has no {missing[0]}; get it with `mlpoly data download stories260K`, see --help")

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
    evaluation = evaluate(model, cubic, held_out)
    print(evaluation)

    name = list(cubic.polynomials)[2]
    features = block_features(cubic.polynomials[name], model, name, k=3, inputs=moments.gaussian(name))
    readings = read_features(model, features, held_out, tokenizer=words)
    for reading in readings:
        print(f"\n{reading}")

    found = attribute(model, cubic, ids[-1, :12], tokenizer=words, centred=True)
    print("\nwhat each degree adds to the logit of the next token, all blocks together:")
    for read, goal, parts in zip(found.tokens, found.target_tokens, found.parts.sum(0), strict=True):
        print(f"  {read!r:>12} -> {goal!r:<12}" + "".join(f"{part:9.2f}" for part in parts))
    print(f"\n{time.perf_counter() - began:.0f} seconds")
    if options.pictures:
        made = {"conversion": cubic, "evaluation": evaluation, "reading": readings, "attribution": found}
        made |= {"block-spectra": block_spectra(model, moments), "block-forms": block_forms(cubic, moments)}
        for name, result in made.items():
            path = options.pictures / f"plot-{name}.png"
            result.plot().savefig(path, dpi=75, metadata={"Software": None})
            print(path)


if __name__ == "__main__":
    main()
