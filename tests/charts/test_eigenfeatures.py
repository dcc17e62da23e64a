"""Eigenfeatures as images."""

import re

import numpy as np
import pytest

import mlpoly as mp
from mlpoly.charts import eigenfeature_gallery
from mlpoly.charts.chart import Picture

SHAPE = (2, 3)


@pytest.fixture
def poly(rng):
    net = mp.MLP(rng.normal(size=(9, 6)), rng.normal(size=9), rng.normal(size=(2, 9)), None, "relu")
    return mp.fit(net, mp.Gaussian(np.zeros(6), np.arange(1.0, 7)), 2)


@pytest.mark.parametrize("metric", ["input", "whitened"])
def test_rows_hold_both_ends_of_the_spectrum(poly, metric):
    features = {name: mp.eigenfeatures(poly, output=i, k=6, metric=metric) for i, name in enumerate("ab")}
    gallery = eigenfeature_gallery(features, SHAPE, columns=2)
    largest = 0.0
    for (label, cells), (name, found) in zip(gallery.rows, features.items(), strict=True):
        assert label == name
        *pictures, spectrum = cells
        values, order = np.asarray(found.values), np.argsort(-np.asarray(found.values))
        for i, (cell, place) in enumerate(zip(pictures, [*order[:2], *order[::-1][:2]], strict=True)):
            if (values[place] > 0) != (i < 2):  # there are not that many of this sign
                assert cell is None
                continue
            assert isinstance(cell, Picture) and cell.colour == ("positive" if i < 2 else "negative")
            np.testing.assert_array_equal(cell.image, found.directions[place].reshape(SHAPE))
            largest = max(largest, np.abs(cell.image).max())
        up, down = spectrum.marks
        shown = dict(zip([*up.x, *down.x], [*up.y, *down.y], strict=True))
        np.testing.assert_array_equal([shown[rank] for rank in range(1, 7)], values[order])
    assert gallery.limit == largest


def test_figure(poly):
    figure = eigenfeature_gallery({0: mp.eigenfeatures(poly, output=0, k=6)}, SHAPE).plot()
    assert len([ax for ax in figure.axes if ax.images]) <= 6
    figure.draw_without_rendering()


def test_bad_input(poly):
    features = {0: mp.eigenfeatures(poly, output=0, k=6)}
    with pytest.raises(ValueError, match="features is empty"):
        eigenfeature_gallery({}, SHAPE)
    for shape in [(3, 3), (6,), (1, 2, 3)]:
        words = rf"image_shape is {re.escape(str(shape))}, but there are 6 inputs; .* columns = 6"
        with pytest.raises(ValueError, match=words):
            eigenfeature_gallery(features, shape)
    with pytest.raises(ValueError, match="one metric for all"):
        eigenfeature_gallery(features | {1: mp.eigenfeatures(poly, output=0, k=6, metric="whitened")}, SHAPE)
    with pytest.raises(ValueError, match="columns must be at least 1"):
        eigenfeature_gallery(features, SHAPE, columns=0)
