"""Rows of data from files."""

import numpy as np
import pytest

from mlpoly.cli.data_files import read_data
from mlpoly.errors import FileFormatError

X = np.arange(6.0).reshape(3, 2) / 4


def text(tmp_path, content, name="data.csv"):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return path


def test_npz_and_npy(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, y=[0, 1, 0], names=["a", "b"])
    x, labels, names = read_data(tmp_path / "a.npz")
    assert (x == X).all() and labels.tolist() == [0, 1, 0] and names == ("a", "b")
    np.savez(tmp_path / "b.npz", pixels=X, kind=["u", "v", "u"])
    x, labels, names = read_data(tmp_path / "b.npz", labels="kind")
    assert (x == X).all() and labels.tolist() == ["u", "v", "u"] and names is None
    np.save(tmp_path / "c.npy", X)
    assert (read_data(tmp_path / "c.npy")[0] == X).all()


def test_csv_with_a_header(tmp_path):
    x, labels, names = read_data(text(tmp_path, '\ufeffage,"bmi, kg/m²",kind\n1,2.5,yes\n3,-4e-1,no\n\n'))
    assert x.tolist() == [[1, 2.5], [3, -0.4]] and names == ("age", "bmi, kg/m²")
    assert labels.tolist() == ["yes", "no"]  # the only column of words


@pytest.mark.parametrize(
    ("labels", "kind", "left"), [("y", "i", ("a", "b")), ("a", "f", ("b", "y")), ("2", "i", ("a", "b"))]
)
def test_labels_are_a_column(tmp_path, labels, kind, left):
    x, found, names = read_data(text(tmp_path, "a;b;y\n0.5;2;3\n4;5;6\n"), labels)
    assert names == left and found.dtype.kind == kind and x.shape == (2, 2)


def test_csv_of_numbers_alone_tabs_and_numbered_rows(tmp_path):
    x, labels, names = read_data(text(tmp_path, "1\t2\n3\t4\n", "data.tsv"))
    assert x.tolist() == [[1, 2], [3, 4]] and names is None and labels is None
    x, _, names = read_data(text(tmp_path, ",a,b\n0,1,2\n1,3,4\n"))
    assert names == ("a", "b") and x.tolist() == [[1, 2], [3, 4]]


def test_missing_cells_are_nan(tmp_path):
    x, _, _ = read_data(text(tmp_path, "a,b\n1,\nNA,4\n?,5\n"))
    assert np.isnan(x).tolist() == [[False, True], [True, False], [True, False]]


def test_nothing_in_a_file_is_run(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{"a": 1}]), allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=np.array([{"a": 1}]))
    for name in ("a.npy", "a.npz"):
        with pytest.raises(FileFormatError, match="would run code"):
            read_data(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "content", "labels", "exception", "message"),
    [
        ("a.csv", "", None, FileFormatError, "not a table"),
        ("a.csv", "a,b\n", None, FileFormatError, "no rows"),
        ("a.csv", "a,b\n1,2\n3,4,5\n", None, FileFormatError, "not a table"),
        ("a.csv", "a,b\nu,v\nw,x\n", None, ValueError, "not numbers: a, b; encode them"),
        ("a.csv", "a,b\n1,2\n", "c", ValueError, "no column 'c'; its columns are a, b"),
        ("a.npz", "no zip file", None, FileFormatError, "not a readable .npz"),
        ("a.npy", "no array", None, FileFormatError, "not a readable .npy"),
        ("a.parquet", "PAR1", None, ValueError, "neither .npy, .npz nor .csv"),
    ],
)
def test_mistakes(tmp_path, name, content, labels, exception, message):
    with pytest.raises(exception, match=message):
        read_data(text(tmp_path, content, name), labels)


def test_other_mistakes(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_data(tmp_path / "none.csv")
    np.savez(tmp_path / "a.npz", one=X, two=X)
    with pytest.raises(FileFormatError, match="no array x, only one, two"):
        read_data(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", x=X)
    with pytest.raises(ValueError, match="no labels 'y', only x"):
        read_data(tmp_path / "b.npz", "y")
    (tmp_path / "d.csv").write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(FileFormatError, match="UTF-8"):
        read_data(tmp_path / "d.csv")
