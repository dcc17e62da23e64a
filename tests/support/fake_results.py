"""Invented results of a reproduction, as large as true ones: three seeds, steps to 2^14, 28 x 28 pixels."""

import math

import numpy as np

from mlpoly.studies.paper.class_features import align
from mlpoly.studies.paper.results import (
    Ablation,
    Attack,
    AttackPictures,
    Claim,
    Features,
    FeatureStep,
    Point,
    Results,
    Spectrum,
    TrainingPoint,
)

SEEDS = (0, 1, 2)
STEPS = (0, *(2**k for k in range(15)))
SHAPE = (28, 28)
CLASSES = 10
COLUMNS = 4  # eigenvectors of either sign
FITS = ((1, "mixture"), (2, "mixture"), (2, "paper"), *((k, name) for name in ("gaussian", "standard") for k in (1, 2)))


def fake_results(classes=None, **parts):
    """All parts of the results; keyword arguments replace some of them."""
    rng = np.random.default_rng(7)
    grid = [(seed, step) for seed in SEEDS for step in STEPS]
    spectra = tuple(_spectrum(*at, inputs, rng) for at in grid for inputs in ("gaussian", "mixture"))
    made = {
        "about": _about(classes),
        "training": tuple(TrainingPoint(*at, *rng.uniform(0.1, 0.9, 4).tolist()) for at in grid),
        "dynamics": tuple(_point(*at, *fit, rng) for at in grid for fit in FITS),
        "spectra": spectra,
        "features": Features(0, align([_feature_step(step, c, rng) for step in STEPS for c in range(CLASSES)])),
        "attack": tuple(_attack(seed, step, rng) for step in (16384, 512) for seed in SEEDS),
        "claims": _claims(),
    }
    return Results(**{**made, **parts})


def _about(classes):
    return {
        "version": "0.2.0",
        "command": "python -m mlpoly.studies.paper --data mnist --out out/paper --seeds 3 --steps 16384",
        "config": {
            "train": {"hidden": 256, "activation": "relu", "gated": False, "steps": 16384, "batch_size": 64,
                      "learning_rate": 1e-3, "weight_decay": 0.1, "warmup": 1000},
            "fits": {"shrinkage": 0.01, "samples": 20000, "tolerance": 1e-3, "max_degree": 6, "paper_steps": 200},
            "seeds": [0, 1, 2],
        },
        "data": {"name": "MNIST", "train": 60000, "test": 10000, "image_shape": list(SHAPE),
                 "classes": classes or [str(c) for c in range(CLASSES)]},
        "machine": {"processor": "16 cores", "accelerator": "one GPU", "python": "3.11.9", "numpy": "2.4.6"},
        "seconds": {"training": 312.4, "dynamics": 188.0, "features": 21.7, "attack": 9.3, "figures": 6.1},
    }  # fmt: skip


def _point(seed, step, degree, inputs, rng):
    fvu, kl = (rng.uniform(0.5, 1, 2) * (0.1, 0.01) / degree).tolist()
    return Point(
        seed=seed, step=step, degree=degree, inputs=inputs,
        fvu_own=math.nan if inputs == "paper" else 0.8 * fvu, fvu_mixture=fvu, fvu_flattened=0.93 * fvu,
        fvu_samples=fvu * float(1 + 0.015 * rng.normal()), fvu_samples_error=0.015 * fvu,
        fvu_test=1.3 * fvu, fvu_test_error=0.03 * fvu,
        kl_samples=kl, kl_samples_error=0.02 * kl, kl_test=1.2 * kl, kl_test_error=0.03 * kl,
        accuracy=0.97 - fvu, agreement=1 - fvu, iterations={"paper": 200, "mixture": 9 * (degree - 1)}.get(inputs, 0),
        seconds=0.4 * degree,
    )  # fmt: skip


def _spectrum(seed, step, inputs, rng):
    between = 0.35 if inputs == "mixture" else 0.0
    *shares, rest = ((1 - between) * rng.dirichlet([50, 9, 4, 2, 1, 1, 1])).tolist()
    return Spectrum(seed, step, inputs, tuple(shares), rest, between)


def _feature_step(step, label, rng):
    spectrum = np.sort(rng.normal(size=math.prod(SHAPE)) ** 3)[::-1]
    vectors = rng.normal(size=(2 * COLUMNS, math.prod(SHAPE)))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ends = spectrum[:COLUMNS], spectrum[::-1][:COLUMNS]
    return FeatureStep(step, label, *ends, vectors[:COLUMNS], vectors[COLUMNS:], rng.normal(size=784), spectrum)


def _attack(seed, step, rng):
    kinds = ("singular", "random", "pca")
    ablations = [Ablation(seed, kind, k, *rng.uniform(0.1, 1, 3).tolist(), step) for kind in kinds for k in range(11)]
    images = rng.uniform(-0.2, 1, size=(11 + 2 * CLASSES, math.prod(SHAPE)))
    choices = (3, 3, 3, 5, 5, 8, 8, 8, 2, 8, 8), (8, 2, 3, 5, 9, 3, 0, 9, 8, 4)
    digits, ablated = images[11 : 11 + CLASSES], images[11 + CLASSES :]
    pictures = AttackPictures(images[:11], 3, choices[0], digits, ablated, tuple(range(CLASSES)), choices[1])
    return Attack(tuple(ablations), pictures, step)


def _claims():
    rows = (
        ("Early simplification", "In the first few hundred steps the FVU of both polynomials falls (section 4.2).",
         "Linear: from 0.024 at step 0 to 0.013 at step 128; quadratic: from 0.0056 to 0.0035, in all 3 seeds.",
         True, "fvu"),
        ("A quadratic phase", "From 500 to 4 000 steps the linear FVU rises sharply, while the quadratic one is nearly "
         "constant (section 4.2).",
         "The linear FVU grows by a factor of 4.1 to 4.4 between steps 256 and 4 096, the quadratic one by 1.1 to 1.3.",
         True, "fvu"),
        ("No early fall in KL", "The KL divergence does not fall in the first steps (figure 3).",
         "KL of the linear map rises from the start in all 3 seeds.", True, "kl"),
        ("Features look like digits", "Features are easiest to interpret from step 4 096 to 16 384 (section 4.3).",
         "Their overlap with class means peaks at step 8 192; the overfitting of longer runs is out of reach.",
         None, "features"),
        ("Lockstep", "Network and polynomials lose accuracy together without singular directions (section 4.4).",
         "The largest gap between network and quadratic is 2.1 points, between network and linear 9.0 points.",
         True, "attack"),
        ("Chance after ten", "Without all ten directions the network is at chance (figure 5).",
         "It still gets 14 to 17 % of the images right, where chance is 10 %.", False, "attack"),
    )  # fmt: skip
    return tuple(Claim(*row) for row in rows)
