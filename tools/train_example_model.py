"""Train the language model that is shipped with the package: minutes on two cores.

    python tools/train_example_model.py [FOLDER] [--measure]

It is a Llama of 0.2 million parameters with SwiGLU blocks, trained on the language of `mlpoly.lm.example.language`. The
script prints its loss on new sentences beside that of a bigram model and the entropy of the source, and how often the
word that follows from others is the likeliest one. FOLDER is by default the one in the package.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from mlpoly.lm import load_model
from mlpoly.lm.example.language import WORDS, sentences

LENGTH, BATCH, STEPS, RATE = 64, 64, 6_000, 3e-3
SIZES = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4}
KINDS = ("agreement", "negation", "sum", "brackets")
FOLDER = Path(__file__).parents[1] / "src" / "mlpoly" / "lm" / "example" / "mlpoly-example"


def tokenizer() -> transformers.PreTrainedTokenizerFast:
    """A token for each word with the space before it; a text starts with <s>."""
    ids = {word: i for i, word in enumerate(("<s>", "<unk>", *(f"▁{word}" for word in WORDS)))}
    inner = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    spaces = pre_tokenizers.Metaspace(prepend_scheme="always")
    inner.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), spaces])
    inner.decoder = decoders.Metaspace(prepend_scheme="always")
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", unk_token="<unk>")


def rows(n: int, seed: int, ids: dict[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Token ids, nats and kinds (n, LENGTH); every row starts with <s> and then a sentence."""
    drawn = sentences(n * LENGTH // 5, seed)
    made, row = [], [(0, 0.0, -1)]
    for sentence in drawn:
        kind = KINDS.index(sentence.kind)
        row += [(ids[w], nats, kind) for w, nats in zip(sentence.words, sentence.nats, strict=True)]
        if len(row) >= LENGTH:
            made.append(row[:LENGTH])
            row = [(0, 0.0, -1)]
            if len(made) == n:
                break
    table = np.array(made)
    return table[:, :, 0].astype(np.int64), table[:, :, 1], table[:, :, 2].astype(int)


def train(folder: Path) -> None:
    """Train a model, and save it with its tokenizer and the time that it took."""
    began = time.perf_counter()
    torch.manual_seed(0)
    words = tokenizer()
    ids = {token.removeprefix("▁"): i for token, i in words.get_vocab().items()}
    config = transformers.LlamaConfig(
        **SIZES, vocab_size=len(ids), max_position_embeddings=LENGTH, bos_token_id=0, eos_token_id=None,
        initializer_range=0.1, tie_word_embeddings=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    text = sentences(400_000, 0)
    stream = torch.tensor([ids[w] for s in text for w in s.words])
    # Words that are drawn at random count a tenth: their noise would drown what is to be learned. Whether a word is
    # drawn depends on the words before it alone, so the probabilities with the least loss are the same.
    weights = torch.tensor([0.1 if nats else 1.0 for s in text for nats in s.nats])
    starts = (stream[:-LENGTH] == ids["."]).nonzero()[:, 0] + 1
    starts = starts[starts < len(stream) - LENGTH]
    # Half of the rows start with a sentence, and half anywhere, as texts do that are cut into pieces of one length.
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=STEPS, pct_start=0.05)
    generator = torch.Generator().manual_seed(0)
    for step in range(STEPS):
        half = BATCH // 2
        at = starts[torch.randint(len(starts), (half,), generator=generator)]
        at = torch.cat([at, torch.randint(len(stream) - LENGTH, (half,), generator=generator)])
        places = at[:, None] + torch.arange(LENGTH - 1)
        batch = torch.cat([torch.zeros(BATCH, 1, dtype=torch.long), stream[places]], 1)
        nats = torch.nn.functional.cross_entropy(
            model(input_ids=batch).logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten(), reduction="none"
        )
        weight = weights[places].flatten()
        loss, learned = (weight * nats).sum() / weight.sum(), nats[weight == 1].mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 250 == 0 or step == STEPS - 1:
            losses = f"{nats.mean().item():.4f} nats, {learned.item():.4f} at words that follow"
            print(f"step {step}: {losses}, {time.perf_counter() - began:.0f} s", flush=True)
    model.save_pretrained(folder, safe_serialization=True)
    words.save_pretrained(folder)
    facts = {"training_seconds": round(time.perf_counter() - began)}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


def measure(folder: Path) -> dict[str, float]:
    """Loss of the saved model on new sentences beside two others, and how often it knows the word that follows."""
    model, words = load_model(folder)
    ids = {token.removeprefix("▁"): i for token, i in words.get_vocab().items()}
    batch, nats, kinds = rows(500, 2, ids)
    held = torch.from_numpy(batch)
    with torch.no_grad():
        logits = torch.cat([model(part).logits for part in held.split(50)])[:, :-1].log_softmax(-1)
    goal = held[:, 1:]
    own = -logits.gather(-1, goal[..., None])[..., 0].numpy()
    counts = torch.full((len(ids), len(ids)), 0.5)
    for row in rows(20_000, 0, ids)[0]:
        np.add.at(counts.numpy(), (row[:-1], row[1:]), 1)
    bigram = -(counts / counts.sum(1, keepdim=True)).log()[held[:, :-1], goal].numpy()
    facts = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss": float(own.mean()),
        "bigram": float(bigram.mean()),
        "entropy_of_the_source": float(nats[:, 1:].mean()),
    }
    # The word that follows, among all that its rule chooses from; a second noun may come before a copula.
    choices = {
        "copula": ("is", "are", "was", "were"),
        "answer": ("yes", "no"),
        "sum": tuple("0123456789"),
        "bracket": (")", "]", "}"),
    }
    rules = dict(zip(choices, (KINDS.index(k) for k in ("agreement", "negation", "sum", "brackets")), strict=True))
    for name, options in choices.items():
        among = torch.tensor([ids[word] for word in options])
        where = torch.isin(goal, among) & torch.from_numpy(kinds[:, 1:] == rules[name])
        if name == "sum":
            where &= held[:, :-1] == ids["="]
        likeliest = among[logits[..., among].argmax(-1)]
        facts[f"accuracy_{name}"] = float((likeliest == goal)[where].double().mean())
    return facts


def main() -> None:
    """Train unless told not to, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--measure", action="store_true", help="measure the model that the folder has")
    options = parser.parse_args()
    if not options.measure:
        train(options.folder)
    file = options.folder / "facts.json"
    facts = json.loads(file.read_text(encoding="utf-8")) | measure(options.folder)
    file.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    print(file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
