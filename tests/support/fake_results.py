"""Invented results of a reproduction, as large as true ones: three seeds, steps to 2^14, 28 x 28 pixels."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
from scipy.ndimage import gaussian_filter, zoom

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
    Steering,
    TrainingPoint,
)

SEEDS = (0, 1, 2)
STEPS = (0, *(2**k for k in range(15)))
SHAPE = (28, 28)
CLASSES = 10
COLUMNS = 4  # eigenvectors of either sign
FITS = (
    (1, "mixture"),
    (2, "mixture"),
    (2, "paper"),
    (1, "gaussian"),
    (2, "gaussian"),
    (1, "standard"),
    (2, "standard"),
)


def fake_results(classes: list[str] | None = None, **parts) -> Results:
    """All parts of the results; keyword arguments replace some of them."""
    rng = np.random.default_rng(7)
    made = {
        "about": _about(classes),
        "training": tuple(_training(seed, step, rng) for seed in SEEDS for step in STEPS),
        "dynamics": tuple(_point(seed, step, *fit, rng) for seed in SEEDS for step in STEPS for fit in FITS),
        "spectra": tuple(
            _spectrum(seed, step, kind) for seed in SEEDS for step in STEPS for kind in ("gaussian", "mixture")
        ),
        "features": _features(rng),
        "attack": tuple(_attack(seed, step, rng) for step in (16384, 512) for seed in SEEDS),
        "claims": _claims(),
    }
    return Results(**{**made, **parts})


def _about(classes: list[str] | None) -> dict:
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


# -- curves ------------------------------------------------------------------------------------------------------------


def _rise(step: int, middle: float, width: float = 0.8) -> float:
    """From 0 to 1 around a step, on the scale of octaves."""
    return 1 / (1 + math.exp(-(math.log2(max(step, 0.5)) - math.log2(middle)) / width))


def _noise(rng: np.random.Generator, size: float = 0.05) -> float:
    return float(np.exp(size * rng.normal()))


def _training(seed: int, step: int, rng: np.random.Generator) -> TrainingPoint:
    learned = _rise(step, 150, 1.1)
    test = 0.1 + 0.88 * learned * min(_noise(rng, 0.004), 1.01)
    loss = 2.3 * (1 - learned) + 0.07 * _noise(rng)
    return TrainingPoint(
        seed, step, loss * (1 - 0.9 * _rise(step, 3000)), loss, min(test + 0.019 * _rise(step, 2500), 1.0), test
    )


def _level(degree: int, inputs: str, step: int) -> float:
    early = 1 - 0.6 * _rise(step, 60)
    if degree == 1:
        base = 0.02 * early + 0.06 * _rise(step, 900) + 0.004
    else:
        base = 0.004 * early + 0.0016 + 0.0012 * _rise(step, 6000)
    factor = {"mixture": 1.0, "paper": 1.14, "gaussian": 1.9, "standard": 4.0 + 30 * _rise(step, 4000)}[inputs]
    return base * factor


def _point(seed: int, step: int, degree: int, inputs: str, rng: np.random.Generator) -> Point:
    fvu = _level(degree, inputs, step) * _noise(rng, 0.08 if inputs == "paper" else 0.04)
    test = fvu * 1.3 * _noise(rng, 0.03)
    kl = 0.6 * fvu * _rise(step, 200) + 1e-5
    agreement = max(0.1, 1 - 0.8 * math.sqrt(fvu) * (0.3 + 0.7 * _rise(step, 300)))
    accuracy = 0.1 + (0.88 * agreement - 0.02) * _rise(step, 150, 1.1)
    return Point(
        seed=seed, step=step, degree=degree, inputs=inputs,
        fvu_own=math.nan if inputs == "paper" else 0.8 * fvu, fvu_mixture=fvu, fvu_flattened=0.93 * fvu,
        fvu_samples=fvu * (1 + 0.015 * rng.normal()), fvu_samples_error=0.015 * fvu,
        fvu_test=test, fvu_test_error=0.03 * test,
        kl_samples=kl, kl_samples_error=0.02 * kl, kl_test=1.2 * kl, kl_test_error=0.03 * kl,
        accuracy=accuracy, agreement=agreement,
        iterations={"paper": 200, "mixture": 9 * (degree - 1)}.get(inputs, 0), seconds=0.4 * degree,
    )  # fmt: skip


def _spectrum(seed: int, step: int, inputs: str) -> Spectrum:
    between = 0.35 * _rise(step, 100) if inputs == "mixture" else 0.0
    above = 0.02 + (0.1 + 0.004 * seed) * _rise(step, 900)
    parts = np.array([0.72, 0.16, 0.06, 0.03, 0.02, 0.01]) * above
    shares = (1 - between) * np.array([1 - above, *parts[:5]])
    return Spectrum(seed, step, inputs, tuple(shares.tolist()), float(1 - between - shares.sum()), between)


# -- images ------------------------------------------------------------------------------------------------------------


@cache
def digits() -> np.ndarray:
    """One image for each class, (10, 784): those of scikit-learn, enlarged."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    first = [images[labels == c][3].reshape(8, 8) / 16 for c in range(CLASSES)]
    return np.stack([np.pad(np.clip(zoom(image, 3, order=3), 0, 1), 2).ravel() for image in first])


