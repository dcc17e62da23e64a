"""A deep classifier of MNIST as one quadratic, and layer by layer as a polynomial of high degree.

    python examples/deep_mnist.py [--data-dir FOLDER] [--hidden 256] [--layers 3] [--steps 3000] [--out out]

Trains a ReLU network with three hidden layers, finds the closest linear and quadratic map of the whole network and the
polynomials that replace it layer by layer, from its weights and the mean and covariance of the images, and prints how
much of its variance each leaves unexplained, under that Gaussian and on test images. What the quadratic reads in the
images is drawn into ``deep_mnist.png``. Needs the MNIST files (see --data-dir) and a few minutes on two cores.
"""

import argparse
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

import mlpoly as mp
from mlpoly.charts import eigenfeature_gallery
from mlpoly.datasets import Images, load_images
from mlpoly.scores import accuracy_of_outputs


def train(images: Images, hidden: int, layers: int, steps: int, seed: int = 0) -> nn.Sequential:
    """A ReLU network trained with Adam, whose rate falls to zero."""
    torch.manual_seed(seed)
    x, y = torch.tensor(images.train, dtype=torch.float32), torch.tensor(images.train_labels)
    sizes = [x.shape[1], *[hidden] * layers]
    parts = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    net = nn.Sequential(*parts, nn.Linear(hidden, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    for step in range(steps):
        batch = torch.randint(len(x), (128,))
        loss = nn.functional.cross_entropy(net(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 500 == 0:
            print(f"  step {step:5d}  loss {loss.item():.3f}")
    return net.double()


def main() -> None:
    """Train, fit, compare, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="folder with the four IDX files; default: MLPOLY_DATA/mnist or the cache")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    options = parser.parse_args()

    try:
        images = load_images("mnist", options.data_dir)
    except FileNotFoundError as error:
        raise SystemExit(str(error)) from None
    print("training")
    net = mp.from_torch(train(images, options.hidden, options.layers, options.steps).requires_grad_(False))
    test, labels = torch.tensor(images.test), images.test_labels
    inputs = mp.Gaussian.from_samples(torch.tensor(images.train))
    samples = inputs.sample(20_000, seed=1)
    print(net, *mp.propagate(net, inputs), sep="\n  ")

    fits = {
        "linear": lambda: mp.fit(net, inputs, 1),
        "quadratic": lambda: mp.fit(net, inputs, 2),
        "quadratic, sampled": lambda: mp.fit(net, inputs, 2, method="sampled"),
        "composed, degree 3, with lines": lambda: mp.fit(net, inputs, 3, method=mp.methods.Composed(0)).bounded(3.0),
        "composed, degree 5, with lines": lambda: mp.fit(net, inputs, 5, method=mp.methods.Composed(0)).bounded(3.0),
        "composed, degree 5, guarded": lambda: mp.fit(net, inputs, 5, method="composed"),
    }
    print(f"{'polynomial':32s} {'FVU, Gaussian':>13s} {'FVU, test':>10s} {'accuracy':>9s} {'seconds':>8s}")
    print(f"{'(the network itself)':32s} {'':13s} {'':10s} {float(accuracy_of_outputs(net(test), labels)):9.1%}")
    found = {}
    for label, work in fits.items():
        began = time.perf_counter()
        poly = found[label] = work()
        took = time.perf_counter() - began
        hits = float(accuracy_of_outputs(poly(test), labels))
        unexplained = [float(mp.fvu(net, poly, x).total) for x in (samples, test)]
        print(f"{label:32s} {unexplained[0]:13.4f} {unexplained[1]:10.4f} {hits:9.1%} {took:8.2f}")
    print(found["quadratic"].report, found["quadratic, sampled"].report, sep="\n")

    # Ranked by their variance under the Gaussian: in the metric of pixels, noise where images hardly vary comes first.
    features = {f"digit {c}": mp.eigenfeatures(found["quadratic"], c, k=40, metric="whitened") for c in (0, 3, 5, 8)}
    options.out.mkdir(parents=True, exist_ok=True)
    eigenfeature_gallery(features, (28, 28)).plot().savefig(options.out / "deep_mnist.png", dpi=100)
    print("wrote", options.out / "deep_mnist.png")


if __name__ == "__main__":
    main()
