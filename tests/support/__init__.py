"""Helpers of the tests, with assertions that show their values as those of tests do."""

import pkgutil

import pytest

pytest.register_assert_rewrite(*(module.name for module in pkgutil.iter_modules(__path__, "support.")))
