"""What every polynomial offers, whatever its form: one class of tests that each form inherits.

A new form adds a subclass of `PolynomialContract` that says how to make one. Polynomials are made in NumPy, and moved
to the other libraries with `to`.
"""

import copy
import functools
import itertools

import jax
import numpy as np
import pytest
import sympy
import torch
from support.backends import (
    BACKENDS,
    JAX64,
    NUMPY32,
    NUMPY64,
    TORCH32,
    TORCH64,
    assert_close,
    assert_same_kind,
    backends,
    make,
    to_numpy,
)
from support.inputs import exponents, gaussian, grid, points
from support.networks import network
from support.polynomials import own_arrays

import mlpoly as mp
from mlpoly.arrays import namespace
from mlpoly.moments import inner
from mlpoly.polynomials import BoundedPolynomial, Polynomial
from mlpoly.polynomials.neurons import NeuronPolynomial
from mlpoly.records import arrays_of, replace

D, H, OUT = 3, 5, 2
BOUND = 1.5


NODES = {3: 45, 2: 160, 1: 250}  # per axis, by rank
X = points(D, 6, spread=1.0)


def make_net(kind="MLP", seed=0):
    return network(kind, "gelu", D, H, OUT, seed=seed, scale=D**0.5, up=D**0.5)


def make_gaussian(rank=D, seed=1):
    return gaussian(seed, D, rank=rank, shift=0.5)


def mixture(rank=D, seed=2):
    """Of components in one linear subspace: below full rank the mixture lives in it too."""
    rng = np.random.default_rng(seed)
    base = rng.standard_normal((D, rank))
    roots = [base @ rng.standard_normal((rank, rank)) for _ in range(2)]
    means = 0.8 * rng.standard_normal((2, rank)) @ base.T
    return mp.GaussianMixture(np.array([0.3, 0.7]), means, np.stack([a @ a.T / D for a in roots]))


@functools.cache
def made(form):
    """The NumPy polynomial of a class of tests, made once."""
    return form.polynomial()


@functools.cache
def other(form):
    """Another one of the same form, fitted to another network under other inputs."""
    return form.polynomial(seed=7)


def doubles(test):
    """Mark a test that only double precision passes."""
    test.doubles = True
    return test


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc):
    """Four forms in all libraries and precisions, JAX with the slow tests, where it compiles them; others in NumPy."""
    marked = any(mark.args[0] == "backend" for mark in metafunc.definition.iter_markers("parametrize"))
    if "backend" in metafunc.fixturenames and metafunc.cls is not None and not marked:
        chosen = [b for b in BACKENDS if b.dtype == "float64" or not hasattr(metafunc.function, "doubles")]
        quick = [b for b in chosen if b.library != "jax" and b != NUMPY32] if metafunc.cls.everywhere else [NUMPY64]
        slow = tuple(b for b in chosen if b not in quick) if metafunc.cls.everywhere else ()
        metafunc.definition.add_marker(backends(*quick, slow=slow))


@functools.cache
def fvu_by_quadrature(form):
    p, net = made(form), form.network()
    x, weights = grid(p.inputs, NODES)
    f, miss = net(x), net(x) - p(x)
    return (weights @ miss**2).sum() / (weights @ (f - weights @ f) ** 2).sum()


def placed(poly, backend):
    return poly.to(make(np.zeros(1), backend))


