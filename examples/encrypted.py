"""From a trained torch network to an encrypted prediction.

    python examples/encrypted.py [--levels 7] [--images 8]

Trains a classifier of scikit-learn's handwritten digits with two hidden layers, lets `mlpoly.he.plan` choose the
degrees of its polynomials for a budget of levels, and evaluates them on encrypted images: the one who computes sees
neither the image nor the answer. No retraining. Needs ``pip install 'mlpoly[torch,sklearn,he]'`` and about a minute.
"""

import argparse
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import mlpoly as mp


def train(x: torch.Tensor, y: torch.Tensor) -> nn.Sequential:
    """A small classifier."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(400):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    return net.double().requires_grad_(False)


def main() -> None:
    """Train, plan, encrypt, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--levels", type=int, default=7, help="products that may follow one another (7)")
    parser.add_argument("--images", type=int, default=8, help="number of images to encrypt (8)")
    options = parser.parse_args()

    digits = load_digits()
    x, y = digits.data / 16.0, digits.target
    module = train(torch.tensor(x[:1500], dtype=torch.float32), torch.tensor(y[:1500]))
    net, inputs = mp.from_torch(module), mp.Gaussian.from_samples(torch.tensor(x[:1500]))

    plan = mp.he.plan(net, inputs, levels=options.levels)
    print(plan, "\n")
    circuit = plan.polynomial.to_he(samples=x[:1500], levels=options.levels)
    print(circuit, "\n")
    print(mp.he.range_report(circuit, x[1500:]), "\n")
    for name, values in (
        ("network", module(torch.tensor(x[1500:])).detach().numpy()),
        ("polynomial", circuit(x[1500:])),
    ):
        print(f"{name:10s} {np.mean(values.argmax(axis=1) == y[1500:]):.1%} of the test images right")

    session = mp.he.session(circuit)
    print(session)
    start = time.perf_counter()
    logits = session.predict(x[1500 : 1500 + options.images])
    seconds = time.perf_counter() - start
    plain = circuit(x[1500 : 1500 + options.images])
    print(f"encrypted: digits {logits.argmax(axis=1)}, labels {y[1500 : 1500 + options.images]}")
    print(f"largest difference from the plain polynomial {np.abs(logits - plain).max():.1e}; {seconds:.1f} s in all")


if __name__ == "__main__":
    main()
