"""The shipped language model: its language is what it says, its weights are small, and it has learned the rules."""

import json
from itertools import product

import numpy as np
import torch

from mlpoly.lm import block_features, collect, convert, evaluate, example_text, graft, load_model, token_batches
from mlpoly.lm.example import EXAMPLE
from mlpoly.lm.example.language import WORDS, sentences
from mlpoly.lm.model.loading import describe_model

PLURALS = ("dogs", "cats", "trees", "birds", "children", "kings")


def obeys(kind, words):
    """Whether a sentence keeps the rule of its kind, read off the words alone."""
    if kind == "sum":
        return (int(words[0]) + int(words[2])) % 10 == int(words[4])
    if kind == "negation":
        return words[-2] == ("yes" if (words[2] == "true") != ("not" in words) else "no")
    if kind == "agreement":
        copula = {("today", False): "is", ("today", True): "are", ("yesterday", False): "was"}
        return words[-3] == copula.get((words[0], words[2] in PLURALS), "were")
    text = "".join(words[:-1])
    while any(pair in text for pair in ("()", "[]", "{}")):
        text = text.replace("()", "").replace("[]", "").replace("{}", "")
    return text == ""


def test_sentences_obey_their_rules():
    drawn = sentences(2_000, seed=5)
    assert all(obeys(s.kind, s.words) for s in drawn)
    assert {w for s in drawn for w in s.words} == set(WORDS)
    assert len({s.kind for s in drawn}) == 4


def test_the_folder_is_small_and_its_facts_are_of_this_model():
    assert sum(path.stat().st_size for path in EXAMPLE.iterdir()) < 1.5e6
    facts = json.loads((EXAMPLE / "facts.json").read_text(encoding="utf-8"))
    model, tokenizer = load_model()
    assert facts["parameters"] == sum(p.numel() for p in model.parameters())
    assert len(tokenizer) == len(WORDS) + 2 == model.config.vocab_size
    assert facts["entropy_of_the_source"] < facts["loss"] < facts["bigram"]
    assert describe_model(model)["model"] == "mlpoly-example"  # which titles of reports begin with


def next_word(prompt, model, tokenizer):
    with torch.no_grad():
        return tokenizer.decode(model(torch.tensor([tokenizer.encode(prompt)])).logits[0, -1].argmax())


def test_the_answer_is_the_product_of_two_signs_also_with_cubics():
    model, tokenizer = load_model()
    batches = list(token_batches(tokenizer, example_text(2_000), length=64))
    cubic = convert(model, collect(model, batches[:-2]), 3, bound=3.0, closed_form=False)
    right = {"model": 0, "cubics": 0}
    cases = [(t, n, p) for t, n, p in product(("true", "false"), ("", "not "), PLURALS)]
    for truth, negated, noun in cases:
        prompt = f"it is {truth} that {noun} are {negated}old ?"
        expected = "yes" if (truth == "true") != bool(negated) else "no"
        right["model"] += next_word(prompt, model, tokenizer) == expected
        with graft(model, cubic):
            right["cubics"] += next_word(prompt, model, tokenizer) == expected
    assert right["model"] == len(cases)
    assert right["cubics"] >= 0.75 * len(cases)  # a constant answer is right in half of them
    losses = evaluate(model, cubic, batches[-2:], baselines=("linear",), calibration=batches[:4])
    assert losses.increase < losses.rows[-1].cross_entropy - losses.rows[0].cross_entropy


def test_the_first_block_multiplies_the_two_signs():
    """Its features towards the answer follow one sign or the other; the next block reads their product."""
    model, tokenizer = load_model()
    batches = list(token_batches(tokenizer, example_text(2_000), length=64))
    moments = collect(model, batches, "model.layers.[01].mlp")
    made = convert(model, moments, 3, bound=3.0, closed_form=False)
    yes_no = tuple(tokenizer.convert_tokens_to_ids(["▁yes", "▁no"]))
    cases = [(t, n, p) for t, n, p in product((1, -1), (1, -1), PLURALS)]
    strongest = []
    for name, poly in made.polynomials.items():
        features = block_features(poly, model, name, "token", 4, difference=yes_no, inputs=moments.gaussian(name))
        seen = []
        hook = model.get_submodule(name).register_forward_pre_hook(
            lambda _, args, seen=seen: seen.append(args[0][0, -1])
        )
        with torch.no_grad():
            for truth, sign, noun in cases:
                prompt = f"it is {'true' if truth > 0 else 'false'} that {noun} are {'' if sign > 0 else 'not '}old ?"
                model(torch.tensor([tokenizer.encode(prompt)]))
        hook.remove()
        values = features.values(torch.stack(seen)).double().numpy()
        signs = np.array([(t, n, t * n) for t, n, _ in cases], dtype=float)
        strongest.append(np.abs(np.corrcoef(values.T, signs.T)[:4, 4:]).max(0))
    first, second = strongest
    # The three signs are orthogonal over these cases, so that squared correlations of one feature add up to 1 at most:
    # above 0.9 it follows one sign, and below 0.5 less than a quarter of its variance follows.
    assert min(first[0], first[1]) > 0.9 and first[2] < 0.5
    assert second[2] > 0.9
