"""Certified bounds beside attained values and data: two pictures and the numbers of the page on certificates.

    python examples/certificates.py docs/images

- certificates: the error of a cubic for a classifier of handwritten digits, over all images within 0.1 of one of them,
  and over all images; the circuit of the page on encrypted inference.
- certificates-growth: bounds of random networks over attained values, and their time, by width, depth and box.

With MNIST in MLPOLY_DATA it also certifies a network with 784 inputs. It takes some minutes on one core.
"""

import itertools
import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from torch import nn

import mlpoly as mp
from mlpoly.certificates import Certificate
from mlpoly.datasets.images import load_images

SECONDS = 10.0


def train(module: nn.Module, x: np.ndarray, y: np.ndarray, steps: int, batch: int | None, rate: float) -> mp.Chain:
    """A classifier in float64, trained by Adam on batches or on all rows."""
    rows, labels = torch.tensor(x, dtype=torch.float32), torch.tensor(y).long()
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    for _ in range(steps):
        chosen = slice(None) if batch is None else torch.randint(len(rows), (batch,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(rows[chosen]), labels[chosen]).backward()
        optimizer.step()
    return mp.from_torch(module.double().requires_grad_(False)).to(np.zeros(1))


def compare(name: str, net: mp.MLP, poly: mp.Polynomial, x: np.ndarray, radius: float) -> Certificate:
    """Certify the error of a polynomial around an image, and print it beside that of the network itself."""
    low, high = np.clip(x - radius, 0, 1), np.clip(x + radius, 0, 1)
    error, outputs = (
        mp.certify(net, low, high, against=poly, seconds=SECONDS),
        mp.certify(net, low, high, seconds=SECONDS),
    )
    print(f"{name}, radius {radius:g}: error at most {error.largest:.3g}, attained {error.attained:.3g}", end="; ")
    print(f"outputs at most {outputs.largest:.4g}, attained {outputs.attained:.4g}", flush=True)
    return error


def digits(folder: Path) -> None:
    """The picture of bound, attained values and data, and the encrypted circuit."""
    images = load_digits()
    x, y = images.data / 16.0, images.target
    torch.manual_seed(0)
    net = train(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), x[:1500], y[:1500], 300, None, 3e-3)
    poly = mp.fit(net, mp.Gaussian.from_samples(x[:1500]), 3)
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    for axis, radius in zip(axes, (0.1, 1.0), strict=True):
        found = compare("digits, 64-128-10", net, poly, x[1500], radius)
        near = np.clip(x[1500] + np.random.default_rng(0).uniform(-radius, radius, (5000, 64)), 0, 1)
        rows = x if radius == 1.0 else near
        what = "all images" if radius == 1.0 else "all images within 0.1 of a test image"
        found.plot(axis, values=net(rows) - poly(rows), title=f"network - cubic, {what}")
    figure.savefig(folder / "certificates.png", dpi=110)

    torch.manual_seed(0)
    layers = nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 10)
    deep = train(nn.Sequential(*layers), x[:1500], y[:1500], 200, None, 3e-3)
    inputs = mp.Gaussian.from_samples(x[:1500])
    circuit = mp.he.plan(deep, inputs, levels=7).polynomial.to_he(samples=x[:1500])
    print(mp.he.bound(circuit, 0.0, 1.0), mp.he.bound(circuit, inputs=inputs, radius=6.0), sep="\n", flush=True)


def mnist() -> None:
    """A network with 784 inputs."""
    try:
        images = load_images("mnist")
    except (FileNotFoundError, ValueError) as error:
        print(f"without MNIST: {error}")
        return
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    net = train(module, images.train, images.train_labels, 1400, 128, 1e-3)
    poly = mp.fit(net, mp.Gaussian.from_samples(images.train.astype(float)), 3)
    for radius in (0.01, 0.1, 1.0):
        compare("MNIST, 784-128-10", net, poly, images.test[0].astype(float), radius)


def random_network(width: int, depth: int, inputs: int = 16) -> mp.Chain:
    """Hidden layers of one width with weights of variance 2 / inputs, as ReLU networks start."""
    rng = np.random.default_rng(width + 1000 * depth)
    sizes = [inputs, *[width] * depth]
    layers = [
        mp.MLP(rng.normal(size=(h, d)) * (2 / d) ** 0.5, 0.1 * rng.normal(size=h)) for d, h in itertools.pairwise(sizes)
    ]
    return mp.Chain([*layers, mp.Affine(rng.normal(size=(2, width)) / width**0.5)])


def growth(folder: Path) -> None:
    """Widths of the certified over the attained range, and seconds of the first bounds, by width, depth and box."""
    figure, axes = plt.subplots(2, 3, figsize=(11, 5.6), layout="constrained", sharex="col", sharey="row")
    cases = [
        ("width (2 hidden layers, box ±0.5)", [(w, 2, 0.5) for w in (8, 16, 32, 64, 128)], 0),
        ("depth (32 units, box ±0.5)", [(32, k, 0.5) for k in (1, 2, 3, 4, 6)], 1),
        ("half side of the box (32 units, 2 layers)", [(32, 2, r) for r in (0.01, 0.05, 0.2, 1.0, 5.0)], 2),
    ]
    for (above, below), (label, rows, which) in zip(axes.T, cases, strict=True):
        first, last, taken = [], [], []
        for width, depth, radius in rows:
            net = random_network(width, depth)
            start, found = (mp.certify(net, -radius, radius, seconds=seconds) for seconds in (0.0, SECONDS))
            range_ = found.highest - found.lowest
            first.append(float(np.mean((start.high - start.low) / range_)))
            last.append(float(np.mean((found.high - found.low) / range_)))
            taken.append(start.seconds)
            row = f"ratio {first[-1]:.3g} in {taken[-1]:.2g} s, {last[-1]:.3g} in {SECONDS:g} s"
            print(f"width {width}, depth {depth}, radius {radius:g}: {row}", flush=True)
        places = [row[which] for row in rows]
        above.plot(places, first, "o--", label="first bounds")
        above.plot(places, last, "o-", label=f"{SECONDS:g} seconds")
        below.plot(places, taken, "o--")
        below.set(xlabel=label, ylim=(0, None), xscale="linear" if which == 1 else "log")
        above.set(yscale="log")
        for axis in (above, below):
            axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("certified range / attained range")
    axes[1, 0].set_ylabel("seconds of the first bounds")
    axes[0, 0].legend()
    figure.savefig(folder / "certificates-growth.png", dpi=110)


def main() -> None:
    """Draw both pictures into a folder, and print the numbers."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    digits(folder)
    mnist()
    growth(folder)


if __name__ == "__main__":
    main()
