"""Your own network as a polynomial: from scikit-learn, PyTorch and ONNX to formulas, tables and pages.

    python examples/own_network.py [FOLDER]

Three small networks are trained on data that scikit-learn brings along, in a few seconds each:

- diabetes: a pipeline of scikit-learn, ten named inputs in their own units, a regression;
- digits: a PyTorch network on 8 x 8 images, so that features and explanations are pictures;
- breast cancer: a ReLU network with two hidden layers, written to an ONNX file and read from there, without running it.

Each leaves a page in FOLDER, by default out/own_network. Needs the extras sklearn, torch, onnx, plots and formulas.
"""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mlpoly as mp


def diabetes(folder: Path) -> Path:
    """A pipeline with a scaler: the polynomial takes age in years, blood pressure in mm Hg, and so on."""
    x, y = load_diabetes(as_frame=True, return_X_y=True, scaled=False)
    x.columns = ["age", "sex", "bmi", "pressure", "cholesterol", "ldl", "hdl", "ratio", "triglycerides", "glucose"]
    options = {"learning_rate_init": 0.01, "early_stopping": True, "max_iter": 1000, "random_state": 0}
    model = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=20, **options)).fit(x, y)
    net, inputs = mp.from_sklearn(model), mp.Gaussian.from_samples(x)
    poly = mp.fit(net, inputs, degree=2)
    print(poly.truncate(1))
    print(poly.terms(k=8, center="mean"))
    print(mp.explain(net, x.iloc[0], inputs, k=5))
    return mp.report(model, x, y, out=folder / "diabetes.html", title="Diabetes: a pipeline as a polynomial")


def digits(folder: Path) -> Path:
    """A network of PyTorch on images: eigenfeatures are images, and classes can be compared."""
    x, labels = load_digits(return_X_y=True)
    train, test, train_labels, test_labels = train_test_split(x / 16, labels, test_size=0.3, random_state=0)
    torch.manual_seed(0)
    module = trained([64, 64, 10], train, train_labels, noise=0.3)
    net = mp.from_torch(module)
    quadratic = mp.fit(net, mp.Gaussian.from_samples(torch.tensor(train)), degree=2)
    why = quadratic.output(4) - quadratic.output(9)  # a polynomial as well: what makes it a 4 and not a 9
    print(why.terms(k=5, center="mean"))
    print(mp.compare(net, quadratic, torch.tensor(test), torch.tensor(test_labels)))
    title = "Digits: a PyTorch network as polynomials"
    return mp.report(module, test, test_labels, image_shape=(8, 8), out=folder / "digits.html", title=title)


def cancer(folder: Path) -> Path:
    """A deep ReLU network from an ONNX file: the closest quadratic of the whole."""
    table = load_breast_cancer()
    x = StandardScaler().fit_transform(table.data)
    torch.manual_seed(0)
    module = trained([30, 24, 24, 2], x, table.target, noise=0.3)
    path = folder / "cancer.onnx"
    write_onnx(module, path)
    net = mp.from_onnx(path)
    print(net, "differs from the module by", float(np.abs(net(x) - module(torch.tensor(x)).numpy()).max()))
    title = "Breast cancer: an ONNX file as polynomials"
    names, classes = [str(name) for name in table.feature_names], [str(name) for name in table.target_names]
    labels = table.target_names[table.target]
    return mp.report(path, x, labels, names=names, outputs=classes, out=folder / "cancer.html", title=title)


def trained(sizes: list[int], x: np.ndarray, labels: np.ndarray, noise: float) -> torch.nn.Module:
    """A ReLU network in double precision after 600 steps of AdamW on noisy inputs, which keep it from memorising."""
    parts: list[torch.nn.Module] = [torch.nn.Linear(sizes[0], sizes[1])]
    for d, h in pairwise(sizes[1:]):
        parts += [torch.nn.ReLU(), torch.nn.Linear(d, h)]
    module = torch.nn.Sequential(*parts).double()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, weight_decay=0.1)
    rows, targets = torch.tensor(x), torch.tensor(labels)
    for _ in range(600):
        loss = torch.nn.functional.cross_entropy(module(rows + noise * torch.randn_like(rows)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return module.requires_grad_(False)


def write_onnx(module: torch.nn.Module, path: Path) -> None:
    """Layers as Gemm and Relu; torch.onnx.export does this too, and needs onnxscript."""
    nodes, weights, value = [], [], "x"
    for i, part in enumerate(module):
        if isinstance(part, torch.nn.Linear):
            weights += [numpy_helper.from_array(t.numpy(), f"{kind}{i}") for kind, t in part.named_parameters()]
            nodes.append(helper.make_node("Gemm", [value, f"weight{i}", f"bias{i}"], [f"v{i}"], transB=1))
        else:
            nodes.append(helper.make_node("Relu", [value], [f"v{i}"]))
        value = f"v{i}"
    ends = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, ["rows", None]) for n in ("x", value)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "network", ends[:1], ends[1:], weights)), path)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "out/own_network")
    target.mkdir(parents=True, exist_ok=True)
    for example in (diabetes, digits, cancer):
        print(f"\n{example.__doc__}\n")
        print(example(target))
