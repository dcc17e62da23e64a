"""Images, options and files of studies that take a second."""

from dataclasses import replace

import numpy as np

from mlpoly.datasets import Images
from mlpoly.studies.paper.options import TrainConfig

CONFIG = TrainConfig(hidden=8, steps=32, batch_size=32, learning_rate=0.1, warmup=8, seed=3)
LONG = replace(CONFIG, steps=1500)


def blobs(classes=3, side=4, train=200, test=80, spread=0.15):
    """Images of side x side pixels in [0, 1]: a Gaussian cloud for each class."""
    rng = np.random.default_rng(5)
    means = rng.uniform(0.2, 0.8, (classes, side * side))

    def draw(n):
        labels = np.arange(n) % classes
        return np.clip(means[labels] + spread * rng.standard_normal((n, side * side)), 0, 1), labels

    return Images(*draw(train), *draw(test), (side, side), "blobs", tuple(map(str, range(classes))))


IMAGES = blobs()


def changed(images, name):
    """The same but for one number."""
    values = np.array(getattr(images, name))
    values.reshape(-1)[0] = values.reshape(-1)[1]
    assert not np.array_equal(values, getattr(images, name))
    return images._replace(**{name: values})


def save(images, path):
    """Images as an .npz file that the studies read."""
    names = ("train", "train_labels", "test", "test_labels")
    arrays = {name: getattr(images, name) for name in names}
    np.savez(path, **{k: a.reshape(-1, *images.shape) if a.ndim == 2 else a for k, a in arrays.items()})
    return path
