"""Polynomial chaos of a network under uniform inputs: error by degree, density of the output, Sobol indices.

    python examples/ishigami.py docs/images

A tanh network that has learned Ishigami's function. Nothing but the density is sampled, and that from the polynomial.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

import mlpoly as mp
from mlpoly.charts import style

DEGREES = (2, 4, 6, 8, 10, 12)
CUBE = mp.Independent({name: stats.uniform(-np.pi, 2 * np.pi) for name in ("a", "b", "c")})


def network() -> mp.MLP:
    """256 tanh units with random directions; the readout is least squares on 4000 points."""
    rng, x = np.random.default_rng(0), CUBE.sample(4000, seed=1)
    y = np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])
    W1, b1 = 0.7 * rng.normal(size=(256, 3)), rng.uniform(-3, 3, size=256)
    W2 = np.linalg.lstsq(np.tanh(x @ W1.T + b1), y, rcond=1e-6)[0]
    return mp.MLP(W1, b1, W2[None, :], None, "tanh")


def main(folder: Path | None = None) -> None:
    net = network()
    polys = {degree: mp.fit(net, CUBE, degree) for degree in DEGREES}
    print("degree  terms  variance unexplained  on 1000 points")
    for degree, poly in polys.items():
        few = mp.fvu(net, poly, CUBE.sample(1000, seed=degree))
        print(f"{degree:6d}  {len(poly.exponents):5d}  {poly.report.fvu:20.5f}", end="")
        print(f"  {few.total:.5f} +- {few.standard_error:.5f}")
    print(mp.second_moment(polys[8], CUBE))
    found = mp.sensitivity(polys[8], CUBE, interactions=True)
    print(found)
    if folder is None:
        return
    figure = Figure(figsize=(style.WIDTH, 2.9), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1.2, 1))
    left.semilogy(DEGREES, [p.report.fvu for p in polys.values()], marker="o", color=style.INK)
    style.tidy(left, "degree", "", "variance unexplained")
    x = CUBE.sample(200_000, seed=3)
    edges = np.linspace(-15, 20, 141)
    middle.hist(net(x)[:, 0], edges, density=True, color=style.GUIDE, label="network")
    middle.hist(polys[8](x)[:, 0], edges, density=True, histtype="step", color=style.INK, label="degree 8")
    middle.set_yticks([])
    middle.legend(frameon=False, fontsize=style.SMALL)
    style.tidy(middle, "output", "", "density")
    places = np.arange(3)
    right.bar(places - 0.2, found.first[:, 0], 0.35, color=style.INK, label="first")
    right.bar(places + 0.2, found.total[:, 0], 0.35, color=style.GUIDE, label="total")
    right.set_xticks(places, found.groups)
    right.legend(frameon=False, fontsize=style.SMALL)
    style.tidy(right, "", "", "Sobol indices")
    figure.savefig(folder / "ishigami.png", dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
