"""A language model with polynomials for blocks: the model of this package, in seconds on two cores.

    python examples/language_model.py [--pictures docs/images]

The model is a Llama of 0.2 million parameters that was trained on a small language whose rules are known
(`mlpoly.lm.example_text`). Only the mean and covariance of the inputs of each of its SwiGLU blocks are taken from text.
They and the weights give the cubics that are closest to the blocks in mean square. These take the blocks' places, and
the model still answers as before. With --pictures, the results are drawn as plot-NAME.png.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from mlpoly.lm import (
    attribute,
    block_features,
    block_spectra,
    collect,
    convert,
    evaluate,
    example_text,
    graft,
    load_model,
    read_features,
    token_batches,
)

PROMPTS = ("3 + 9 =", "it is false that dogs are not old ?", "yesterday the trees near the king")


def answers(model: torch.nn.Module, tokenizer: Any) -> str:
    """Return the prompts, each with its likeliest next word."""
    said = []
    for prompt in PROMPTS:
        with torch.no_grad():
            ids = torch.tensor([tokenizer.encode(prompt)])
            said.append(f"{prompt} *{tokenizer.decode(model(ids).logits[0, -1].argmax())}*")
    return "   ".join(said)


def main() -> None:
    """Collect, convert, graft, evaluate, read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, help="folder for pictures of the results")
    options = parser.parse_args()

    began = time.perf_counter()
    model, tokenizer = load_model()
    batches = list(token_batches(tokenizer, example_text(), length=64))
    train, held_out = batches[:-8], batches[-8:]

    moments = collect(model, train)
    print(moments)
    cubic = convert(model, moments, degree=3, held_out=held_out)
    print(cubic)

    print("\nas it is:  ", answers(model, tokenizer))
    with graft(model, cubic):
        print("as cubics: ", answers(model, tokenizer))
    evaluation = evaluate(model, cubic, held_out)
    print(evaluation)

    name = list(cubic.polynomials)[-1]
    features = block_features(cubic.polynomials[name], model, name, k=3, inputs=moments.gaussian(name))
    readings = read_features(model, features, held_out, tokenizer=tokenizer)
    for reading in readings:
        print(f"\n{reading}")

    found = attribute(model, cubic, held_out[0][0, :12], tokenizer=tokenizer, centred=True)
    print("\nwhat each degree adds to the logit of the next token, all blocks together:")
    for read, goal, parts in zip(found.tokens, found.target_tokens, found.parts.sum(0), strict=True):
        print(f"  {read!r:>12} -> {goal!r:<12}" + "".join(f"{part:9.2f}" for part in parts))
    print(f"\n{time.perf_counter() - began:.0f} seconds")
    if options.pictures:
        made = {"conversion": cubic, "evaluation": evaluation, "reading": readings, "attribution": found}
        made |= {"block-spectra": block_spectra(model, moments)}
        for name, result in made.items():
            path = options.pictures / f"plot-{name}.png"
            result.plot().savefig(path, dpi=75, metadata={"Software": None})
            print(path)


if __name__ == "__main__":
    main()
