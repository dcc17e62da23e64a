"""Identities that hold for every network and every Gaussian (ARCHITECTURE, "Oracles")."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.backends import assert_close

import mlpoly as mp

ACTIVATIONS = ("relu", "leaky_relu(0.2)", "hardswish", "gelu", "silu", "tanh", "softsign", "sin", "square")


class Case:
    """A random network and Gaussian, all from one seed."""

    def __init__(self, kind, activation, d, h, o, seed):
        self.rng = np.random.default_rng(seed)
        self.kind, self.activation = kind, activation
        self.parts = {"W_gate": self.normal(h, d) / math.sqrt(d), "b_gate": self.normal(h)}
        if kind == "GLU":
            self.parts |= {"W_up": self.normal(h, d), "b_up": self.normal(h)}
        self.parts |= {"W_down": self.normal(o, h), "b_down": self.normal(o)}
        a = self.normal(d, d)
        self.mean, self.cov = self.normal(d), a @ a.T / d
        self.x = self.normal(7, d)

    def normal(self, *shape):
        return self.rng.standard_normal(shape)

    def net(self, **changes):
        parts = {**self.parts, **changes}
        made = mp.GLU if self.kind == "GLU" else mp.MLP
        return made(*parts.values(), activation=self.activation)

    def gaussian(self):
        return mp.Gaussian(self.mean, self.cov)

    def fit(self, degree, **changes):
        return mp.fit(self.net(**changes), self.gaussian(), degree)


CASES = st.builds(
    Case,
    st.sampled_from(["MLP", "GLU"]),
    st.sampled_from(ACTIVATIONS),
    d=st.integers(1, 5),
    h=st.integers(1, 6),
    o=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
DEGREES = st.integers(0, 6)
FACTORS = st.integers(-40, 40).map(lambda n: n / 10)


@given(CASES, DEGREES, DEGREES)
def test_truncation_is_the_fit_of_lower_degree(case, high, low):
    low, high = sorted((low, high))
    short, direct = case.fit(high).truncate(low), case.fit(low)
    assert short.degree == low
    # 1e-12 and not equality: quadrature nodes depend on the degree.
    assert_close(short(case.x), direct(case.x))


@given(CASES, DEGREES, st.integers(1, 5))
def test_affine_change_of_variables_commutes_with_fitting(case, degree, inner):
    """x = A u + c with u ~ N(mu, S): fit then substitute = substitute then fit; A may be rectangular."""
    d = len(case.mean)
    A, c = case.normal(d, inner), case.normal(d)
    a = case.normal(inner, inner)
    mean, cov = case.normal(inner), a @ a.T / inner
    moved = {"W_gate": case.parts["W_gate"] @ A, "b_gate": case.parts["b_gate"] + case.parts["W_gate"] @ c}
    if case.kind == "GLU":
        moved |= {"W_up": case.parts["W_up"] @ A, "b_up": case.parts["b_up"] + case.parts["W_up"] @ c}
    u = case.normal(7, inner)
    substituted = mp.fit(case.net(**moved), mp.Gaussian(mean, cov), degree)(u)
    outer_cov = A @ cov @ A.T
    outer = mp.fit(case.net(), mp.Gaussian(A @ mean + c, (outer_cov + outer_cov.T) / 2), degree)(u @ A.T + c)
    assert_close(outer, substituted, 1e-10)  # high powers of t amplify the rounding of the moved mean and spread


@given(CASES, DEGREES, FACTORS)
def test_outputs_scale_and_move(case, degree, factor):
    shift = case.normal(len(case.parts["b_down"]))
    changed = case.fit(degree, W_down=factor * case.parts["W_down"], b_down=factor * case.parts["b_down"] + shift)
    assert_close(changed(case.x), factor * case.fit(degree)(case.x) + shift)


@given(CASES, DEGREES)
def test_networks_add(case, degree):
    other = Case(case.kind, case.activation, *case.parts["W_gate"].shape[::-1], len(case.parts["b_down"]), 5)
    both = {n: np.concatenate([p, other.parts[n]]) for n, p in case.parts.items() if not n.endswith("down")}
    both["W_down"] = np.concatenate([case.parts["W_down"], other.parts["W_down"]], axis=1)
    apart = case.fit(degree) + mp.fit(other.net(), case.gaussian(), degree)
    total = case.fit(degree, **both, b_down=case.parts["b_down"] + other.parts["b_down"])
    assert_close(total(case.x), apart(case.x))
