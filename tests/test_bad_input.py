"""Every mistake gets an exception that names the argument and says what to do: one table."""

import numpy as np
import scipy.sparse
import torch
from support.mistakes import assert_explained, mistakes

import mlpoly as mp
from mlpoly.activations import hermite_coefficients, register_activation
from mlpoly.errors import UnknownActivationError
from mlpoly.polynomials import RidgePolynomial
from mlpoly.units import Series, Units

EYE, ZERO = np.eye(2), np.zeros(2)
NAN, INF = np.full((2, 2), np.nan), np.array([[np.inf, 0.0], [0.0, -np.inf]])
WIDE, LONG = np.zeros((2, 3)), np.zeros(3)
MASKED = np.ma.array(EYE, mask=[[True, False], [False, False]])


def mlp(W1=EYE, b1=ZERO, W2=EYE, b2=ZERO, activation="relu"):
    return mp.MLP(W1, b1, W2, b2, activation)


def glu(W_gate=EYE, b_gate=ZERO, W_up=EYE, b_up=ZERO, W_down=EYE, b_down=ZERO, activation="silu"):
    return mp.GLU(W_gate, b_gate, W_up, b_up, W_down, b_down, activation)


def fitted(degree=2):
    return mp.fit(mlp(), mp.Gaussian.standard(2), degree)


def components(weights):
    return mp.GaussianMixture.of(weights, [mp.Gaussian.standard(2)] * 2)


def damaged(d):
    """A quadratic with a NaN in its coefficients."""
    bad = np.eye(d)
    bad[0, 0] = np.nan
    return RidgePolynomial(Units(bad, np.zeros(d), np.ones(d)), Series(np.ones((3, d))), np.ones((1, d)))


class Frame:
    """A table that is no array, and knows how to become one."""

    def to_numpy(self):
        return EYE