def _pattern(label: int, step: int, rng: np.random.Generator, blur: float) -> np.ndarray:
    """A unit vector that turns from noise into something like a digit."""
    clear = _rise(step, 400)
    grain = gaussian_filter(rng.normal(size=SHAPE), 0.5).ravel()
    digit = gaussian_filter(digits()[label].reshape(SHAPE), blur).ravel()
    digit = digit - digit.mean()
    vector = clear * digit / np.linalg.norm(digit) + (1.05 - clear) * grain / np.linalg.norm(grain)
    return vector / np.linalg.norm(vector)


def _feature_step(step: int, label: int, rng: np.random.Generator) -> FeatureStep:
    size = 0.02 + 0.6 * _rise(step, 800)
    spectrum = np.sort(size * rng.normal(size=784) ** 3 / 15)[::-1]
    first, last = spectrum[:COLUMNS], spectrum[::-1][:COLUMNS]
    signs = rng.choice([-1.0, 1.0], size=2 * COLUMNS)
    others = [(label + 3 * i) % CLASSES for i in range(2 * COLUMNS)]
    vectors = np.stack(
        [s * _pattern(c, step, rng, 0.6 + 0.2 * i) for i, (s, c) in enumerate(zip(signs, others, strict=True))]
    )
    linear = size * (_pattern(label, step, rng, 1.4) - 0.6 * _pattern((label + 1) % CLASSES, step, rng, 1.4))
    return FeatureStep(step, label, first, last, vectors[:COLUMNS], vectors[COLUMNS:], linear, spectrum)


def _features(rng: np.random.Generator) -> Features:
    steps = tuple(_feature_step(step, label, rng) for step in STEPS for label in range(CLASSES))
    return Features(0, align(steps))


# -- attacks -----------------------------------------------------------------------------------------------------------


def _attack(seed: int, step: int, rng: np.random.Generator) -> Attack:
    falls = {"singular": (3.2, 0.9), "random": (60.0, 8.0), "pca": (9.5, 2.5)}
    ablations = []
    for kind, (middle, width) in falls.items():
        for k in range(11):
            kept = 0.1 + 0.88 / (1 + math.exp((k - middle) / width))
            accuracies = [kept * min(_noise(rng, 0.02), 1.02) * part for part in (1, 0.9, 0.99)]
            ablations.append(Ablation(seed, kind, k, *accuracies, step))
    steering = tuple(
        replace(_steering(seed, kind, s, rng), step=step)
        for kind in ("eigenvector", "noise", "random")
        for s in (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)
    )
    return Attack(tuple(ablations), steering, _pictures(rng), step)


def _steering(seed: int, kind: str, strength: float, rng: np.random.Generator) -> Steering:
    kept = 0.1 + 0.88 * math.exp(-((strength / (0.8 if kind == "eigenvector" else 1.6)) ** 2))
    accuracies = [kept * min(_noise(rng, 0.01), 1.02) * part for part in (1, 0.92, 0.99)]
    loss = 0.004 + (0.01 if kind == "eigenvector" else 0.12) * strength**2
    return Steering(seed, kind, strength, *accuracies, loss * _noise(rng), 0.4 * loss * _noise(rng))


def _pictures(rng: np.random.Generator) -> AttackPictures:
    masks = np.stack([gaussian_filter(rng.normal(size=SHAPE), 1.5).ravel() for _ in range(10)])
    basis = np.linalg.qr(masks.T)[0]
    ladder = [digits()[3] - basis[:, :k] @ (basis[:, :k].T @ digits()[3]) for k in range(11)]
    ablated = digits() - digits() @ basis @ basis.T
    choices = (8, 2, 3, 5, 9, 3, 0, 9, 8, 4)
    return AttackPictures(
        np.stack(ladder), 3, (3, 3, 3, 5, 5, 8, 8, 8, 2, 8, 8), digits(), ablated, tuple(range(10)), choices
    )


def _claims() -> tuple[Claim, ...]:
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
