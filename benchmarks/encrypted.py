"""Encrypted inference: polynomials in the place of activations, by degree and levels, and encrypted for real.

Three networks are trained on MNIST, which must be in a folder that MLPOLY_DATA names; with ``--tiny`` a small network
on scikit-learn's digits takes their place. Their activations are replaced without any retraining: by one polynomial per
layer (Chebyshev, minimax, least squares) or by one per neuron. All are made from the training images alone, each layer
for what enters it in the original network. Then circuits run on encrypted images, and degrees are planned for budgets
of levels.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

import mlpoly as mp
from benchmarks import common
from benchmarks.common import Skip, save, versions, write
from benchmarks.deep import trained
from benchmarks.interval_polynomials import OnePerLayer, interpolated, least_squares, minimax, projected, widened
from mlpoly import records
from mlpoly.charts import style
from mlpoly.datasets import Images, load_images
from mlpoly.he import UnitPolynomials, unit_polynomials
from mlpoly.he.circuit import depth_of_power
from mlpoly.networks import Network, layers_of

NETWORKS = {
    "GELU, 1 hidden layer": ("gelu", 1),
    "ReLU, 2 hidden layers": ("relu", 2),
    "ReLU, 3 hidden layers": ("relu", 3),
}
DEGREES = (2, 3, 4, 5, 7, 8)
ENCRYPTED = {1: (2, 4, 8), 2: (2, 4), 3: (2,)}  # degrees that run encrypted, by the number of hidden layers
LEVELS = 8  # at most with N = 16384
BUDGETS = {1: (), 2: (3, 4, 5, 6, 7, 8, 9), 3: (4, 5, 6, 7, 8, 9, 10)}
OURS = "one per neuron, closed form"
OUTSIDE = 1e-6  # probability of leaving the range that a polynomial per neuron allows for under its Gaussian
_FITTED = 4096  # training images whose preactivations a least-squares polynomial is fitted to
_SHIFTED = 1000  # images of each other kind
_IMAGES = 64  # test images that are encrypted

Weights = tuple[tuple[np.ndarray, np.ndarray], ...]
Contender = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # images to logits, and which images left a range


# -- networks and images -----------------------------------------------------------------------------------------------


def opened(tiny: bool) -> Images:
    """MNIST, or the digits."""
    try:
        return load_images("digits" if tiny else "mnist")
    except FileNotFoundError as error:
        raise Skip(f"there is {error}") from error


def network(images: Images, activation: str, layers: int, tiny: bool) -> tuple[Network, Weights]:
    """A trained network and its weights, from the file of an earlier run if there is one."""
    width, steps = (12, 600) if tiny else (128, 3000)
    path = common.FOLDER / "networks" / f"{images.name}-{activation}-{layers}x{width}-{steps}.npz"
    if not path.is_file():
        x, y = torch.tensor(images.train), torch.tensor(images.train_labels)
        hidden = layers_of(trained(x, y, activation, layers, width, steps).to(np.zeros(1)))
        pairs = [(layer.forms.directions, layer.forms.bias) for layer in hidden]
        pairs.append((hidden[-1].readout, hidden[-1].bias))
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, *(array for pair in pairs for array in pair))
    with np.load(path, allow_pickle=False) as stored:
        arrays = [stored[name] for name in stored.files]
    weights = tuple(zip(arrays[::2], arrays[1::2], strict=True))
    return mp.MLP.from_layers(weights, activation, layout="out_in"), weights


def shapes(count: int, side: int, mean: float) -> np.ndarray:
    """Textured ellipses, boxes, rings and trousers, (count, side^2), as bright on average as `mean`."""
    rng = np.random.default_rng(2)

    def draw(low: float, high: float) -> np.ndarray:
        return rng.uniform(low, high, (count, 1, 1))

    v, u = np.meshgrid(*[np.linspace(-1, 1, side)] * 2, indexing="ij")
    u, v = (u - draw(-0.15, 0.15)) / draw(0.6, 0.9), (v - draw(-0.15, 0.15)) / draw(0.6, 0.9)
    box, radius = np.maximum(np.abs(u), np.abs(v)) < 1, np.hypot(u, v)
    kinds = np.stack([radius < 1, box, (radius < 1) & (radius > 0.5), box & ((np.abs(u) > 0.25) | (v < -0.5))])
    outline = kinds[rng.integers(len(kinds), size=count), np.arange(count)]
    waves = np.sin(draw(2, 9) * u + draw(-6, 6)) * np.sin(draw(2, 9) * v + draw(-6, 6))
    made = (outline * (0.65 + 0.35 * waves)).reshape(count, -1)
    return np.minimum(made * mean / made.mean(1, keepdims=True), 1)


def image_sets(images: Images) -> dict[str, np.ndarray]:
    """The test images, and images unlike those of the training; all but the doubled ones in [0, 1]."""
    x = images.test[:_SHIFTED]
    noise = 0.2 * np.random.default_rng(1).standard_normal(x.shape)
    return {
        "test": images.test,
        "brighter": np.minimum(x + 0.2, 1),
        "doubled": 2 * x,
        "noisy": np.clip(x + noise, 0, 1),
        "shapes": shapes(len(x), images.shape[0], float(images.train.mean())),
    }


# -- contenders --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OnePerNeuron:
    """A composed polynomial, with the number of standard deviations up to which each layer's neurons are in range."""

    poly: mp.polynomials.ComposedPolynomial
    radii: tuple[float, ...] = ()

    @classmethod
    def of(cls, poly: mp.polynomials.ComposedPolynomial, train: np.ndarray) -> "OnePerNeuron":
        """With the ranges of `poly.to_he(samples=train)`: wide enough for a Gaussian, and for the training images."""
        units = sum(stage.units.size for stage in poly.stages)
        least = -NormalDist().inv_cdf(OUTSIDE / (2 * units))
        return cls(poly, tuple(max(least, float(np.abs(t).max())) for t, _ in cls(poly).steps(train)))

    def steps(self, x: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Standardised preactivations (n, h) and outputs of every stage."""
        for stage in self.poly.applied:
            y = stage.forms_at(x)[0]
            x = stage.read_out(stage.neurons(y))
            yield stage.units.standardise(y), x

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Outputs (n, o), and which rows (n,) of x left a range on the way."""
        outside, made = np.zeros(len(x), bool), x
        for radius, (t, behind) in zip(self.radii, self.steps(x), strict=True):
            outside, made = outside | ~(np.abs(t) <= radius).all(1), behind  # nan is outside as well
        return made, outside


def within_ranges(layers: UnitPolynomials) -> Contender:
    """Outputs (n, o), and which rows (n,) left a range on the way."""

    def contender(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        entering, outputs = layers.run(x)
        return outputs, ~np.all([np.all(np.abs(u) <= 1, axis=1) for u in entering], axis=0)  # nan is outside as well

    return contender


class Contenders:
    """All ways to replace the activations of a network by polynomials of a degree, from its training images."""

    def __init__(self, net: Network, weights: Weights, images: Images) -> None:
        self.net, self.weights, self.train = net, weights, images.train
        self.activation = layers_of(net)[0].activation
        self.gaussian = mp.Gaussian.from_samples(images.train)
        self.mixture = mp.GaussianMixture.from_labels(images.train, images.train_labels)
        self.seen: list[tuple[tuple[float, float], np.ndarray]] = []  # of each layer: interval, and some of the values
        x = self.train
        for weight, bias in weights[:-1]:
            y = x @ weight.T + bias
            self.seen.append(((float(y.min()), float(y.max())), y[:_FITTED].ravel()))
            x = self.activation.function(y)

    def __call__(self, degree: int) -> Iterator[tuple[str, Contender]]:
        """Names and contenders."""
        f, kinks = self.activation.function, self.activation.kinks
        ways = {
            "Chebyshev interpolation on [min, max]": lambda seen, _: interpolated(f, degree, seen),
            "the same, interval doubled": lambda seen, _: interpolated(f, degree, widened(seen, 2)),
            "Chebyshev series on [min, max]": lambda seen, _: projected(f, degree, seen),
            "minimax on [min, max]": lambda seen, _: minimax(f, degree, seen, kinks),
            "one least-squares polynomial per layer": lambda seen, values: least_squares(f, degree, seen, values),
        }
        for name, way in ways.items():
            yield name, OnePerLayer(self.weights, tuple(way(*seen) for seen in self.seen))
        ours = OnePerNeuron.of(self.fit(degree), self.train)
        yield "one per layer, closed form", within_ranges(unit_polynomials(ours.poly, shared=True, outside=OUTSIDE))
        yield OURS, ours
        if ours.poly.guarded is not None:
            yield "the same without a guard", replace(ours, poly=records.replace(ours.poly, guarded=None))
        mixed = mp.fit(self.net, self.mixture, degree, method="composed")
        yield "one per neuron, closed form, mixture of classes", OnePerNeuron.of(mixed, self.train)

    def fit(self, degree: int) -> mp.polynomials.ComposedPolynomial:
        """Ours: from the weights and two moments of the images."""
        return mp.fit(self.net, self.gaussian, degree, method="composed")


# -- what is measured --------------------------------------------------------------------------------------------------


def measured(contender: Contender, x: np.ndarray, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """How close a contender comes to the logits of the network, and to the labels."""
    with np.errstate(over="ignore", invalid="ignore"):
        made, outside = contender(x)
        error = made - logits
        classes = np.where(np.isfinite(made).all(1), made.argmax(1), -1)  # what is not a number is no class
        return {
            "accuracy": float((classes == labels[: len(x)]).mean()),
            "same class": float((classes == logits.argmax(1)).mean()),
            "FVU": float((error**2).sum() / ((logits - logits.mean(0)) ** 2).sum()),
            "largest error of a logit": float(np.abs(error).max()),
            "outside": int(outside.sum()),
            "images": len(x),
        }


def levels_of(degree: int, layers: int) -> int:
    """Levels of a network with the same degree in all layers: a matrix before and behind each, and powers."""
    return 1 + layers * (depth_of_power(degree) + 1)


def encrypted(poly: mp.polynomials.ComposedPolynomial, images: Images, count: int) -> dict[str, Any]:
    """The circuit on encrypted test images, beside the same circuit in float64; in processor time, on one core."""
    circuit = poly.to_he(OUTSIDE, samples=images.train)
    outside = mp.he.range_report(circuit, images.test[:count]).outside
    session = mp.he.session(circuit)
    session.predict(images.test[: session.rows], check=False)  # encodes the matrices
    began = time.process_time()
    found = session.predict(images.test[:count], check=False)
    took = time.process_time() - began
    plain = circuit(images.test[:count])
    return {
        "levels": circuit.levels,
        "ring dimension": session.parameters.ring_dimension,
        "modulus bits": session.parameters.modulus_bits,
        "security": session.parameters.security,
        "images": count,
        "outside": outside,
        "same class": int((found.argmax(1) == plain.argmax(1)).sum()),
        "accuracy": float((found.argmax(1) == images.test_labels[:count]).mean()),
        "largest difference": float(np.abs(found - plain).max()),
        "images at a time": session.rows,
        "seconds for each such batch": took / -(-count // session.rows),
        "seconds per image": took / count,
    }


def planned(case: Contenders, logits: np.ndarray, images: Images, budgets: tuple[int, ...]) -> dict[str, Any]:
    """Degrees that `mlpoly.he.plan` chooses for budgets of levels, on the test images."""
    found = {}
    for budget in budgets:
        plan = mp.he.plan(case.net, case.gaussian, budget)
        made = plan.polynomial(images.test)
        row = measured(lambda _, made=made: (made, np.zeros(len(made))), images.test, logits, images.test_labels)
        kept = {name: value for name, value in row.items() if name != "outside"}
        found[str(budget)] = {"degrees": plan.degrees, "predicted FVU": plan.fvu, **kept}
    return found


# -- the run -----------------------------------------------------------------------------------------------------------


def main(tiny: bool = False) -> None:
    """Run on the CPU."""
    images = opened(tiny)
    sets = image_sets(images)
    results: dict[str, Any] = {"versions": versions("tenseal"), "tables": {}}
    for title, (activation, layers) in list(NETWORKS.items())[1:2] if tiny else NETWORKS.items():
        net, weights = network(images, activation, layers, tiny)
        case, logits = Contenders(net, weights, images), {name: net(x) for name, x in sets.items()}
        accuracy = float((logits["test"].argmax(1) == images.test_labels).mean())
        table: dict[str, Any] = {"network": accuracy, "degrees": {}}
        for degree in DEGREES[:3:2] if tiny else DEGREES:
            last = title == list(NETWORKS)[-1] and degree == DEGREES[-1]  # whose other images have a table
            shown = sets if last or tiny else {"test": images.test}
            rows = {
                name: {kind: measured(contender, x, logits[kind], images.test_labels) for kind, x in shown.items()}
                for name, contender in case(degree)
            }
            table["degrees"][str(degree)] = {"levels": levels_of(degree, layers), "rows": rows}
            print(f"\n{title}, {accuracy:.4f}, degree {degree}: accuracy, FVU", flush=True)
            for name, row in rows.items():
                print(f"  {name:50s} {row['test']['accuracy']:.4f} {row['test']['FVU']:.3g}", flush=True)
        table["plans"] = planned(case, logits["test"], images, BUDGETS[layers][:2] if tiny else BUDGETS[layers])
        if "tenseal" in results["versions"]:
            polys = {f"degree {degree}": case.fit(degree) for degree in ENCRYPTED[layers][: 1 if tiny else None]}
            if layers == 3:
                plan = mp.he.plan(net, case.gaussian, LEVELS)
                polys[f"degrees {'-'.join(map(str, plan.degrees))}, planned"] = plan.polynomial
            count = 5 if tiny else _IMAGES
            table["encrypted"] = {name: encrypted(poly, images, count) for name, poly in polys.items()}
            print("encrypted", *table["encrypted"].items(), sep="\n  ", flush=True)
        results["tables"][title] = table
        results |= ratios(title, table)
        write("encrypted", results)
    save("encrypted", results)


def ratios(title: str, table: dict[str, Any]) -> dict[str, float]:
    """How much less of the variance one polynomial per neuron leaves unexplained than one per layer."""
    found = {}
    # Degrees that use all of their levels; at 8 a few images on which a polynomial explodes decide.
    for degree in [degree for degree in table["degrees"] if degree in ("2", "4")]:
        part = table["degrees"][degree]
        one, ours = (part["rows"][name]["test"]["FVU"] for name in ("one least-squares polynomial per layer", OURS))
        found[f"{title}, degree {degree}: FVU of one least-squares polynomial per layer / closed form"] = one / ours
    return found


def plot(results: dict[str, Any]) -> dict[str, Figure]:
    """Accuracy by degree, on a scale on which 95 and 97 per cent differ."""
    tables = results["tables"]
    figure = Figure(figsize=(style.WIDTH, 4.2), layout="constrained")
    axes = figure.subplots(1, len(tables), sharey=True, squeeze=False)[0]
    looks = {
        "Chebyshev interpolation on [min, max]": ("grey", ":", "s"),
        "Chebyshev series on [min, max]": ("grey", "--", "s"),
        "minimax on [min, max]": ("violet", "-", "^"),
        "one least-squares polynomial per layer": ("orange", "-", "D"),
        OURS: ("blue", "-", "o"),
    }
    for ax, (title, table) in zip(axes, tables.items(), strict=True):
        degrees = [int(degree) for degree in table["degrees"]]
        for name, (colour, line, marker) in looks.items():
            wrong = [100 * (1 - part["rows"][name]["test"]["accuracy"]) for part in table["degrees"].values()]
            kept = {"color": style.COLOURS[colour], "linestyle": line, "marker": marker, "markersize": 4}
            ax.plot(degrees, wrong, label=name, **kept)
        ax.axhline(100 * (1 - table["network"]), color=style.INK, linewidth=1, label="the network itself")
        ax.set_yscale("log")
        ax.set_xticks(degrees)
        style.tidy(ax, "degree", "test accuracy, %" if ax is axes[0] else "", title)
    axes[0].set_ylim(90, 2)
    axes[0].set_yticks([80, 50, 20, 10, 5, 3], ["20", "50", "80", "90", "95", "97"])
    axes[0].yaxis.set_minor_locator(NullLocator())
    style.legend_below(figure, axes[0].get_legend_handles_labels()[0], 3)
    return {"encrypted": figure}


if __name__ == "__main__":
    main()
