"""A picture of every result, on data that scikit-learn brings along.

    python examples/plots.py docs/images

Two small networks are trained, one on the diabetes data (ten named inputs, one output) and one on 8 x 8 digits (ten
classes), and everything that has a method ``.plot()`` is drawn and written as plot-NAME.png. In a notebook the same
calls show the pictures by themselves; in a script, ``matplotlib.pyplot.show()`` does.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

import numpy as np
from sklearn.datasets import load_diabetes, load_digits
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mlpoly as mp
from mlpoly.charts import interaction_map, response_chart


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", message="Stochastic Optimizer")

    def write(name: str, figure: Any) -> None:
        path = folder / f"plot-{name}.png"
        figure.savefig(path, dpi=75, metadata={"Software": None})
        matplotlib.pyplot.close(figure)
        print(path)

    x, y = load_diabetes(as_frame=True, return_X_y=True, scaled=False)
    x.columns = ["age", "sex", "bmi", "pressure", "cholesterol", "ldl", "hdl", "ratio", "triglycerides", "glucose"]
    options = {"learning_rate_init": 0.01, "early_stopping": True, "max_iter": 1000, "random_state": 0}
    model = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=20, **options)).fit(x, y)
    net, inputs = mp.from_sklearn(model), mp.Gaussian.from_samples(x)  # which remembers the names of the columns
    poly = mp.fit(net, inputs, degree=2)
    write("terms", poly.terms(k=15, center="mean").plot())
    write("explanation", mp.explain(net, x.iloc[0], inputs).plot())
    write("interactions", interaction_map(poly).plot())
    cubic = mp.fit(net, inputs, degree=3)
    write("response", response_chart(net, cubic, directions={"age": 0, "bmi": 2, "triglycerides": 8}).plot())
    write("eigenfeatures", mp.eigenfeatures(poly, output=0, metric="whitened").plot())
    write("spectrum", mp.degree_spectrum(net, inputs, 5).plot())
    write("sensitivity", mp.sensitivity(net, inputs).plot())
    model_of_curves = mp.additive(net, inputs, pairs=1)
    write("shapes", model_of_curves.plot())
    write("pair", model_of_curves.plot(pair=model_of_curves.places[0]))
    write("shapley", mp.shapley(net, x.iloc[0], inputs).plot())
    write("dependence", mp.conditional_mean(net, inputs, ["bmi", "hdl"]).plot())

    digits = load_digits()
    pixels = digits.data / 16
    options = {"learning_rate_init": 0.01, "random_state": 0}
    classifier = MLPClassifier(hidden_layer_sizes=64, **options).fit(pixels, digits.target)
    net, inputs = mp.from_sklearn(classifier), mp.Gaussian.from_samples(pixels)
    quadratic = mp.fit(net, inputs, degree=2)
    write("digit", mp.explain(net, pixels[3], inputs, output=3, k=6).plot(image_shape=(8, 8)))
    features = mp.eigenfeatures(quadratic, output=3, k=64, metric="whitened")
    write("eigenfeature-images", features.plot(image_shape=(8, 8)))
    directions = mp.singular_directions(quadratic.truncate(1))
    write("singular-images", directions.plot(image_shape=(8, 8)))
    write("singular", directions.plot())
    write("forms", mp.principal_forms(quadratic).plot())
    write("decomposition", mp.decompose(quadratic, 32).plot())
    write("similarity", mp.similarity(net, quadratic, inputs).plot())
    compared = mp.compare(net, quadratic, pixels, digits.target)
    write("comparison", compared.plot())
    write("fvu", compared.fvu.plot())
    write("moments", mp.second_moment(net, inputs).plot())
    mixture = mp.GaussianMixture.from_labels(pixels, digits.target, shrinkage=0.1)
    write("solve", mp.fit(net, mixture, degree=2).report.plot())
    rough = mp.fit(net, mp.Gaussian.standard(64), degree=2)
    tuned = mp.finetune(net, rough, pixels, steps=300)
    write("finetuning", tuned.report.plot())

    rng = np.random.default_rng(0)
    deep = mp.Chain([mp.MLP(rng.normal(size=(64, 64)) * np.sqrt(2 / 64)) for _ in range(6)])
    write("propagation", mp.propagate(deep, inputs).plot())


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "plots"))
