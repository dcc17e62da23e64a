"""Arguments of a page: what is understood, and what is refused with a remedy."""

import numpy as np
import pandas
import pytest
from sklearn import neural_network as neural
from support.mistakes import assert_explained, mistakes
from support.networks import network

import mlpoly as mp
from mlpoly.pages.network.subject import check_subject

NET, ONE = network(d=4, o=3), network(d=4, o=1)
X = np.random.default_rng(0).standard_normal((20, 4))
HOLE = np.where(np.arange(80).reshape(20, 4) == 30, np.nan, X)
THREE = np.arange(20) % 3


@mistakes(
    [
        ("net", lambda: check_subject(np.sin, X), TypeError, "net must be a network", "model of PyTorch"),
        ("width", lambda: check_subject(NET, X[:, :2]), ValueError, "x has 2 columns", "takes 4 inputs"),
        ("label", lambda: check_subject(NET, np.c_[X, X[:, 0]]), ValueError, "x has 5 columns", "Give it as labels"),
        ("numbers", lambda: check_subject(NET, [["a"] * 4] * 3), TypeError, "x must be", "list of numbers"),
        ("twice", lambda: check_subject(NET, X, names=list("abba")), ValueError, "names has 'a' more than once", "own"),
        ("NaN", lambda: check_subject(NET, HOLE), ValueError, "x has 1 of 20 .* row 7", r"labels\[whole\]"),
        ("outputs", lambda: check_subject(NET, X, outputs=["a"]), ValueError, "outputs has 1", "3 outputs"),
        ("shape", lambda: check_subject(NET, X, image_shape=(2, 3)), ValueError, "image_shape is", "4 inputs"),
        ("classes", lambda: check_subject(NET, X, [*"abcd" * 5]), ValueError, "labels has 4 classes", "3 outputs"),
        ("words", lambda: check_subject(NET, X, [*"bcbca" * 4]), ValueError, r"labels are words \('a', 'b', 'c'\)",
         r"pass outputs=\[name of output 0, .* order .* trained .*--outputs NAME0 .* numbers, 0 to 2"),
        ("a word", lambda: check_subject(ONE, X, [*"ab" * 10]), ValueError, "for which of them", r"outputs=\['b'\]"),
        ("other word", lambda: check_subject(ONE, X, [*"ab" * 10], outputs=["c"]), ValueError, "for which", "outputs="),
        ("targets", lambda: check_subject(NET, X, X[:, :2]), ValueError, "labels has 2 columns", "3 outputs"),
        ("hole", lambda: check_subject(ONE, X, HOLE[:, 2]), ValueError, "labels has NaN", "drop these rows"),
        ("dim", lambda: check_subject(NET, X, inputs=mp.Gaussian.standard(3)), ValueError, "inputs have dimension 3"),
        ("degree", lambda: mp.report(NET, X, degree=0), ValueError, "degree must be at least 1"),
        ("activation", lambda: mp.report(NET, X, activation="relu"), ValueError, "activation and layout are for files"),
        ("folder", lambda: mp.report(NET, X, out="."), ValueError, "out is the folder", "report.html"),
    ]
)  # fmt: skip
def test_mistakes(act, exception, patterns):
    assert_explained(act, exception, patterns)


def test_columns_of_words_are_named():
    frame = pandas.DataFrame(X, columns=list("abcd")).assign(c="word")
    with pytest.raises(TypeError, match=r"not numbers \(c\); drop them"):
        check_subject(NET, frame)
    with pytest.raises(ValueError, match="names has 'a' more than once"):
        check_subject(NET, pandas.DataFrame(X, columns=list("aabb")))


@pytest.mark.parametrize("suffix", [".pkl", ".joblib"])
def test_files_that_would_run_code_are_refused(tmp_path, suffix):
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"cos\nsystem\n(S'touch hacked'\ntR.")
    with pytest.raises(ValueError, match="would run whatever code"):
        mp.report(path, X)


@pytest.mark.parametrize(
    ("net", "labels", "task", "targets", "outputs"),
    [
        (NET, THREE, "classes", THREE, ("0", "1", "2")),
        (NET, X[:, :3], "values", X[:, :3], ("output 0", "output 1", "output 2")),
        (ONE, X[:, 0], "values", X[:, :1], ("output",)),
        (ONE, np.arange(20), "values", np.arange(20.0)[:, None], ("output",)),
        (ONE, X[:, 0] > 0, "classes", (X[:, 0] > 0).astype(int), ("True",)),
        (ONE, np.where(X[:, :1] > 0, 10, 9), "classes", (X[:, 0] > 0).astype(int), ("10",)),
        (ONE, (X[:, 0] > 0).astype(int), "classes", (X[:, 0] > 0).astype(int), ("1",)),
        (ONE, None, None, None, ("output",)),
    ],
)  # fmt: skip
def test_labels(net, labels, task, targets, outputs):
    found = check_subject(net, X, labels)
    assert (found.task, found.outputs) == (task, outputs)
    np.testing.assert_array_equal(found.targets, targets)


def test_networks_keep_the_names_of_their_outputs():
    net = mp.MLP(np.eye(3), None, np.ones((1, 3)), output_names=["malignant"])
    x = np.arange(12.0).reshape(4, 3)
    subject = check_subject(net, x, ["benign", "malignant", "benign", "benign"])
    assert subject.outputs == ("malignant",) and subject.targets.tolist() == [0, 1, 0, 0]


def test_names_of_outputs_order_the_labels():
    found = check_subject(NET, X, np.array(["b", "c", "a"])[THREE], outputs=["c", "b", "a"])
    assert found.targets.tolist() == np.array([1, 0, 2])[THREE].tolist()
    for word, large in (("yes", X[:, 0] > 0), ("no", X[:, 0] <= 0)):
        found = check_subject(ONE, X, np.where(X[:, :1] > 0, "yes", "no"), outputs=[word])
        assert found.outputs == (word,)
        assert found.targets.tolist() == large.astype(int).tolist()


def test_columns_are_those_that_an_estimator_knows():
    frame = pandas.DataFrame(X, columns=list("abcd"))
    model = neural.MLPRegressor(hidden_layer_sizes=3, max_iter=5000, solver="lbfgs", random_state=0).fit(frame, X[:, 0])
    assert check_subject(model, frame[list(model.feature_names_in_)]).names == tuple("abcd")
    assert check_subject(model, frame.to_numpy(), names=list("stuv")).names == tuple("stuv")
    check_subject(model, pandas.DataFrame(X))  # columns without names
    for other, have, place, want in (
        (frame[list("abdc")], "d", 2, "c"),
        (frame.rename(columns={"b": "e"}), "e", 1, "b"),
    ):
        with pytest.raises(ValueError, match=rf"'{have}' at place {place}, .*'{want}'; .*x\[list\(model.feature_names"):
            check_subject(model, other)
    with pytest.raises(ValueError, match=r"^x has 'd' at place 0, but that is input 3; .*x\[list\(inputs.names\)\]"):
        check_subject(NET, frame[list("dcba")], inputs=mp.Gaussian.from_samples(frame))


def test_names_come_from_the_inputs_or_the_columns():
    frame = pandas.DataFrame(X, columns=list("abcd"))
    assert check_subject(NET, frame).names == tuple("abcd")
    assert check_subject(NET, X, inputs=mp.Gaussian.from_samples(frame)).names == tuple("abcd")
    assert check_subject(NET, X).names == ("x0", "x1", "x2", "x3")
    assert check_subject(NET, X, image_shape=(2, 2)).names == ("x1,1", "x1,2", "x2,1", "x2,2")
