"""The fit the paper calls intractable: the exact quadratic of an MNIST classifier under ten class Gaussians.

    python examples/mnist_mixture.py [--data-dir FOLDER] [--hidden 256] [--steps 2000]

Trains a one-hidden-layer ReLU network, fits polynomials under N(0, I), N(mean, cov) and the mixture of the ten classes,
and prints how much of the network's variance each leaves unexplained, on samples of the mixture and on test images.
Needs the MNIST files (see --data-dir) and about two minutes on two cores.
"""

import argparse
import time

import schedulefree
import torch
from torch import nn

import mlpoly as mp
from mlpoly.datasets import Images, load_images


def train(images: Images, hidden: int, steps: int, seed: int = 0) -> nn.Sequential:
    """A ReLU network trained with schedule-free AdamW, as in the paper."""
    torch.manual_seed(seed)
    x, y = torch.tensor(images.train, dtype=torch.float32), torch.tensor(images.train_labels)
    net = nn.Sequential(nn.Linear(x.shape[1], hidden), nn.ReLU(), nn.Linear(hidden, 10))
    optimizer = schedulefree.AdamWScheduleFree(net.parameters(), lr=1e-3, warmup_steps=1000, weight_decay=0.1)
    optimizer.train()
    for step in range(steps):
        batch = torch.randint(len(x), (64,))
        loss = nn.functional.cross_entropy(net(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 500 == 0:
            print(f"  step {step:5d}  loss {loss.item():.3f}")
    optimizer.eval()
    return net.double()


def main() -> None:
    """Train, fit, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="folder with the four IDX files; default: MLPOLY_DATA/mnist or the cache")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()

    try:
        images = load_images("mnist", options.data_dir)
    except FileNotFoundError as error:
        raise SystemExit(str(error)) from None
    print("training")
    net = mp.from_torch(train(images, options.hidden, options.steps).requires_grad_(False))
    x, test = torch.tensor(images.train), torch.tensor(images.test)
    mixture = mp.GaussianMixture.from_labels(x, images.train_labels)
    # Class covariances are singular: pixels that never vary in training do on test images, where the exact optimum
    # under the bare mixture is then unbounded. One per cent of shrinkage holds it there, at little cost.
    shrunk = mp.GaussianMixture.from_labels(x, images.train_labels, shrinkage=0.01)
    whole = mp.Gaussian.from_samples(x)
    samples = mixture.sample(20_000, seed=1)

    print(f"{'polynomial':34s} {'FVU, mixture':>12s} {'FVU, test':>12s} {'accuracy':>9s} {'seconds':>8s}")
    for label, inputs, degree in (
        ("linear under the mixture", mixture, 1),
        ("quadratic under N(0, I)", mp.Gaussian.standard(x.shape[1]), 2),
        ("quadratic under N(mean, cov)", whole, 2),
        ("quadratic under the mixture", mixture, 2),
        ("the same, shrinkage 0.01", shrunk, 2),
    ):
        began = time.perf_counter()
        poly = mp.fit(net, inputs, degree)
        took = time.perf_counter() - began
        hits = (poly(test).argmax(1) == torch.tensor(images.test_labels)).double().mean()
        unexplained = [float(mp.fvu(net, poly, s).total) for s in (samples, test)]
        print(f"{label:34s} {unexplained[0]:12.4f} {unexplained[1]:12.4f} {hits:9.1%} {took:8.2f}")
    print(poly.report)


if __name__ == "__main__":
    main()