class PolynomialContract:
    """The contract: `network` is what was fitted, `exact` says that the form is one polynomial everywhere.

    `sums` says that it adds to its own kind, `cuts` that it can be truncated, and `everywhere` that the tests of
    numbers run in every library.
    """

    kind, exact, sums, cuts, everywhere = "MLP", True, True, True, False
    form: type
    degree: int

    @classmethod
    def polynomial(cls, seed=0):
        raise NotImplementedError

    @classmethod
    def network(cls, seed=0):
        return make_net(cls.kind, seed)

    def test_sizes(self):
        p = made(type(self))
        assert type(p) is self.form and isinstance(p, Polynomial)
        assert (p.degree, p.dim_in, p.dim_out) == (self.degree, D, self.network().dim_out)
        assert f"{D} -> {p.dim_out}" in repr(p) and type(p).__name__ in repr(p)
        assert p.source.activation == "gelu" and p.source.method
        assert p.inputs is not None

    def test_values_at_any_leading_axes(self, backend):
        p, x = placed(made(type(self)), backend), make(X, backend)
        value = p(x)
        assert_same_kind(value, x)
        assert_close(value, made(type(self))(X), 30 * backend.tolerance)
        xp = namespace(x=x)
        # Other products sum in another order, which counts as much as another library.
        assert_close(p(x[0, :]), value[0, :], 30 * backend.tolerance)
        assert_close(p(xp.reshape(x, (2, 3, D))), xp.reshape(value, (2, 3, p.dim_out)), 30 * backend.tolerance)
        assert p(x[:0, :]).shape == (0, p.dim_out)

    @pytest.mark.parametrize(("narrow", "wide"), [(NUMPY32, NUMPY64), (TORCH32, TORCH64)], ids=["numpy", "torch"])
    def test_points_of_higher_precision_are_taken(self, narrow, wide):
        p, q, x = placed(made(type(self)), narrow), made(type(self)), make(X, wide)
        for found, want in ((p(x), q(X)), (p.gradient(x), q.gradient(X)), (p.hessian(x), q.hessian(X))):
            assert found.dtype == x.dtype
            assert_close(found, want, 1e-4)

    def test_values_leave_points_and_polynomial_alone(self):
        p, x = made(type(self)), X
        before = {name: np.array(a) for name, a in arrays_of(p).items()}
        kept = x.copy()
        p(x), p.gradient(x), p.hessian(x), 2 * p + 1, np.ones((2, p.dim_out)) @ p
        if self.sums:
            p - p
        np.testing.assert_array_equal(x, kept)
        for name, a in arrays_of(p).items():
            np.testing.assert_array_equal(a, before[name])
        with pytest.raises(AttributeError):
            p.inputs = None

    def test_coefficients_are_those_of_the_values(self):
        p = made(type(self))
        x = X if self.exact else X * 0.1 + make_gaussian().mean  # within the bounds
        total, powers = 0.0, np.ones((len(x), 1))
        for k in range(p.degree + 2):
            tensor = p.coefficients().tensor(k)
            assert tensor.shape == (p.dim_out, *[D] * k)
            for axes in itertools.permutations(range(1, k + 1)):
                assert_close(tensor, tensor.transpose(0, *axes), 1e-12)
            total = total + powers @ tensor.reshape(p.dim_out, -1).T
            powers = (powers[:, :, None] * x[:, None, :]).reshape(len(x), -1)
        assert not np.any(p.coefficients().tensor(p.degree + 1))
        polynomial = p if self.exact else p.polynomial
        assert_close(total, polynomial(x), 1e-13)

    def test_quadratic_form_is_that_of_the_coefficients(self):
        p, direction = made(type(self)), np.arange(1.0, made(type(self)).dim_out + 1)
        if p.degree < 2:
            return
        form = np.tensordot(direction, p.coefficients().quadratic, axes=1)
        assert_close(p.quadratic_form(direction)(np.eye(D)), form, 1e-11)

    @doubles
    def test_gradient_is_that_of_finite_differences(self, backend):
        p, x = placed(made(type(self)), backend), X
        step = 1e-6
        want = [(p(make(x + e, backend)) - p(make(x - e, backend))) / (2 * step) for e in step * np.eye(D)]
        found = p.gradient(make(x, backend))
        assert_same_kind(found, make(x, backend))
        assert_close(found, np.stack([to_numpy(w) for w in want], axis=-1), 1e-7)
        assert_close(p.gradient(make(x[0], backend)), to_numpy(found)[0], 1e-12)

    def test_derivatives_are_those_of_autograd(self):
        p, x = placed(made(type(self)), TORCH64), torch.tensor(X)
        slopes = torch.stack([torch.autograd.functional.jacobian(p, v) for v in x])
        assert_close(p.gradient(x), slopes, 1e-13)
        hessian = torch.autograd.functional.hessian
        bends = torch.stack([torch.stack([hessian(lambda v, i=i: p(v)[i], y) for i in range(p.dim_out)]) for y in x])
        assert_close(p.hessian(x.reshape(2, 3, D)), p.hessian(x).reshape(2, 3, p.dim_out, D, D), 1e-14)
        assert np.abs(to_numpy(p.hessian(x)) - to_numpy(bends)).max() <= 1e-13 * max(1.0, float(bends.abs().max()))

    def test_truncation(self):
        p, x = made(type(self)), X
        assert p.truncate(p.degree) is p and p.truncate(p.degree + 3) is p
        with pytest.raises(ValueError, match=r"^degree .*at least 0"):
            p.truncate(-1)
        if not self.cuts:
            with pytest.raises(TypeError, match=rf"degree {p.degree} cannot be truncated.*mlpoly.fit\(net"):
                p.truncate(p.degree - 1)
            return
        for degree in range(p.degree):
            cut = p.truncate(degree)
            assert type(cut) is type(p) and cut.degree == degree and cut.report is None
            assert_close(cut.truncate(0)(x), p.truncate(0)(x), 1e-12)
        constant = p.truncate(0)(x)
        assert_close(constant, np.broadcast_to(constant[0], constant.shape), 1e-12)

    def test_arithmetic_is_that_of_the_values(self, backend):
        p, x, rng = placed(made(type(self)), backend), make(X, backend), np.random.default_rng(5)
        value, number = p(x), make(2.5, backend)
        vector, matrix = (make(rng.standard_normal(s), backend) for s in (p.dim_out, (4, p.dim_out)))
        same = [  # functions of polynomials that are those of their values
            *(lambda a, c=c: c * a for c in (2, number)),
            *(lambda a, c=c: a * c for c in (-0.5, np.float64(3.0), number)),
            *(lambda a, c=c: a / c for c in (4, number)),
            *(lambda a, c=c: c + a for c in (1, number, vector)),
            *(lambda a, c=c: a + c for c in (1, number, vector)),
            *(lambda a, c=c: c - a for c in (1.5, number, vector)),
            *(lambda a, c=c: a - c for c in (1, vector)),
            lambda a: -a,
            lambda a: (a + 1) / 2 - 3,
        ]
        for got, want in (
            *((change(p), change(value)) for change in same),
            (matrix @ (2 * p + vector), (2 * value + vector) @ matrix.T),
            (vector @ p, (value @ vector)[:, None]),
            (p.output(vector), (value @ vector)[:, None]),
            (p.output(1), value[:, 1:2]),
            (p.output(-1), value[:, -1:]),
        ):
            assert type(got) is type(p)
            assert_same_kind(got(x), x)
            assert_close(got(x), want, 1e-13 if backend.dtype == "float64" else backend.tolerance)

    @doubles
    def test_sums_of_one_form(self, backend):
        p, q = placed(made(type(self)), backend), placed(other(type(self)), backend)
        x = make(X, backend)
        if not self.sums:
            for act in (lambda: p + q, lambda: p - p, lambda: q + 2 * p):
                with pytest.raises(TypeError, match=r"no common form; add their values"):
                    act()
            return
        for got, want in (
            (p + q, p(x) + q(x)),
            (p - q, p(x) - q(x)),
            (p + p.truncate(1), p(x) + p.truncate(1)(x)),
            (2 * p - q / 3 + 1, 2 * p(x) - q(x) / 3 + 1),
        ):
            assert type(got) is type(p) and got.degree == p.degree
            assert_same_kind(got(x), x)
            assert_close(got(x), want, 1e-13)
        assert_close((p + q).gradient(x), p.gradient(x) + q.gradient(x), 1e-12)

    def test_what_arithmetic_remembers(self):
        p, q = made(type(self)), other(type(self))
        for r in (2 * p, p + 1, p - np.ones(p.dim_out), np.ones((1, p.dim_out)) @ p, p.output(0), -p, p / 2):
            assert r.inputs is p.inputs and r.report is None and r.source == mp.polynomials.Source()
        if not self.sums:
            return
        assert (p + p).inputs is p.inputs
        assert (p + replace(p, inputs=copy.deepcopy(p.inputs))).inputs is p.inputs  # the same fingerprint
        assert (p + q).inputs is None and (p - replace(q, inputs=None)).inputs is None
        assert (p + q).source == mp.polynomials.Source() and (p + q).report is None

    def test_in_units_takes_the_original_data(self, backend):
        p, scale, shift = placed(made(type(self)), backend), np.array([0.5, -3.0, 20.0]), np.array([1.0, -2.0, 40.0])
        q = p.in_units(make(scale, backend), make(shift, backend))
        assert type(q) is type(p) or getattr(p, "skip", False)
        assert (q.degree, q.dim_in, q.dim_out, q.report) == (p.degree, p.dim_in, p.dim_out, p.report)
        value = q(make(shift + scale * X, backend))
        assert_same_kind(value, make(X, backend))
        # Rounding of shift + scale x, up to 1000 times that of x where a shift is subtracted again.
        assert_close(value, made(type(self))(X), 2000 * backend.tolerance)
        assert_close(q.inputs.mean, make(shift + scale * made(type(self)).inputs.mean, backend), 1e-5)
        assert_close(q.inputs.covariance, made(type(self)).inputs.covariance * scale * scale[:, None], 1e-5)

    def test_to_sympy_has_its_values(self):
        p = made(type(self))
        one = p if self.exact else p.polynomial
        names = ["a", "b", "x_2"]
        for output, values in ((p.dim_out - 1, one(X)[:, -1]), (np.arange(1.0, p.dim_out + 1), None)):
            values = one(X) @ output if values is None else values
            found = sympy.lambdify(sympy.symbols(names), p.to_sympy(output, names=names))
            assert_close(np.array([found(*x) for x in X]), values, 1e-11)

    def test_terms_are_those_of_the_dense_coefficients(self):
        p = made(type(self))
        coefficients, indices = p.coefficients(), exponents(D, self.degree)[1:]
        x, weights = grid(p.inputs, 2 * self.degree + 2)  # exact for products of two monomials
        one = p if self.exact else p.polynomial
        values = one(x)[:, 0]
        variance = weights @ (values - weights @ values) ** 2
        want = []
        for index in indices:
            orders = len(set(itertools.permutations(index)))
            monomial = np.prod(x[:, list(index)], axis=1)
            coefficient = orders * coefficients.tensor(len(index))[(0, *index)]
            want.append((index, coefficient, np.sqrt(weights @ (monomial - weights @ monomial) ** 2)))
        effects = {index: coefficient * spread for index, coefficient, spread in want}
        terms = p.terms(0, k=len(indices) + 5)
        assert terms.total == len(indices) and len(terms) <= len(indices)
        assert list(terms) == sorted(terms, key=lambda term: -abs(term.effect))
        largest = max(map(abs, effects.values()), default=0.0)
        for term in terms:
            assert term.effect == pytest.approx(effects.pop(term.inputs), rel=1e-9, abs=1e-11 * largest)
            # Composed polynomials have no closed form of their variance: 65536 draws, so about 1 % of it.
            assert term.fraction == pytest.approx(term.effect**2 / variance, rel=1e-9 if p.closed_form else 0.05)
        assert all(abs(left) <= 1e-11 * largest for left in effects.values())  # zero terms are left out

    def test_terms_about_the_mean_add_up(self):
        p = made(type(self))
        one = p if self.exact else p.polynomial
        terms = p.terms(0, k=10_000, center="mean")
        u = X - p.inputs.mean
        total = terms.constant + sum(t.coefficient * np.prod(u[:, list(t.inputs)], axis=1) for t in terms)
        assert_close(total + np.zeros(len(X)), one(X)[:, 0], 1e-11)

    def test_a_prediction_is_the_sum_of_its_parts(self):
        p = made(type(self))
        one = p if self.exact else p.polynomial
        for output in (0, np.ones(p.dim_out)):
            found = mp.explain(p, X[0], output=output, k=1000)
            want = (one(X[0]) @ output) if np.ndim(output) else one(X[0])[0]
            assert found.parts.shape == (p.degree + 1,) and found.network is None
            assert found.polynomial == pytest.approx(want, rel=1e-12)
            assert sum(found.parts) == pytest.approx(want, rel=1e-11)
            scale = np.abs(found.parts).max()
            by_degree = np.zeros(p.degree + 1)
            by_degree[0] = found.parts[0]
            for term in found.terms:
                by_degree[len(term.inputs)] += term.amount
            np.testing.assert_allclose(by_degree, found.parts, atol=1e-11 * scale)
            if p.degree >= 2 and np.linalg.matrix_rank(p.inputs.covariance) == D:
                assert sum(f.amount for f in found.features) == pytest.approx(found.parts[2], abs=1e-9 * scale)

    def test_moves_between_libraries_and_dtypes(self, backend):
        p, like = made(type(self)), make(np.zeros(1), backend)
        there = p.to(like)
        assert type(there) is type(p) and there.source == p.source
        for a in own_arrays(there).values():
            assert_same_kind(a, like)
        for a in arrays_of(there.inputs).values():
            assert namespace(a=a) is namespace(like=like)
            assert str(a.dtype).endswith("float32" if backend.name == "jax-float32" else "float64")
        back = there.to(np.zeros(1))
        assert_close(back(X), p(X), 1e-14 if backend.dtype == "float64" else 1e-4)
        assert there.inputs.sample(3).shape == (3, D)
        assert there.inputs.fingerprint == p.inputs.fingerprint or backend.name == "jax-float32"

    def test_gradients_flow_through_a_move(self):
        p = placed(made(type(self)), TORCH64)
        name = next(iter(own_arrays(p)))
        leaf = arrays_of(p)[name].clone().requires_grad_()
        swapped = {id(arrays_of(p)[name]): leaf}
        q = mp.records.map_arrays(replace(p, inputs=None), lambda a: swapped.get(id(a), a)).to(torch.zeros(1))
        q(torch.tensor(X, dtype=torch.float32)).sum().backward()
        assert leaf.grad is not None and leaf.grad.dtype == torch.float64

    def test_files_hold_the_polynomial_and_its_inputs(self, backend, tmp_path):
        p, x = placed(made(type(self)), backend), make(X, backend)
        p.save(tmp_path / "poly")
        again = mp.load(tmp_path / "poly", like=x)
        assert type(again) is type(p)
        np.testing.assert_array_equal(to_numpy(again(x)), to_numpy(p(x)))
        assert again.inputs.fingerprint == p.inputs.fingerprint == again.source.inputs
        assert replace(again.source, inputs="") == replace(p.source, inputs="")

    def test_results_of_arithmetic_can_be_saved(self, tmp_path):
        p = replace(2 * made(type(self)) - (other(type(self)) if self.sums else 1), inputs=None)
        p.save(tmp_path / "poly")
        np.testing.assert_array_equal(mp.load(tmp_path / "poly")(X), p(X))
        assert mp.load(tmp_path / "poly").inputs is None

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
    def test_as_a_torch_module(self, dtype):
        p, x = made(type(self)), torch.tensor(X, dtype=dtype)
        module = p.to_torch()
        out = module(x)
        assert out.dtype == dtype
        # Neurons multiply in 16 bits: weights and preactivations are rounded, which a cubic triples, and then hidden
        # units, readout and outputs, each by 2^-9.
        narrow = (2 * 3 + 3) * 2**-9 if isinstance(p, NeuronPolynomial) else 2**-8
        tolerance = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: narrow}[dtype]
        assert_close(out.double(), p(x.double().numpy()), tolerance)
        assert {n.replace(".", "_") for n in own_arrays(p)} == set(module.state_dict())
        assert_close(copy.deepcopy(module)(x).double(), out.double(), 0.0)
        assert_close(module.polynomial(x.double()), p(x.double().numpy()), 1e-12)

    def test_jax_looks_through_it(self):
        with JAX64.active():
            p, x = placed(made(type(self)), JAX64), make(X, JAX64)
            value = p(x)
            assert_close(jax.jit(lambda q, v: q(v))(p, x), value, 1e-13)
            assert_close(jax.jit(jax.vmap(p))(x), value, 1e-13)
            assert_close(jax.jit(jax.jacfwd(p))(x[0]), p.gradient(x[0]), 1e-12)
            assert_close(jax.jit(lambda q, v: (2 * q + 1)(v))(p, x), 2 * value + 1, 1e-13)
            doubled = jax.tree_util.tree_map(lambda a: 2 * a, p)  # arrays alone: whatever else there is, is structure
            for a, b in zip(own_arrays(doubled).values(), own_arrays(p).values(), strict=True):
                assert_close(a, 2 * b, 0.0)
            if self.sums:
                q = placed(other(type(self)), JAX64)
                assert_close(jax.jit(lambda a, b, v: (a - b)(v))(p, q, x), value - q(x), 1e-12)

    @pytest.mark.parametrize("rank", [D, 2, 1])
    def test_second_moments_are_those_of_quadrature(self, rank):
        """Alone and with another function, by degree, under other inputs of any rank."""
        p, g = made(type(self)), make_gaussian(rank, seed=5)
        if not self.form.closed_form:
            with pytest.raises(TypeError, match=f"{self.form.__name__}.*on data"):
                p.hermite(g)
            return
        x, weights = grid(g, 2 * self.degree + 2 if self.exact else 40)
        values, other = p(x), self.network()
        f, mean, moments = p.hermite(g), weights @ values, mp.second_moment(p, g)
        size = np.sqrt(weights @ values**2)
        # A kink at the bound is what a grid does not see exactly.
        tolerance = 1e-11 if self.exact else 5e-2
        assert np.all(np.abs(moments.mean - mean) <= tolerance * size)
        cov = (values - mean).T * weights @ (values - mean)
        assert np.all(np.abs(moments.cov - cov) <= tolerance * np.outer(size, size))
        best = mp.fit(other, g, max(p.degree, 1))  # all that a polynomial sees of the network
        expected = weights @ (best(x) * values)
        found = mp.similarity(p, other, g).per_output.inner
        scale = size * np.sqrt(mp.similarity(other, other, g).per_output.inner)
        assert np.all(np.abs(found - expected) <= tolerance * scale)
        # Projections on the monomials of lower degrees in standardised coordinates, made orthonormal on the nodes.
        scale = np.sqrt(np.diagonal(g.covariance).max())
        head, before = inner(f, f, degree=p.degree).head, mean**2
        for k in range(1, p.degree + 1):
            columns = np.stack([np.prod(((x - g.mean) / scale)[:, list(c)], axis=1) for c in exponents(D, k)], axis=1)
            left, spread, _ = np.linalg.svd(np.sqrt(weights)[:, None] * columns, full_matrices=False)
            below = ((left[:, spread > 1e-9 * spread[0]].T @ (np.sqrt(weights)[:, None] * values)) ** 2).sum(0)
            assert np.all(np.abs(head[k - 1] - (below - before)) <= max(tolerance, 1e-10) * size**2)
            before = below

    @backends(TORCH32, TORCH64)
    def test_second_moments_in_other_libraries(self, backend):
        p, g = made(type(self)), make_gaussian(seed=5)
        there, moved = placed(p, backend), g.to(make(np.zeros(1), backend))
        if not p.closed_form:
            with pytest.raises(TypeError, match=f"no closed form for a {type(p).__name__}"):
                there.moments(moved)
            return
        for found, expected in zip(there.moments(moved), p.moments(g), strict=True):
            assert_close(found, expected, 1000 * backend.tolerance)

    @doubles
    def test_closed_form_fvu_is_that_of_quadrature(self, backend):
        p, net, like = made(type(self)), self.network(), make(np.zeros(1), backend)
        found = mp.fvu(net.to(like), p.to(like))
        want = fvu_by_quadrature(type(self))
        if not p.closed_form:  # on samples of the inputs
            assert 0 < float(found.standard_error) < 0.5 * want
            assert abs(float(found.total) - want) <= 5 * float(found.standard_error)
            return
        # A kink at the bound is all that a grid of 45 nodes in each of three dimensions does not see exactly.
        assert abs(float(found.total) - want) <= (1e-7 if self.exact else 2e-2) * max(want, 1e-3)

    def mistakes(self):
        p, q = made(type(self)), placed(made(type(self)), TORCH64)
        o = p.dim_out
        return [
            (lambda: p + "1", TypeError, f"unsupported operand.*{type(p).__name__}"),
            (lambda: p * p, TypeError, f"unsupported operand.*{type(p).__name__}"),
            (lambda: np.eye(o) + p, ValueError, r"constant has shape .*one number per output"),
            (lambda: p @ np.eye(o), TypeError, "from the left; use matrix @ poly"),
            (lambda: p + q, TypeError, "left is numpy, right is torch.*convert"),
            (lambda: p + torch.ones(o), TypeError, "constant is torch, polynomial is numpy.*convert"),
            (lambda: torch.eye(o) @ p, TypeError, "matrix is torch, polynomial is numpy.*convert"),
            (lambda: p + np.ones(o + 1), ValueError, rf"constant has shape \({o + 1},\).*one number per output"),
            (lambda: np.ones((2, o + 1)) @ p, ValueError, r"matrix has shape .*columns as the polynomial has outputs"),
            (lambda: p + p.output(0), ValueError, f"{D} -> {o} and {D} -> 1.*same inputs and outputs"),
            (lambda: p.output(o), ValueError, rf"^output is {o}, but there are {o} outputs, numbered from 0 to"),
            (lambda: p(torch.zeros(D)), TypeError, "x is torch.*convert"),
            (lambda: p(np.zeros((2, D + 1))), ValueError, rf"^x .*\(2, {D + 1}\).*\(\.\.\., {D}\)"),
            (lambda: p.gradient(np.zeros(D + 1)), ValueError, rf"^x .*\({D + 1},\).*\(\.\.\., {D}\)"),
            (lambda: p(np.zeros(D, dtype=bool)), TypeError, "^x .*bool.*astype"),
            (lambda: p.to("torch"), TypeError, "^like must be an array"),
            (lambda: p.coefficients(max_bytes=1).constant, mp.TooLargeError, "degree 0.*max_bytes"),
            (lambda: p.coefficients(max_bytes=8).tensor(self.degree), mp.TooLargeError, f"{self.degree}.*max_bytes"),
        ]

    def test_mistakes_are_explained(self):
        for act, exception, message in self.mistakes():
            with pytest.raises(exception, match=message):
                act()


