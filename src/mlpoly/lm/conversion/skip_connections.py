"""Starting points for the skip connections of sparsify's transcoders."""

from __future__ import annotations

import torch
from torch import Tensor

from mlpoly.arrays import to_numpy
from mlpoly.polynomials import Polynomial, RidgePolynomial


def skip_initialiser(poly: Polynomial) -> tuple[Tensor, Tensor]:
    """Return the affine part of a block's polynomial, as a transcoder with a skip connection takes it.

    A `SparseCoder` of EleutherAI's sparsify with ``transcode`` and ``skip_connection`` computes
    ``decode(latents) + x @ W_skip.mT + b_dec``, and starts with a decoder of zeros. With these two it starts at the
    best affine map of its block, and its latents are free for what is not linear:

        W_skip, b_dec = skip_initialiser(poly)
        coder.W_skip.data.copy_(W_skip)
        coder.b_dec.data.copy_(b_dec)

    Parameters
    ----------
    poly : Polynomial
        Polynomial of degree 1, or a ridge polynomial of any degree, of which the part of degree 1 is taken: under one
        Gaussian that is the best affine map.

    Returns
    -------
    W_skip : Tensor (o, d)
    b_dec : Tensor (o,)

    Raises
    ------
    ValueError
        If the part of degree 1 of the polynomial is not the best affine map.

    Examples
    --------
    >>> import torch, mlpoly as mp
    >>> from mlpoly.lm import skip_initialiser
    >>> net = mp.GLU(torch.randn(8, 4), None, torch.randn(8, 4), None, torch.randn(4, 8), None)
    >>> W_skip, b_dec = skip_initialiser(mp.fit(net, mp.Gaussian.standard(4), degree=1))
    >>> W_skip.shape, b_dec.shape
    (torch.Size([4, 4]), torch.Size([4]))
    """
    if not isinstance(poly, Polynomial):
        raise TypeError(f"poly must be a polynomial made by mlpoly.fit or mlpoly.load, got {type(poly).__name__}.")
    if poly.degree > 1 and not isinstance(poly, RidgePolynomial):
        raise ValueError(
            f"poly is a {type(poly).__name__} of degree {poly.degree}, whose part of degree 1 is not the best affine "
            f"map; fit one with degree=1."
        )
    affine = poly.truncate(1) if isinstance(poly, RidgePolynomial) else poly
    coefficients = affine.coefficients()
    return _tensor(coefficients.linear), _tensor(coefficients.constant)


def _tensor(array: object) -> Tensor:
    return array.detach().clone() if isinstance(array, Tensor) else torch.from_numpy(to_numpy(array).copy())
