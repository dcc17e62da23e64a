"""Write the polynomial files of version 0.1 that tests/polynomials/test_old_files.py reads.

Run it with that version installed:

    python tests/reference/make_old_files.py FOLDER

Layout 1 is that of polynomials without straight lines, layout 2 of those with them.
"""

import sys
from pathlib import Path

import numpy as np
from mlpoly.fitting.tails import with_tails

import mlpoly as mp

D, H, OUT, BOUND = 3, 4, 2, 1.5


def main(folder: Path) -> None:
    rng = np.random.default_rng(0)
    W, b, V, c, R, r = (rng.standard_normal(s) for s in ((H, D), H, (H, D), H, (OUT, H), OUT))
    mlp, glu = mp.MLP(W, b, R, r, "gelu"), mp.GLU(W, b, V, c, R, r, "silu")
    a = rng.standard_normal((D, D))
    gaussian = mp.Gaussian(rng.standard_normal(D), a @ a.T)
    mixture = mp.GaussianMixture(np.array([0.4, 0.6]), rng.standard_normal((2, D)), np.stack([np.eye(D), a @ a.T]))
    polynomials = {
        "ridge": mp.fit(mlp, gaussian, 3),
        "ridge_float32": mp.fit(
            mp.MLP(*(v.astype("f4") for v in (W, b, R, r)), "gelu"),
            mp.Gaussian(gaussian.mean.astype("f4"), gaussian.cov.astype("f4")),
            3,
        ),
        "ridge_hidden": mp.fit(mp.MLP(W), gaussian, 2),
        "ridge_constant": mp.fit(glu, gaussian, 0),
        "gated": mp.fit(glu, gaussian, 3),
        "lines": with_tails(mlp, mp.fit(mlp, gaussian, 3), BOUND),
        "gated_lines": with_tails(glu, mp.fit(glu, gaussian, 3), BOUND),
        "dense_0": mp.fit(mlp, mixture, 0),
        "dense_1": mp.fit(mlp, mixture, 1),
        "dense_2": mp.fit(glu, mixture, 2),
        "chaos": mp.fit(mlp, mixture, 3),
    }
    x = 3 * rng.standard_normal((9, D))
    values = {"x": x}
    for name, poly in polynomials.items():
        poly.save(folder / f"{name}.safetensors")
        values[name] = poly(x)
        if "lines" in name:
            values[f"{name}_bounded"] = poly(x, bound=BOUND)
    np.savez(folder / "values.npz", **values)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
