"""Means of any functions under Gaussians of rank up to two, or three if all are smooth, on panels that end at kinks."""

import itertools
import math

import numpy as np

from mlpoly.networks import Layer
from mlpoly.polynomials import BoundedPolynomial
from support.quadrature import panels, trapezoid

REACH = 13.0  # standard deviations; `Cloud.wide` says what is beyond

# Where a smooth activation may bend: panels end there on a line, on which preactivations may be of any size.
BENDS = (0.0, *(side * 2.0**k for side in (-1, 1) for k in range(-2, 7)))
LAYERS = (-8, -4, -2, -1, 0, 1, 2, 4, 8)


def root_of(cov):
    """L (d, r) with L L' = cov, without directions that are rounding."""
    values, vectors = np.linalg.eigh(cov)
    kept = values > 1e-12 * max(values[-1], 0.0)
    return vectors[:, kept] * np.sqrt(values[kept])


def lines(function, soft=False):
    """Directions (m, d) and levels (m,) at which a function is not smooth; `soft` adds bends of smooth activations."""
    if isinstance(function, BoundedPolynomial):
        units, reach = function.units, function.bounds * function.units.scales
        return np.tile(units.directions, (2, 1)), np.concatenate([units.shifts - reach, units.shifts + reach])
    if not isinstance(function, Layer):
        return np.zeros((0, function.dim_in)), np.zeros(0)
    forms = function.forms
    kinks = np.array(function.activation.kinks + (BENDS if soft else ()))
    bias = np.zeros(len(forms.directions)) if forms.bias is None else forms.bias
    return np.repeat(forms.directions, len(kinks), axis=0), (kinks[None, :] - bias[:, None]).ravel()


class Cloud:
    """Nodes z (n, r) and x (n, d) with weights w (n,) under one Gaussian; `outer` (n,) numbers those of equal z[0]."""

    def __init__(self, inputs, functions, nodes, first=None):
        root = root_of(inputs.covariance)
        if first is not None:  # the first coordinates are then those that decide x[first]
            _, _, turn = np.linalg.svd(root[list(first)])
            root = root @ turn.T
        rank = root.shape[1]
        found = [lines(f, soft=rank == 1) for f in functions]
        a = np.concatenate([np.zeros((0, rank)), *(w @ root for w, _ in found)])
        c = np.concatenate([np.zeros(0), *(level - w @ inputs.mean for w, level in found)])
        length = np.linalg.norm(a, axis=1)
        near = (length > 0) & (np.abs(c) < 1.5 * REACH * np.where(length > 0, length, 1.0))
        a, c = a[near] / length[near, None], c[near] / length[near]
        self.outer = np.zeros(1, dtype=int)
        if rank == 0:
            self.z, self.w = np.zeros((1, 0)), np.ones(1)
        elif rank == 1:
            t, self.w = panels(np.append(c / a[:, 0], 0.0), nodes, 0.6, REACH)
            self.z, self.outer = t[:, None], np.arange(len(t))
        elif rank == 2:
            self.z, self.w, self.outer = plane(a, c, nodes)
        else:
            assert rank == 3 and not len(a)
            self.z, self.w = trapezoid(3, 4.2 / nodes)
        self.x = inputs.mean + self.z @ root.T
        # What no node sees is E[f^2, |z| > R] <= s^r e^(-(1 - 1/s^2) R^2 / 2) E[f(mean + s root z)^2]: with s = 4,
        # r = 2 and R = 13 at most 1e-33 of the mean square under four times the spread.
        self.wide = inputs.mean + 4 * self.z @ root.T

    def spread_of_means(self, values):
        """Variance (o,) over z[0] of the means of values (n, o) given z[0]."""
        count = self.outer.max() + 1
        weight = np.bincount(self.outer, self.w, count)
        sums = np.stack([np.bincount(self.outer, self.w * v, count) for v in values.T], axis=1)
        means = sums / np.where(weight > 0, weight, 1.0)[:, None]
        return weight @ (means - weight @ means) ** 2

    def basis(self, degree):
        """Orthonormal products of Hermite polynomials of z of total degree 0, 1, ..., `degree`: (n, count) each."""
        length = np.sqrt([math.factorial(k) for k in range(degree + 1)])
        table = np.polynomial.hermite_e.hermevander(self.z, degree) / length  # (n, r, degree + 1)
        out = [np.zeros((len(self.w), 0))] * (degree + 1)
        for powers in itertools.product(range(degree + 1), repeat=self.z.shape[1]):
            if (k := sum(powers)) <= degree:
                column = np.prod(table[:, range(len(powers)), powers], axis=1, keepdims=True)
                out[k] = np.concatenate([out[k], column], axis=1)
        return out


