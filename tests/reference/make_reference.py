"""Reference Hermite coefficients of activation functions, by high-precision quadrature.

For y = m + s t with t ~ N(0, 1) and the probabilists' Hermite polynomials He_k, this computes with mpmath

    a_k(m, s) = E[act(m + s t) He_k(t)] / k!,   k = 0..8,        N(m, s) = sqrt(E[act(m + s t)^2])

by composite Gauss-Legendre quadrature and without closed forms (except for sin and cos). ``python make_reference.py``
writes hermite.npz beside this file (5 minutes; gmpy2 makes mpmath fast). Its arrays, for A activations and P points:

names (A,), points (P, 2): keys, such as "elu(0.5)", and the pairs (m, s), taken as exact doubles
regimes (P,): ordinary, tiny, huge, far, random or tail
coefficients (A, P, 9): the a_k in double. With twice the nodes they differ by less than 1e-45 of N(m, s); what is
    smaller than that (such as a_8 at s = 1e-8) may be noise, so differences are to be judged relative to the norm
log_norm (A, P): natural logarithm of N(m, s), finite even where N(m, s) is below the range of doubles
"""

import functools
import itertools
import random
import time
from pathlib import Path

import numpy as np
from mpmath import mp, mpf
from mpmath.calculus.quadrature import GaussLegendre

OUTPUT = Path(__file__).with_name("hermite.npz")
DIGITS = 60  # Working precision: 50 digits, and 10 for the cancellations and the large |t| of far kinks.
SCAN_DIGITS = 30  # Precision for the decision which panels to drop.
DROP_BITS = 250  # A panel is dropped if it is smaller than the largest one by this many bits (1e-75).
DEGREE = 8
SEED = 20240229
REACH = 45  # Half width of the unit grid in t, around 0 and around the image of y = 0.
GRID_LIMIT = 2500  # The unit grid extends to the image of y = 0 if that is not farther than this.


def clip(y, low, high):
    return min(max(y, mpf(low)), mpf(high))


def leaky_relu(slope):
    slope = mpf(slope)
    return lambda y, e: y if y > 0 else slope * y


def elu(alpha, scale=1.0):
    alpha, scale = mpf(alpha), mpf(scale)
    return lambda y, e: scale * y if y > 0 else scale * alpha * (e - 1)


def sigmoid(y, e):
    return (1 if y > 0 else e) / (1 + e)


def softplus(y, e):
    return max(y, mpf(0)) + mp.log1p(e)


def tanh(y, e):
    square = e * e
    return mp.sign(y) * (1 - square) / (1 + square)


def tanhshrink(y, e):
    """Return ``y - tanh(y)``, near 0 as ``(y cosh y - sinh y) / cosh y`` by a series of equal signs."""
    if abs(y) >= 1:
        return y - tanh(y, e)
    if y == 0:
        return mpf(0)
    square = y * y
    power = y  # y^(2 n + 1) / (2 n + 1)!
    total = mpf(0)
    n = 0
    while n == 0 or mp.mag(power) > mp.mag(total) - mp.prec - 10:
        n += 1
        power = power * square / (2 * n * (2 * n + 1))
        total += 2 * n * power
    return total * 2 * e / (1 + e * e)


def normal_cdf(y):
    return mpf(1) if y > 20 else mp.erfc(-y / mp.sqrt(2)) / 2  # 1 - Phi(20) < 1e-88


def erf(y, e):
    return mp.sign(y) if abs(y) > 14 else mp.erf(y)  # 1 - erf(14) < 1e-86


def gelu_tanh(y, e):
    z2 = 2 * mp.sqrt(2 / mp.pi) * (y + mpf(0.044715) * y**3)
    return y * sigmoid(z2, mp.exp(-abs(z2)))


def quick_gelu(y, e):
    z = mpf(1.702) * y
    return y * sigmoid(z, mp.exp(-abs(z)))


def mish(y, e):
    """Return ``y tanh(softplus(y))``, with the tanh as a rational function of the exponential."""
    if y > 0:
        return y * (1 + 2 * e) / (1 + 2 * e + 2 * e * e)
    return y * e * (e + 2) / (e * (e + 2) + 2)


# Points where some activation is not analytic.
KINKS = (-3.0, -1.0, 0.0, 1.0, 1.5, 3.0, 6.0)