class TestRidge(PolynomialContract):
    form, degree = mp.polynomials.RidgePolynomial, 3

    @classmethod
    def polynomial(cls, seed=0):
        return mp.fit(cls.network(seed), make_gaussian(seed=seed + 1), cls.degree)


class TestRidgeOfGatedUnits(TestRidge):
    kind, everywhere = "GLU", True


class TestRidgeConstant(TestRidge):
    degree = 0


class TestRidgeOfHiddenUnits(TestRidge):
    degree = 2

    @classmethod
    def network(cls, seed=0):
        rng = np.random.default_rng(seed)
        return mp.GLU(rng.standard_normal((H, D)), None, rng.standard_normal((H, D)), activation="gelu")


class TestBounded(PolynomialContract):
    form, degree, exact = BoundedPolynomial, 3, False

    @classmethod
    def polynomial(cls, seed=0):
        return mp.fit(cls.network(seed), make_gaussian(seed=seed + 1), cls.degree).bounded(BOUND)


class TestBoundedOfGatedUnits(TestBounded):
    kind, everywhere = "GLU", True


class TestDense(PolynomialContract):
    form, degree, everywhere = mp.polynomials.DensePolynomial, 2, True

    @classmethod
    def polynomial(cls, seed=0):
        return mp.fit(cls.network(seed), mixture(seed=seed + 2), cls.degree)


