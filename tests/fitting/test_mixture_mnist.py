"""The fit that the paper calls intractable, on MNIST at 14 x 14 pixels and its ten class Gaussians."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from support.data import data_folder

import mlpoly as mp
from mlpoly.datasets import load_images

pytestmark = pytest.mark.data


def digits(images, labels, count):
    """Images (n, 196) in [0, 1], means of 2 x 2 pixels, and labels."""
    return images[:count].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196), labels[:count]


@pytest.fixture(scope="module")
def case():
    """Images for training and for testing, their mixture, and a network with 32 units that knows most digits."""
    images = load_images("mnist", data_folder("mnist"))
    train, test = digits(images.train, images.train_labels, 20_000), digits(images.test, images.test_labels, 5000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MLPClassifier(32, max_iter=2, learning_rate_init=5e-3, random_state=0).fit(*train)
    return train, test, mp.GaussianMixture.from_labels(*train), mp.from_sklearn(model)


@pytest.fixture(scope="module")
def poly(case):
    return mp.fit(case[3], case[2], 2, method=mp.methods.Exact(tolerance=1e-3))


def test_the_solver_is_quick_and_within_half_a_per_cent_of_the_optimum(case, poly):
    *_, mix, net = case
    report, best = poly.report, mp.fit(net, mix, 2, method=mp.methods.Exact(tolerance=1e-4, start=poly)).report
    assert report.converged and report.details["gain_left"] <= 1e-3 and report.iterations <= 80
    assert report.details["kept"] + report.details["dropped"] == 196 and report.details["dropped"] > 0
    assert best.converged and best.gradient < 1e-4 < report.gradient < 5e-3
    assert 1 - 1e-9 <= report.misfit / best.misfit <= 1.0045


def test_below_every_other_closed_form(case, poly):
    """FVU on samples of the mixture: optimum < its start-up kin < one Gaussian < linear, and N(0, I) far behind."""
    train, (x, _), mix, net = case
    assert np.mean(np.argmax(net(train[0]), axis=1) == train[1]) > 0.88  # the network has learnt something
    standard, drawn = mp.fit(net, mp.Gaussian.standard(196), 2), mix.sample(20_000, seed=1)
    others = {
        "neuronwise": mp.fit(net, mix, 2, method="neuronwise"),
        "one Gaussian": mp.fit(net, mp.Gaussian(mix.mean, mix.covariance), 2),
        "linear": mp.fit(net, mix, 1),
        "standard": standard,
    }
    own, found = float(mp.fvu(net, poly, drawn)), {name: float(mp.fvu(net, p, drawn)) for name, p in others.items()}
    assert own < 0.9 * min(found.values()) and found["standard"] > found["linear"], (own, found)
    # Held-out digits are no samples of the mixture, but nearer to it than to N(0, I).
    assert float(mp.fvu(net, poly, x)) < 0.2 * float(mp.fvu(net, standard, x))
    assert np.mean(np.argmax(net(x), axis=1) == np.argmax(poly(x), axis=1)) > 0.8