ACTIVATIONS = {
    "identity": lambda y, e: y,
    "relu": lambda y, e: max(y, mpf(0)),
    "leaky_relu": leaky_relu(0.01),
    "leaky_relu(0.2)": leaky_relu(0.2),
    "relu6": lambda y, e: clip(y, 0, 6),
    "relu2": lambda y, e: max(y, mpf(0)) ** 2,
    "abs": lambda y, e: abs(y),
    "step": lambda y, e: mpf(y > 0),
    "jumprelu(1.5)": lambda y, e: y if y > 1.5 else mpf(0),
    "threshold(-1.0,0.5)": lambda y, e: y if y > -1 else mpf(0.5),
    "hardtanh": lambda y, e: clip(y, -1, 1),
    "hardsigmoid": lambda y, e: clip(y + 3, 0, 6) / 6,
    "hardswish": lambda y, e: y * clip(y + 3, 0, 6) / 6,
    "gelu": lambda y, e: y * normal_cdf(y),
    "gelu_tanh": gelu_tanh,
    "quick_gelu": quick_gelu,
    "silu": lambda y, e: y * sigmoid(y, e),
    "sigmoid": sigmoid,
    "logsigmoid": lambda y, e: -softplus(-y, e),
    "tanh": tanh,
    "tanhshrink": tanhshrink,
    "softplus": softplus,
    "softplus(2.0)": lambda y, e: softplus(2 * y, e * e) / 2,
    "softsign": lambda y, e: y / (1 + abs(y)),
    "elu": elu(1.0),
    "elu(0.5)": elu(0.5),
    "selu": elu(1.6732632423543772848170429916717, 1.0507009873554804934193349852946),
    "celu": elu(1.0),
    "celu(2.0)": lambda y, e: y if y > 0 else 2 * (mp.sqrt(e) - 1),
    "mish": mish,
    "erf": erf,
    "sin": lambda y, e: mp.sin(y),
    "cos": lambda y, e: mp.cos(y),
    "gaussian": lambda y, e: mp.exp(-y * y / 2),
    "square": lambda y, e: y * y,
    "cube": lambda y, e: y**3,
}

# The waves oscillate too fast for the panels once s is large, so the file holds their closed forms.
WAVES = ("sin", "cos")


def closed_form_wave(name, m, s):
    """Coefficients and second moment of ``sin`` or ``cos``, from ``E[exp(i (m + s t)) He_k(t)]``."""
    m, s = mpf(m), mpf(s)
    phase = m if name == "sin" else m + mp.pi / 2
    scale = mp.exp(-s * s / 2)
    coefficients = [scale * s**k / mp.factorial(k) * mp.sin(phase + k * mp.pi / 2) for k in range(DEGREE + 1)]
    return coefficients, (1 - mp.exp(-2 * s * s) * mp.cos(2 * phase)) / 2


def y_ladder():
    """Return the y at which panels end: the kinks, powers of two, and integers where activations bend."""
    positive = [2.0**j for j in range(-4, 16)] + [float(n) for n in range(1, 25)]
    return sorted({*KINKS, *positive, *(-y for y in positive)})


def breakpoints(m, s):
    """Sorted ends of the panels in t: a unit grid on [-45, 45], and on to y = 0 where decaying activations have their
    mass, and the images of `y_ladder`. Around the distant image c of a kink they are graded, as the density falls like
    exp(-|c| x) there. Panels wider than 1 are gaps, which have to be negligible.
    """
    zero = -m / s
    near = [mpf(0)] + ([zero] if abs(zero) <= GRID_LIMIT else [])
    low, high = int(mp.floor(min(near))) - REACH, int(mp.ceil(max(near))) + REACH
    ends = [mpf(t) for t in range(low, high + 1)]
    for kink in KINKS:
        c = (kink - m) / s
        if abs(c) > 20:
            offsets = [x for x in (mpf(2) ** j / abs(c) for j in range(10)) if x < 1]
            ends += [c + sign * x for x in (*offsets, 1, 2, 3, 4, 5) for sign in (-1, 1)]
        ends.append(c)
    low, high = min(ends), max(ends)
    ends += [t for t in ((y - m) / s for y in y_ladder()) if low < t < high]
    return merge(sorted(ends))


def merge(ends):
    kept = ends[:1]
    for t in ends[1:]:
        if t - kept[-1] > mp.ldexp(1 + abs(t), -160):
            kept.append(t)
    return kept


def scan_points(a, b):
    """Return a few interior points of a panel, with both ends among them up to a millionth."""
    width = b - a
    margin = mp.ldexp(min(width, mpf(1)), -20)
    count = 2 if width <= 1 else 32
    return [a + margin, *(a + width * j / count for j in range(1, count)), b - margin]


def panel_sizes(m, s, a, b, names):
    """Binary logarithms of what a panel adds to coefficients and second moment, of activations that do not vanish."""
    sizes = {}
    for t in scan_points(a, b):
        y = m + s * t
        e = mp.exp(-abs(y))
        weight = mp.mag(b - a) - int(t * t / 2 * mp.log(mp.e, 2))
        hermite = DEGREE * max(mp.mag(t), 0)
        for name in names:
            value = ACTIVATIONS[name](y, e)
            if value:
                mag = mp.mag(value)
                old = sizes.get(name, (-mp.inf, -mp.inf))
                sizes[name] = (max(old[0], mag + hermite + weight), max(old[1], 2 * mag + weight))
    return sizes


