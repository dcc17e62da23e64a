"""Matrix products that cost less than the plain ones, at the same accuracy."""

import sys
from functools import lru_cache
from typing import Any

from mlpoly.arrays.gaps import chunks
from mlpoly.arrays.namespace import Array, differentiated, is_torch, namespace_of, readable
from mlpoly.arrays.placement import is_low_precision, promote

_LARGE = 1024  # smallest side of a matrix for which the detours pay
_BLOCKS = 4  # of the triangle: 5/8 of the products; more blocks save little and are slower each
# Longest sum within tensor cores, which cut off digits where others round: on an H200 3e-7 of a quadratic form are lost
# (1e-6 with 1024, 4e-6 with 4096), twice what a float32 product loses at most; of single entries a quarter of that.
_RUN = 256


def product(left: Array, right: Array) -> Array:
    """Matrix product of (m, k) and (k, n) in the wider dtype of the two, 16 bits counted as float32.

    Large float32 products on GPUs of Hopper's kind are sums of products of their pieces in bfloat16, which run fifteen
    times as fast. Three pieces of 8 bits hold the 24 bits of a float32; the pairs that are left out are below its
    rounding.
    """
    if not _in_pieces(left, right):
        left, right = promote(left, right)
        return left @ right
    # The pairs side by side are one product; the small ones first, so that their digits are not lost.
    firsts, seconds = _pieces(left), _pieces(right)
    pairs = [(i, j) for i in range(len(firsts)) for j in range(len(seconds)) if i + j < 3]
    pairs.sort(key=sum, reverse=True)
    cat, total = sys.modules["torch"].cat, None
    for part in chunks(left.shape[1], _RUN):
        one = cat([firsts[i][:, part] for i, _ in pairs], dim=1)
        total = _add_product(total, one, cat([seconds[j][part, :] for _, j in pairs]))
    return total


def quadratic_forms(rows: Array, matrix: Array) -> Array:
    """Quadratic forms w' S w (m,) of rows w (m, d); of a large symmetric S (d, d) only its upper blocks."""
    xp = namespace_of(rows)
    size = -(-matrix.shape[0] // _BLOCKS)
    if size < _LARGE // _BLOCKS or differentiated(matrix):  # whose gradient is to be symmetric
        wide, spread = promote(rows, product(rows, matrix))
        return xp.vecdot(spread, wide)
    total = 0.0
    for part in chunks(matrix.shape[0], size):
        above = matrix[: part.start, part]
        folded = xp.concat([2 * above, matrix[part, part]]) if part.start else matrix[part, part]
        own, wide = promote(product(rows[:, : part.stop], folded), rows[:, part])
        total = total + xp.vecdot(own, wide)
    return total


def _in_pieces(left: Array, right: Array) -> bool:
    """Whether a product is one of large matrices in float32 or bfloat16 on a GPU that is made for the latter."""
    if not (is_torch(left) and left.is_cuda and min(*left.shape, *right.shape) >= _LARGE):
        return False
    if differentiated(left) or differentiated(right) or not readable(left, right):
        return False
    torch = sys.modules["torch"]
    dtypes = {left.dtype, right.dtype}
    return torch.float32 in dtypes and dtypes <= {torch.float32, torch.bfloat16} and _has(left.device)


@lru_cache
def _has(device: Any) -> bool:
    """Whether 16-bit products with results in float32 are there, and fast."""
    torch = sys.modules["torch"]
    if torch.version.cuda is None or torch.cuda.get_device_capability(device) < (9, 0):
        return False
    one = torch.ones(16, 16, dtype=torch.bfloat16, device=device)
    try:
        return bool(_add_product(_add_product(None, one, one), one, one)[0, 0] == 32)
    except (TypeError, RuntimeError):
        return False


def _add_product(total: Array | None, left: Array, right: Array) -> Array:
    """`total + left @ right` of matrices in bfloat16, in the float32 memory of `total` if there is one."""
    torch = sys.modules["torch"]
    if total is None:
        return torch.mm(left, right, out_dtype=torch.float32)
    return torch.addmm(total, left, right, out_dtype=torch.float32, out=total)


def _pieces(a: Array) -> list[Array]:
    """A matrix as a sum of matrices in bfloat16, to all digits."""
    bfloat16 = sys.modules["torch"].bfloat16
    pieces = [a.to(bfloat16)]
    if not is_low_precision(a.dtype):
        for _ in range(2):
            a = a - pieces[-1]
            pieces.append(a.to(bfloat16))
    return pieces