class TestDenseLinear(TestDense):
    degree, everywhere = 1, False


class TestDenseConstant(TestDense):
    degree, everywhere = 0, False


class TestChaos(PolynomialContract):
    form, degree, everywhere = mp.polynomials.ChaosPolynomial, 3, True

    @classmethod
    def polynomial(cls, seed=0):
        return mp.fit(cls.network(seed), mixture(seed=seed + 2), cls.degree)


class TestChaosInFewerDirections(TestChaos):
    everywhere = False

    @classmethod
    def polynomial(cls, seed=0):
        return mp.fit(cls.network(seed), mixture(2, seed=seed + 2), cls.degree)


class TestComposed(PolynomialContract):
    """Of two layers of degree 2: the polynomial has degree 4."""

    form, degree, sums, cuts = mp.polynomials.ComposedPolynomial, 4, False, False

    @classmethod
    def network(cls, seed=0):
        first, last = (network(cls.kind, "gelu", d, H, o, seed=seed + d, scale=1.0) for d, o in ((D, H), (H, OUT)))
        return mp.Chain([first, last])

    @classmethod
    def polynomial(cls, seed=0):
        return mp.fit(cls.network(seed), make_gaussian(seed=seed + 1), 2, method=mp.methods.Composed(None))


class TestComposedWithAGuard(TestComposed):
    kind, everywhere = "GLU", True

    @classmethod
    def polynomial(cls, seed=0):
        return mp.fit(cls.network(seed), mixture(seed=seed + 2), 2, method=mp.methods.Composed(0.03))