def select_panels(m, s, names):
    """Return the two ends of each panel in t that matters, and the names of the activations for which it does."""
    ends = breakpoints(m, s)
    panels = list(itertools.pairwise(ends))
    with mp.workdps(SCAN_DIGITS):
        sizes = [panel_sizes(m, s, a, b, names) for a, b in panels]
    best = {name: [max(size[name][i] for size in sizes if name in size) for i in (0, 1)] for name in names}
    selected = []
    for (a, b), size in zip(panels, sizes, strict=False):
        wanted = [name for name in size if any(size[name][i] > best[name][i] - DROP_BITS for i in (0, 1))]
        if wanted and b - a > 1 + mpf(2) ** -100:
            raise RuntimeError(f"the gap from t = {float(a)} to {float(b)} matters for {wanted}")
        if wanted:
            selected.append((a, b, wanted))
    return selected


@functools.cache
def legendre_rule():
    """Return the 48 nodes and weights of mpmath's Gauss-Legendre rule on [-1, 1]."""
    rule = GaussLegendre(mp).calc_nodes(5, mp.prec + 20)
    if len(rule) != 48:
        raise RuntimeError("mpmath counts the degree of the rule differently")
    return rule


def panel_rule(a, b):
    """Return the nodes in a panel, and the weights times ``phi(t) He_k(t) / k!`` for each k."""
    half, centre = (b - a) / 2, (a + b) / 2
    scale = half / mp.sqrt(2 * mp.pi)
    nodes, rows = [], []
    for x, weight in legendre_rule():
        t = centre + half * x
        row = [scale * weight * mp.exp(-t * t / 2)]
        row.append(row[0] * t)
        for k in range(1, DEGREE):
            row.append((t * row[k] - row[k - 1]) / (k + 1))
        nodes.append(t)
        rows.append(row)
    return nodes, list(zip(*rows, strict=False))


def integrate(m, s, names):
    """For each name, a_0 ... a_8 and E[act^2] at one point."""
    m, s = mpf(m), mpf(s)
    names = list(names)
    coefficients = {name: [mpf(0)] * (DEGREE + 1) for name in names}
    second = {name: mpf(0) for name in names}
    for a, b, wanted in select_panels(m, s, names):
        nodes, weights = panel_rule(a, b)
        ys = [m + s * t for t in nodes]
        pairs = [(y, mp.exp(-abs(y))) for y in ys]
        for name in wanted:
            act = ACTIVATIONS[name]
            values = [act(y, e) for y, e in pairs]
            coefficients[name] = [c + mp.fdot(values, w) for c, w in zip(coefficients[name], weights, strict=False)]
            second[name] += mp.fdot([v * v for v in values], weights[0])
    return {name: (coefficients[name], second[name]) for name in names}


def reference(m, s):
    """Return the coefficients and second moments of all activations at one point, as `integrate` does."""
    results = integrate(m, s, [name for name in ACTIVATIONS if name not in WAVES])
    results.update((name, closed_form_wave(name, m, s)) for name in WAVES)
    return results


def make_points():
    grids = {
        "ordinary": ((-3.0, -1.0, -0.3, 0.0, 0.5, 2.0, 5.0), (0.1, 0.5, 1.0, 2.0, 5.0)),
        "tiny": ((-20.0, -1.0, -0.001, 0.0, 0.7, 3.0, 1000.0), (1e-8, 1e-4, 1e-2)),
        "huge": ((-1000.0, -50.0, 0.0, 3.0, 200.0), (10.0, 30.0, 100.0, 1000.0)),
        "far": ((-1000.0, -600.0, -100.0, -30.0, -10.0, 10.0, 30.0, 100.0, 600.0, 1000.0), (0.5, 1.0, 3.0, 8.0)),
    }
    points = [(regime, m, s) for regime, (ms, ss) in grids.items() for m in ms for s in ss]
    rng = random.Random(SEED)
    for _ in range(24):
        m = rng.choice((-1.0, 1.0)) * 10.0 ** rng.uniform(-3.0, 3.0)
        points.append(("random", m, 10.0 ** rng.uniform(-8.0, 3.0)))
    for u in (6.5, 9.0, 15.0, 22.0, 30.0, 36.0):
        points += [("tail", -u * s, s) for s in (0.3, 1.0, 7.0)]
    return points


def write():
    points = make_points()
    coefficients = np.zeros((len(ACTIVATIONS), len(points), DEGREE + 1))
    norms = np.zeros((len(ACTIVATIONS), len(points)))
    start = time.monotonic()
    for p, (regime, m, s) in enumerate(points):
        results = reference(m, s)
        for i, name in enumerate(ACTIVATIONS):
            coefficients[i, p] = [float(c) for c in results[name][0]]
            second = results[name][1]
            norms[i, p] = float(mp.log(second) / 2) if second else float("-inf")
        print(f"{p + 1}/{len(points)} {regime} m={m:g} s={s:g}, {time.monotonic() - start:.0f} s", flush=True)
    np.savez_compressed(
        OUTPUT,
        names=np.array(list(ACTIVATIONS)),
        points=np.array([point[1:] for point in points]),
        regimes=np.array([point[0] for point in points], dtype="<U16"),
        coefficients=coefficients,
        log_norm=norms,
    )


if __name__ == "__main__":
    mp.dps = DIGITS
    write()
