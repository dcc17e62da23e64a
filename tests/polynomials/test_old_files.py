"""Files of version 0.1 still load; tests/reference/make_old_files.py wrote them with that version."""

from pathlib import Path

import numpy as np
import pytest
from support.backends import assert_close, assert_same_kind, make
from support.polynomials import rewritten

import mlpoly as mp

FOLDER = Path(__file__).parents[1] / "reference" / "polynomials_0.1"
VALUES = dict(np.load(FOLDER / "values.npz"))
KINDS = {
    "ridge": mp.RidgePolynomial,
    "ridge_float32": mp.RidgePolynomial,
    "ridge_hidden": mp.RidgePolynomial,
    "ridge_constant": mp.RidgePolynomial,
    "gated": mp.RidgePolynomial,
    "lines": mp.polynomials.BoundedPolynomial,
    "gated_lines": mp.polynomials.BoundedPolynomial,
    "dense_0": mp.DensePolynomial,
    "dense_1": mp.DensePolynomial,
    "dense_2": mp.DensePolynomial,
    "chaos": mp.ChaosPolynomial,
}
DEGREES = {"ridge_hidden": 2, "ridge_constant": 0, "dense_0": 0, "dense_1": 1, "dense_2": 2}
names = pytest.mark.parametrize("name", KINDS)


def test_there_is_a_file_of_every_kind():
    assert {p.stem for p in FOLDER.glob("*.safetensors")} == set(KINDS)


@names
def test_an_old_file_holds_the_same_polynomial(name):
    poly, x = mp.load(FOLDER / f"{name}.safetensors"), VALUES["x"]
    assert type(poly) is KINDS[name]
    assert (poly.degree, poly.dim_in, poly.dim_out) == (DEGREES.get(name, 3), 3, 4 if name == "ridge_hidden" else 2)
    tolerance = 1e-5 if name == "ridge_float32" else 1e-14
    if "lines" in name:
        assert_close(poly.polynomial(x), VALUES[name], tolerance)
        assert_close(poly(x), VALUES[f"{name}_bounded"], tolerance)
        assert np.abs(poly(x) - poly.polynomial(x)).max() > 1
    else:
        assert_close(poly(x), VALUES[name], tolerance)
    assert poly.inputs is None and len(poly.source.inputs) == 64  # the file has only their fingerprint
    assert poly.source.activation and poly.source.method.startswith("least squares under a Gaussian")


@names
def test_an_old_file_can_be_saved_in_the_layout_of_today(name, tmp_path):
    poly = mp.load(FOLDER / f"{name}.safetensors")
    poly.save(tmp_path / "new")
    again = mp.load(tmp_path / "new")
    np.testing.assert_array_equal(again(VALUES["x"]), poly(VALUES["x"]))
    assert again.source == poly.source


@pytest.mark.parametrize("name", ["gated_lines", "chaos"])
def test_an_old_file_loads_into_any_library(name, backend):
    x = make(VALUES["x"], backend)
    found = mp.load(FOLDER / f"{name}.safetensors", like=x)(x)
    assert_same_kind(found, x)
    assert_close(found, VALUES["gated_lines_bounded" if name == "gated_lines" else name], 10 * backend.tolerance)


@pytest.mark.parametrize("bound", [10**400, float("nan"), -1.0, 0, True, "4", None])
def test_old_lines_of_an_odd_bound_are_refused(bound, tmp_path):
    path = tmp_path / "poly"
    path.write_bytes((FOLDER / "lines.safetensors").read_bytes())
    with pytest.raises(mp.FileFormatError, match=f"the bound {repr(bound)[:4]}.*not a positive number"):
        mp.load(rewritten(path, header={"bound": bound}))


def test_old_lines_without_a_bound_of_their_own_are_still_read(tmp_path):
    path = tmp_path / "poly"
    path.write_bytes((FOLDER / "lines.safetensors").read_bytes())
    found = mp.load(rewritten(path, header={"bound": float("inf")}))
    assert (found.bounds == np.inf).all()
    x = np.full((1, found.dim_in), 1e3)
    assert_close(found(x), found.polynomial(x))