class TestComposedAndBounded(TestComposed):
    exact = False

    @classmethod
    def polynomial(cls, seed=0):
        return super().polynomial(seed).bounded(BOUND)


class TestComposedOfResiduals(TestComposed):
    """The outputs are a sum with the inputs, so that arithmetic adds a stage of its own."""

    @classmethod
    def network(cls, seed=0):
        return mp.Residual(mp.Chain([network("MLP", "gelu", D, H, H, seed=seed), network("GLU", "gelu", H, H, D)]))


FORMS = {
    "ridge 2": lambda: mp.fit(make_net("GLU"), make_gaussian(), 2),
    "ridge 3": lambda: made(TestRidgeOfGatedUnits),
    "dense 0": lambda: made(TestDenseConstant),
    "dense 2": lambda: made(TestDense),
    "chaos 2": lambda: made(TestChaos).truncate(2),
    "chaos 3": lambda: made(TestChaos),
    "chaos in a plane": lambda: made(TestChaosInFewerDirections),
}
PAIRS = [(a, b) for a, b in itertools.permutations(FORMS, 2) if type(FORMS[a]()) is not type(FORMS[b]())]


@backends(NUMPY64, TORCH64, slow=(JAX64,))
@pytest.mark.parametrize(("one", "two"), PAIRS, ids=lambda name: name)
def test_sums_of_different_forms(one, two, backend):
    p, q, x = placed(FORMS[one](), backend), placed(FORMS[two](), backend), make(X, backend)
    kinds, degree = {one.split()[0], two.split()[0]}, max(p.degree, q.degree)
    expected = mp.polynomials.DensePolynomial if "dense" in kinds and degree <= 2 else mp.polynomials.ChaosPolynomial
    for got, want in ((p + q, p(x) + q(x)), (p - q, p(x) - q(x)), (2 * p + q / 3 + 1, 2 * p(x) + q(x) / 3 + 1)):
        assert type(got) is expected and got.degree == degree
        assert_same_kind(got(x), x)
        assert_close(got(x), want, 1e-10)


