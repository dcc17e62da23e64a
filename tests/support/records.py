"""Comparison of records, field by field."""

import dataclasses
import math

import numpy as np


def assert_equal(a, b, where=""):
    """The same types all the way down, NaN equal to NaN, arrays of the same dtype."""
    assert type(a) is type(b), where
    if dataclasses.is_dataclass(a):
        for f in dataclasses.fields(a):
            assert_equal(getattr(a, f.name), getattr(b, f.name), f"{where}.{f.name}")
    elif isinstance(a, (tuple, list)):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_equal(x, y, f"{where}.{i}")
    elif isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b, strict=True, err_msg=where)
    elif isinstance(a, float) and math.isnan(a):
        assert math.isnan(b), where
    else:
        assert a == b, where