def plane(a, c, nodes):
    """Nodes (n, 2), weights (n,) and numbers (n,) of the outer nodes, for kinks at the lines a z = c, |a| = 1.

    Integrated over z[1], functions bend in z[0] where lines cross, and around lines that are nearly vertical.
    """
    i, j = np.triu_indices(len(c), 1)
    det = a[i, 0] * a[j, 1] - a[i, 1] * a[j, 0]
    flat = np.abs(det) < 1e-12
    crossings = np.where(flat, 0.0, (c[i] * a[j, 1] - a[i, 1] * c[j]) / np.where(flat, 1.0, det))
    steep = np.abs(a[:, 1]) < 0.7
    at, width = c[steep] / a[steep, 0], np.abs(a[steep, 1] / a[steep, 0])
    cuts = np.concatenate([[0.0], crossings, (at[:, None] + width[:, None] * np.array(LAYERS)).ravel()])
    step = 1.2 if len(c) else 0.6
    t, outer = panels(np.unique(cuts[np.abs(cuts) < REACH]), nodes, step, REACH)
    t, outer = t[outer > 1e-38], outer[outer > 1e-38]
    level = np.abs(a[:, 1]) > 1e-12
    inner_cuts = (c[level, None] - a[level, 0, None] * t) / a[level, 1, None]
    s, inner = panels(np.concatenate([np.zeros((1, len(t))), inner_cuts]), nodes, step, REACH)
    weights = inner * outer
    kept = weights > 1e-40
    number = np.broadcast_to(np.arange(len(t)), s.shape)
    return np.stack([np.broadcast_to(t, s.shape)[kept], s[kept]], axis=1), weights[kept], number[kept]


class Quadrature:
    """Means under a Gaussian or a mixture, by a cloud of nodes for each component."""

    def __init__(self, inputs, functions, nodes):
        self.inputs = inputs
        self.weights = np.asarray(inputs.weights) / np.sum(inputs.weights)
        self.clouds = [Cloud(g, functions, nodes) for g in inputs.components]

    def mean(self, function):
        """E[function(x)] for values (n, ...)."""
        parts = zip(self.weights, self.clouds, strict=True)
        return sum(p * np.tensordot(c.w, function(c.x), 1) for p, c in parts)

    def by_degree(self, f, g, degree):
        """E[f g] (degree + 2, o) of every output at degree 0, ..., `degree` and above, within the components."""
        total = 0.0
        for p, cloud in zip(self.weights, self.clouds, strict=True):
            a, b = f(cloud.x), g(cloud.x)
            rows = [np.sum((cloud.w * h.T @ a) * (cloud.w * h.T @ b), axis=0) for h in cloud.basis(degree)]
            total = total + p * np.stack([*rows, cloud.w @ (a * b) - np.sum(rows, axis=0)])
        return total


def by_quadrature(statistic, inputs, functions):
    """Values of ``statistic(Quadrature)``, a tuple of arrays, and how far a coarser rule is from them."""
    coarse, fine = (statistic(Quadrature(inputs, functions, nodes)) for nodes in (10, 14))
    return fine, [np.abs(a - b) for a, b in zip(fine, coarse, strict=True)]
