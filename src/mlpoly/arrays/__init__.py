"""The only folder that knows which array library is in use (NumPy, PyTorch, JAX).

Everything else asks :func:`namespace` for the array-API namespace of its arguments and writes one formula.
"""

from mlpoly.arrays.checks import (
    as_float_array,
    as_integer,
    as_number,
    check_columns,
    check_finite,
    check_names,
    check_output,
    check_points,
    check_shape,
    column_names,
)
from mlpoly.arrays.gaps import (
    accumulate_product,
    add_at,
    add_product,
    chunks,
    erf,
    erfc,
    no_gradients,
    positive_semidefinite,
    relu,
    safe_inverse,
    safe_root,
    scan,
    stop_gradient,
    triangular_factor,
)
from mlpoly.arrays.namespace import (
    Array,
    decidable,
    device,
    differentiated,
    interchangeable,
    namespace,
    namespace_of,
    on_cpu,
    readable,
)
from mlpoly.arrays.placement import (
    Library,
    astype,
    cast_like,
    cast_result,
    constant,
    constant_index,
    eye,
    from_numpy,
    is_low_precision,
    on,
    promote,
    rounding_error,
    scalar,
    start_copy,
    take_rows,
    to_numpy,
    widen,
)
from mlpoly.arrays.products import product, quadratic_forms

__all__ = [
    "Array", "Library", "accumulate_product", "add_at", "add_product", "as_float_array", "as_integer", "as_number",
    "astype", "cast_like", "cast_result", "check_columns", "check_finite", "check_names", "check_output",
    "check_points", "check_shape", "chunks", "column_names", "constant", "constant_index", "decidable", "device",
    "differentiated", "erf", "erfc", "eye", "from_numpy", "interchangeable", "is_low_precision", "namespace",
    "namespace_of", "no_gradients", "on", "on_cpu", "positive_semidefinite", "product", "promote",
    "quadratic_forms", "readable", "relu", "rounding_error", "safe_inverse", "safe_root", "scalar", "scan",
    "start_copy", "stop_gradient", "take_rows", "to_numpy", "triangular_factor", "widen",
]  # fmt: skip