def test_sums_far_from_the_origin_and_in_other_units_keep_their_digits():
    """Coordinates are those of the chaos form: whatever the units of x, the sum is as precise as the values."""
    scale, shift = np.array([1e-3, 1.0, 1e3]), np.array([5.0, -20.0, 4e3])
    mix = mixture()
    moved = mp.GaussianMixture(mix.weights, mix.means * scale + shift, mix.covs * scale * scale[:, None])
    net = make_net()
    far = mp.MLP(net.W1 / scale, net.b1 - (net.W1 / scale) @ shift, net.W2, net.b2, "gelu")
    p, q, x = mp.fit(far, moved, 3), mp.fit(far, moved.components[0], 3), moved.sample(50)
    assert_close((p + q)(x), p(x) + q(x), 1e-9)


@backends(NUMPY64, TORCH64, slow=(JAX64,))
@pytest.mark.parametrize(("one", "two"), [(TestBounded, TestRidge), (TestBoundedOfGatedUnits, TestRidgeConstant),
                                          (TestBounded, TestRidgeOfGatedUnits)])  # fmt: skip
def test_a_ridge_polynomial_is_a_bounded_one_without_bounds(one, two, backend, tmp_path):
    p, q, x = placed(made(one), backend), placed(made(two), backend), make(3 * X, backend)
    for got, want in ((p + q, p(x) + q(x)), (q - p, q(x) - p(x))):
        assert type(got) is BoundedPolynomial
        assert_close(got(x), want, 1e-12)
    assert_close((p + q).gradient(x), p.gradient(x) + q.gradient(x), 1e-12)
    (p + q).save(tmp_path / "poly")
    assert_close(mp.load(tmp_path / "poly", like=x)(x), (p + q)(x), 1e-14)


def test_a_bounded_polynomial_has_no_sum_with_other_forms():
    p, q = made(TestBounded), made(TestDense)
    for act in (lambda: p + q, lambda: q - p, lambda: p + made(TestChaos), lambda: made(TestComposedAndBounded) + q):
        with pytest.raises(TypeError, match=r"no common form.*add their values.*without the bounds"):
            act()


def test_sums_with_too_many_monomials_name_the_remedy():
    exponents, d = np.zeros((1, 1), dtype=np.int64) + 4, 40
    p = mp.polynomials.ChaosPolynomial(np.zeros(d), np.ones((1, d)), exponents, np.ones((1, 1)))
    q = mp.polynomials.ChaosPolynomial(np.zeros(d), np.eye(1, d), exponents, np.ones((1, 1)))
    with pytest.raises(mp.TooLargeError, match=r"135751 monomials.*lambda x: p\(x\) \+ q\(x\)"):
        p + q
    assert_close((p + 2 * p)(np.ones(d)), 3 * p(np.ones(d)), 1e-14)  # in its own coordinates there are few