TABLE = [
    # shapes of weights and biases
    ("W1 is a vector", lambda p: mlp(W1=ZERO), ValueError, r"^W1 ", "hidden units in rows"),
    ("b1 is too long", lambda p: mlp(b1=LONG), ValueError, r"^b1 .*\(3,\).*\(2,\)", "one entry per row"),
    ("W_up is too wide", lambda p: glu(W_up=WIDE), ValueError, r"^W_up ", "same shape as W_gate"),
    # weights that were written for other libraries, (inputs, outputs)
    ("transposed weights", lambda p: mp.MLP(np.zeros((3, 5)), np.zeros(5), np.zeros((5, 2)), np.zeros(2)), ValueError,
     r"^W2 .*\(5, 2\)", r"look transposed: W1 is \(h, d\).*use W1\.T and W2\.T"),
    ("the last weight transposed", lambda p: mp.MLP(np.zeros((5, 3)), np.zeros(5), np.zeros((5, 2))), ValueError,
     r"^W2 ", r"look transposed.*use W2\.T"),
    ("the first weight transposed", lambda p: mp.MLP(np.zeros((3, 5)), np.zeros(5)), ValueError, r"^b1 ",
     r"look transposed.*use W1\.T\."),
    ("transposed gated unit", lambda p: mp.GLU(np.zeros((3, 5)), None, np.zeros((3, 5)), None, np.zeros((5, 2))),
     ValueError, r"^W_down ", r"W_gate is \(h, d\).*use W_gate\.T and W_down\.T"),
    # nothing there
    ("no outputs", lambda p: mp.MLP(EYE, None, WIDE[:0, :2]), ValueError, r"MLP\(2 -> 2 -> 0",
     "no outputs; .* at least"),
    ("no units", lambda p: mp.MLP(WIDE[:0]), ValueError, r"MLP\(3 -> 0 -> 0", "no outputs; .* at least one"),
    ("empty mean", lambda p: mp.Gaussian(np.zeros(0)), ValueError, "^mean ", "at least one input"),
    ("empty means", lambda p: mp.GaussianMixture(np.ones(1), np.zeros((1, 0))), ValueError, "^means ", "at least one"),
    # NaN and infinity
    *[
        (f"weights of components, {value}", lambda p, v=value: components([v, 1.0]), ValueError, "^weights ", remedy)
        for value, remedy in ((np.nan, "clean or drop"), (np.inf, "clean or drop"), (-1.0, "must not be negative"))
    ],
    ("NaN ablated", lambda p: mp.ablate(NAN, EYE), ValueError, "^x holds", "clean or drop"),
    ("torch infinities ablated", lambda p: mp.ablate(torch.tensor(INF), torch.eye(2).double()), ValueError, "^x holds",
     "clean or drop"),
    ("infinite directions", lambda p: mp.ablate(EYE, INF), ValueError, "^directions holds", "clean or drop"),
    ("a number ablated", lambda p: mp.ablate(1.0, EYE), ValueError, "^x is a single number", "last axis"),
    ("NaN in a direction", lambda p: mp.eigenfeatures(fitted(), output=NAN[0]), ValueError, "^output ", "clean"),
    ("NaN in a polynomial", lambda p: mp.singular_directions(damaged(2)), ValueError, "linear part of poly",
     "clean or drop"),
    ("NaN in a form", lambda p: mp.eigenfeatures(damaged(2), 0), ValueError, "quadratic part of poly", "clean or drop"),
    ("NaN in a large form", lambda p: mp.eigenfeatures(damaged(1025), 0), ValueError, "quadratic part of poly",
     "clean or"),
    ("NaN in W1", lambda p: mlp(W1=NAN), ValueError, r"^W1 holds 4 NaN", "clean or drop"),
    ("infinities of both signs in W1", lambda p: mlp(W1=INF), ValueError, r"^W1 holds 2 NaN or inf", "clean or drop"),
    ("NaN in b1", lambda p: mlp(b1=NAN[0]), ValueError, r"^b1 ", "clean or drop"),
    ("NaN in mean", lambda p: mp.Gaussian(NAN[0]), ValueError, r"^mean ", "clean or drop"),
    ("NaN in cov", lambda p: mp.Gaussian(ZERO, NAN), ValueError, r"^cov ", "clean or drop"),
    ("infinity in a diagonal cov", lambda p: mp.Gaussian(ZERO, INF[0]), ValueError, r"^cov ", "clean or drop"),
    ("NaN in a batch", lambda p: mp.MomentAccumulator(2).update(NAN), ValueError, r"^batch ", "clean or drop"),
    ("NaN in torch weights", lambda p: mp.MLP(torch.tensor(NAN)), ValueError, r"^W1 ", "clean or drop"),
    # covariances
    ("mean is a matrix", lambda p: mp.Gaussian(EYE), ValueError, r"^mean ", "a vector with one entry per input"),
    ("cov is not square", lambda p: mp.Gaussian(ZERO, WIDE), ValueError, r"^cov ",
     "square matrix over the entries of mean"),
    ("cov is too long", lambda p: mp.Gaussian(ZERO, LONG), ValueError, r"^cov ", "one variance per entry of mean"),
    ("cov is not symmetric", lambda p: mp.Gaussian(ZERO, np.array([[1.0, 0.5], [0.4, 1.0]])), ValueError,
     r"^cov is not symmetric", r"\(cov \+ cov\.T\) / 2"),
    ("cov is not positive semidefinite", lambda p: mp.Gaussian(ZERO, np.array([[1.0, 2.0], [2.0, 1.0]])), ValueError,
     r"^cov is not positive semidefinite \(lowest eigenvalue -1", "from_samples|clip"),
    ("cov is slightly negative", lambda p: mp.Gaussian(ZERO, -1e-12 * EYE), ValueError, r"^cov .* semidefinite",
     "clip"),
    ("negative variance", lambda p: mp.Gaussian(ZERO, np.array([1.0, -1e-9])), ValueError, r"^cov .*negative", ">= 0"),
    # degrees and counts
    ("negative degree", lambda p: fitted(-1), ValueError, r"^degree ", "at least 0"),
    ("fractional degree", lambda p: fitted(2.0), TypeError, r"^degree .*2\.0", "must be an integer"),
    ("degree as a truth value", lambda p: fitted(True), TypeError, r"^degree ", "must be an integer"),
    ("no dimensions", lambda p: mp.Gaussian.standard(0), ValueError, r"^dim ", "at least 1"),
    # activations
    ("misspelt activation", lambda p: mlp(activation="rellu"), UnknownActivationError, "'rellu'", "mean 'relu'"),
    ("activation is a number", lambda p: mlp(activation=3), TypeError, "^activation ",
     "a name, an Activation or a callable"),
    ("activation is a class", lambda p: mlp(activation=torch.nn.ReLU), TypeError, "^activation ", "a callable"),
    ("parameter is no number", lambda p: mlp(activation="leaky_relu(a)"), ValueError, "leaky_relu", "not a number"),
    ("parameter is not finite", lambda p: mlp(activation="elu(nan)"), ValueError, "parameter alpha", "finite number"),
    ("too many parameters", lambda p: mlp(activation="elu(1, 2)"), ValueError, "elu",
     r"takes the parameters \['alpha'\]"),
    ("unknown parameter", lambda p: mp.activations.get("elu", beta=1), ValueError, "'beta'", r"takes \['alpha'\]"),
    ("parameter is text", lambda p: mp.activations.get("elu", alpha="1"), ValueError, "parameter alpha",
     "finite number"),
    ("bounds upside down", lambda p: mlp(activation="hardtanh(1, -1)"), ValueError, "low=1.*high=-1", "low < high"),
    ("alpha is zero", lambda p: mlp(activation="celu(0)"), ValueError, "alpha", "positive"),
    ("name is taken", lambda p: register_activation("relu", np.tanh), ValueError, "'relu'", "overwrite=True"),
    ("name is no word", lambda p: register_activation("a b", np.tanh), ValueError, "^name ", "letters"),
    ("function is none", lambda p: register_activation("mine", 3), TypeError, "^function ", "callable"),
    ("kinks is a number", lambda p: register_activation("mine", np.tanh, 0.3), ValueError, "^kinks ", "sequence"),
    ("kinks are not finite", lambda p: register_activation("mine", np.tanh, (np.inf,)), ValueError, "^kinks ",
     "finite"),
    ("negative std", lambda p: hermite_coefficients("relu", 0.0, -1.0, 2), ValueError, "^std ",
     "standard deviation"),
    ("mean and std do not match", lambda p: hermite_coefficients("relu", ZERO, np.ones(3), 2), ValueError,
     r"^mean .*\(2,\) and std \(3,\)", "must broadcast"),
    # libraries, devices, dtypes
    ("NumPy weight, torch bias", lambda p: mlp(b1=torch.zeros(2)), TypeError, "W1 is numpy, b1 is torch",
     "convert them to one"),
    ("torch network, NumPy Gaussian", lambda p: mp.fit(mp.MLP(torch.eye(2)), mp.Gaussian(ZERO)), TypeError,
     "net is torch, inputs is numpy", "convert them to one"),
    ("torch mean, NumPy cov", lambda p: mp.Gaussian(torch.zeros(2), EYE), TypeError, "mean is torch, cov is numpy",
     "convert"),
    ("torch samples, NumPy network", lambda p: mlp()(torch.zeros(2)), TypeError, "x is torch, weights is numpy",
     "convert"),
    ("accumulators of two libraries",
     lambda p: mp.MomentAccumulator(2).update(EYE).merge(mp.MomentAccumulator(2).update(torch.eye(2))), TypeError,
     "other is torch, accumulated is numpy", "convert"),
    ("bias on another device", lambda p: mp.MLP(torch.eye(2), torch.zeros(2, device="meta")), TypeError,
     "W1 on cpu, b1 on meta", "move them to one device"),
    ("weights of two dtypes", lambda p: mlp(b1=np.zeros(2, np.float32)), TypeError, "b1 is float32",
     "convert them to one"),
    ("integer weights", lambda p: mlp(W1=np.eye(2, dtype=int)), TypeError, "^W1 .*int64", r"W1\.astype"),
    ("samples of truth values", lambda p: mp.Gaussian.from_samples(EYE > 0), TypeError, "^samples ", r"\.astype"),
    ("data frame of weights", lambda p: mlp(W1=Frame()), TypeError, "^W1 .*Frame", r"W1\.to_numpy\(\)"),
    ("SciPy's sparse weights", lambda p: mlp(W1=scipy.sparse.eye_array(2)), TypeError, "^W1 ", r"W1\.toarray\(\)"),
    ("sparse torch weights", lambda p: mp.MLP(torch.eye(2).to_sparse()), TypeError, "^W1 .*sparse",
     r"W1\.to_dense\(\)"),
    ("masked weights", lambda p: mlp(W1=MASKED), TypeError, "^W1 .*masked", r"W1\.filled"),
    ("masked samples", lambda p: mp.Gaussian.from_samples(MASKED), TypeError, "^samples .*masked", "drop the rows"),
    ("ragged list", lambda p: mlp(W1=[[1.0, 2.0], [3.0]]), TypeError, "^W1 ", "regular nested list"),
    ("module for a weight", lambda p: mlp(W1=torch.nn.Linear(2, 2)), TypeError, "^W1 .*Linear", "must be an array"),
    # what goes into fit
    ("torch module for a network",
     lambda p: mp.fit(torch.nn.Sequential(torch.nn.Linear(2, 2)), mp.Gaussian.standard(2)), TypeError,
     r"^net .*Sequential", r"from_torch\(module\)"),
    ("arguments swapped", lambda p: mp.fit(mp.Gaussian.standard(2), mlp()), TypeError, "^net .*Gaussian",
     "net must be an mlpoly.MLP, GLU, Affine, Residual or Chain"),
    ("inputs of another dimension", lambda p: mp.fit(mlp(), mp.Gaussian.standard(3)), ValueError, "^inputs .*3",
     "takes 2"),
    # points
    ("x too wide for a network", lambda p: mlp()(LONG), ValueError, r"^x .*\(3,\)", r"\(\.\.\., 2\)"),
    # polynomials
    # files
    ("missing folder", lambda p: fitted().save(p / "poly"), FileNotFoundError, "polynomial.file", "create it"),
    ("missing file", lambda p: mp.load(p), FileNotFoundError, "no polynomial file at", r"poly\.save"),
    ("file is a folder", lambda p: mp.load(p.parent), FileNotFoundError, "no polynomial file at", r"poly\.save"),
    ("unknown library", lambda p: (fitted().save(p), mp.load(p, library="tensorflow")), ValueError, "^library ",
     "'numpy', 'torch' or 'jax'"),
    # statistics
    ("shrinkage above one", lambda p: mp.Gaussian.from_samples(EYE, 2.0), ValueError, "^shrinkage .*2", r"in \[0, 1\]"),
    ("unknown shrinkage", lambda p: mp.Gaussian.from_samples(EYE, "ledoit"), ValueError, "^shrinkage .*'ledoit'",
     "'oas'"),
    ("samples are a vector", lambda p: mp.Gaussian.from_samples(ZERO), ValueError, "^samples ",
     "n samples of d inputs"),
    ("no samples", lambda p: mp.Gaussian.from_samples(np.zeros((0, 2))), ValueError, "^samples ", "at least one"),
    ("batch is too wide", lambda p: mp.MomentAccumulator(2).update(WIDE), ValueError, "^batch ", "as many columns"),
    ("empty accumulator", lambda p: mp.MomentAccumulator(2).gaussian(), ValueError, "no samples yet",
     r"update\(batch\)"),
    ("accumulator without inputs", lambda p: mp.MomentAccumulator(0), ValueError, "^dim ", "at least 1"),
    ("accumulators of other dimensions", lambda p: mp.MomentAccumulator(2).merge(mp.MomentAccumulator(3)), ValueError,
     "^other has dim 3, expected 2", "same inputs"),
    ("merging a batch", lambda p: mp.MomentAccumulator(2).merge(EYE), TypeError, "^other .*ndarray",
     "MomentAccumulator"),
]  # fmt: skip


@mistakes(TABLE)
def test_mistakes_are_explained(act, exception, patterns, tmp_path):
    assert issubclass(exception, (ValueError, TypeError, FileNotFoundError))
    assert_explained(lambda: act(tmp_path / "polynomial.file"), exception, patterns)


def test_mistakes_leave_the_registry_alone():
    assert "mine" not in mp.activations.names()
    assert mp.activations.get("swish").name == "silu"
