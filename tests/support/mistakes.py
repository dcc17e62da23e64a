"""Tables of mistakes: label, what the user does, exception, and patterns that its message matches.

The first pattern names the argument, the second the remedy.
"""

import pytest


def mistakes(table):
    """Parametrize a test with the rows of a table, as `act`, `exception` and `patterns`."""
    rows = [pytest.param(act, exception, patterns, id=label) for label, act, exception, *patterns in table]
    return pytest.mark.parametrize(("act", "exception", "patterns"), rows)


def assert_explained(act, exception, patterns):
    with pytest.raises(exception) as caught:
        act()
    for pattern in patterns:
        caught.match(pattern)
