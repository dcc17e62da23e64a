"""Inputs that are no Gaussian: least squares on the data themselves, beside the closed form of their moments.

    python examples/uniform_inputs.py

24 tanh units on inputs that are uniform on a cube. The Gaussian with the mean and covariance of the data puts mass
where there is none; `mlpoly.Samples` fits where the data are, and equals plain least squares on all monomials.
"""

import itertools

import numpy as np

import mlpoly as mp
from mlpoly.scores import fvu_of_outputs


def main() -> None:
    rng = np.random.default_rng(0)
    net = mp.MLP(1.5 * rng.normal(size=(24, 3)), rng.normal(size=24), rng.normal(size=(2, 24)), None, activation="tanh")
    x, held_out = rng.uniform(-1, 1, size=(2, 20_000, 3))
    data = mp.Samples(x)
    print("fraction of variance unexplained on held-out points")
    print("degree  terms  closed form of the moments  samples  numpy.linalg.lstsq")
    for degree in (1, 3, 5, 7):
        closed, fitted = mp.fit(net, mp.Gaussian.from_samples(x), degree), mp.fit(net, data, degree)
        powers = [a for k in range(degree + 1) for a in itertools.combinations_with_replacement(range(3), k)]
        rows, points = (np.stack([np.prod(v[:, list(a)], axis=1) for a in powers], axis=1) for v in (x, held_out))
        plain = points @ np.linalg.lstsq(rows, net(x), rcond=None)[0]
        f = net(held_out)
        errors = [fvu_of_outputs(f, outputs) for outputs in (closed(held_out), fitted(held_out), plain)]
        print(f"{degree:6d}  {len(powers):5d}  {errors[0]:26.6f}  {errors[1]:.6f}  {errors[2]:.6f}")


if __name__ == "__main__":
    main()
