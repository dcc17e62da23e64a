"""Fine-tuning of a fitted polynomial by schedule-free descent on samples (the paper's appendix B)."""

import math
from typing import Literal

from mlpoly.arrays import as_integer, cast_like, namespace
from mlpoly.extras import explain_missing
from mlpoly.inputs import InputsLike, checked_inputs
from mlpoly.networks import Network, check_network
from mlpoly.polynomials import ChaosPolynomial, DensePolynomial, Polynomial, RidgePolynomial, to_dense
from mlpoly.records import replace


def finetune(
    net: Network,
    poly: Polynomial,
    inputs: InputsLike,
    *,
    steps: int = 200,
    batch_size: int = 1024,
    learning_rate: float | None = None,
    loss: Literal["mse", "kl"] = "mse",
    seed: int = 0,
) -> DensePolynomial | ChaosPolynomial:
    """Improve a polynomial on samples of inputs that are not Gaussian, by schedule-free gradient descent.

    It looks at the error on held-out samples after every twentieth of the steps, and returns the best iterate if that
    beats the start by more than three standard errors of the difference; otherwise the start. Needs PyTorch and the
    package ``schedulefree``, whatever the array library of the polynomial. For a mixture and on samples, ``fit`` finds
    the optimum directly; ``method="joint"`` that of all neurons.

    Parameters
    ----------
    net : network
        Network in the array library and on the device of the polynomial.
    poly : DensePolynomial, ChaosPolynomial, or RidgePolynomial of degree up to 2
        Start of the descent, all of whose coefficients are trained; a ridge polynomial is made dense.
    inputs : Gaussian, GaussianMixture, Samples, array (n, d) or data frame
        Source of the batches: fresh draws at each step, or random rows. 4096 draws are held out, or up to a fifth of
        the rows, which are then excluded from training.
    steps, batch_size : int
        Number of steps, and of samples in each.
    learning_rate : float, optional
        In units of 1 / (largest curvature of the loss on a batch), measured at the start for each group of
        coefficients. By default 5; each time that diverges, it is divided by four and the descent resumes from the
        best iterate.
    loss : {"mse", "kl"}
        Squared error, or divergence of the softmax of the polynomial from that of the network; of the sigmoid for a
        network with one output.
    seed : int
        Seed of samples and batches: equal seeds give equal results on one machine.

    Returns
    -------
    DensePolynomial or ChaosPolynomial
        In the array library, dtype and device of `poly`. Its ``.report`` is of the held-out samples: ``fvu``, and
        ``history``, pairs of a step and the FVU, or with ``loss="kl"`` the divergence in nats. Its details are
        ``fvu_before``, of the start, ``best_step``, whose iterate is returned (0 for the start), ``reason``, why it
        ended ("steps", or with a warning "diverged" or "interrupted"), ``standard_error`` of the gain, the last
        ``learning_rate``, and for "kl" the divergences ``kl_before`` and ``kl``.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> rng = np.random.default_rng(0)
    >>> net = mp.MLP(rng.standard_normal((8, 3)), None, rng.standard_normal((1, 8)), None, "relu")
    >>> x = rng.uniform(-2, 3, (5000, 3))
    >>> better = mp.finetune(net, mp.fit(net, mp.Gaussian.standard(3)), x, steps=50)
    >>> better.report.fvu < 0.5 * better.report.details["fvu_before"]
    True
    """
    steps, batch_size = as_integer("steps", steps, 1), as_integer("batch_size", batch_size, 1)
    seed = as_integer("seed", seed, 0)
    if loss not in ("mse", "kl"):
        raise ValueError(f"loss must be 'mse' or 'kl', got {loss!r}.")
    if learning_rate is not None and not (learning_rate > 0 and math.isfinite(learning_rate)):
        raise ValueError(f"learning_rate must be positive and finite, got {learning_rate}.")
    if not isinstance(poly, Polynomial):
        raise TypeError(
            f"poly must be a polynomial, got {type(poly).__name__}; the order is finetune(net, poly, inputs)."
        )
    net = check_network(net)
    if (net.dim_in, net.dim_out) != (poly.dim_in, poly.dim_out):
        raise ValueError(
            f"net maps {net.dim_in} -> {net.dim_out}, but poly maps {poly.dim_in} -> {poly.dim_out}; "
            f"was the polynomial fitted to another network?"
        )
    namespace(poly=poly.prototype, net=net.prototype)
    inputs = checked_inputs(net, inputs)
    if isinstance(poly, RidgePolynomial) and poly.degree <= 2:
        poly = replace(to_dense(poly, cast_like(inputs.mean, poly.prototype)), source=poly.source, inputs=poly.inputs)
    if not isinstance(poly, DensePolynomial | ChaosPolynomial):
        kind = f"a {type(poly).__name__} of degree {poly.degree}"
        raise TypeError(f"poly is {kind}; neurons are fitted to data by mlpoly.fit(net, x, degree, method='joint').")
    with explain_missing("finetune"):
        from mlpoly.fitting.descent import Descent  # needs torch and schedulefree
    found = Descent(net, poly, inputs, steps, batch_size, learning_rate, loss, seed).result(inputs)
    return replace(found, output_names=poly.output_names)
