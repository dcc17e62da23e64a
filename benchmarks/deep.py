"""Deep networks: the closest linear and quadratic map, composed polynomials, moments, and their quality.

Networks with two to four hidden layers of 256 units are trained on MNIST, which must be in a folder that MLPOLY_DATA
names; with ``--tiny`` a few made-up classes take its place. Everything runs in float64, on the GPU where there is one.
"""

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import nn

import mlpoly as mp
from benchmarks.common import save, synchronise, write
from benchmarks.gpu import DEVICE
from benchmarks.mixture import classes
from mlpoly.networks.jacobian import jacobian

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}
COMPOSED = (2, 3, 5, 7)
ORDERS = (2, 3)  # of the cumulants that are propagated
_ROWS = 2**16  # samples evaluated at once


def trained(x: torch.Tensor, y: torch.Tensor, activation: str, layers: int, width: int, steps: int) -> mp.Chain:
    """A classifier with some hidden layers, trained with Adam for a few epochs."""
    torch.manual_seed(0)
    sizes = [x.shape[1], *[width] * layers]
    parts = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), ACTIVATIONS[activation]())]
    net = nn.Sequential(*parts, nn.Linear(width, int(y.max()) + 1)).to(x.device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    single = x.float()
    for _ in range(steps):
        batch = torch.randint(len(x), (128,), device=x.device)
        loss = nn.functional.cross_entropy(net(single[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return mp.from_torch(net.double().requires_grad_(False))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Result and seconds of a call, made a second time so that nothing is compiled or allocated first."""
    work()
    synchronise(DEVICE)
    began = time.perf_counter()
    found = work()
    synchronise(DEVICE)
    return found, time.perf_counter() - began


def samples(inputs: Any, draws: int, seed: int) -> Iterator[torch.Tensor]:
    """Samples of a Gaussian or a mixture in chunks, drawn on the device: NumPy's generator would take minutes."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    for start in range(0, draws, _ROWS):
        rows = min(_ROWS, draws - start)
        counts = torch.multinomial(inputs.weights, rows, replacement=True, generator=generator).bincount()
        noise = torch.randn(rows, inputs.dim, device=DEVICE, generator=generator, dtype=torch.float64)
        parts = zip(inputs.components, noise.split(counts.tolist()), strict=False)
        yield torch.cat([component.colour(part) for component, part in parts])


class Judge:
    """Errors of several models on the same fresh samples of the inputs."""

    def __init__(self, net: mp.Chain, inputs: Any, draws: int) -> None:
        self.chunks = [(x, net(x)) for x in samples(inputs, draws, seed=1)]
        f = torch.cat([f for _, f in self.chunks])
        self.variance = float((f - f.mean(0)).square().sum(1).mean())
        self.draws = draws

    def fvu(self, poly: Callable[[torch.Tensor], torch.Tensor]) -> float:
        """Fraction of variance unexplained."""
        missed = sum(float((f - poly(x)).square().sum()) for x, f in self.chunks)
        return missed / self.draws / self.variance


# -- other ways --------------------------------------------------------------------------------------------------------


def taylor(net: mp.Chain, inputs: Any, degree: int) -> mp.polynomials.DensePolynomial:
    """Taylor expansion at the mean, the way of nn2poly; a ReLU network has no second derivative there."""
    at = inputs.mean[None, :]
    linear = jacobian(net, at)[0]
    quadratic = None
    if degree == 2:
        step = 1e-4  # second derivatives by differences of the Jacobian, in the forms that the first layer sees
        forms = torch.linalg.qr(net.entry.T).Q  # (d, r)
        moves = step * forms.T
        bends = (jacobian(net, at + moves) - jacobian(net, at - moves)) @ forms / (2 * step)  # (r, o, r)
        bends = bends.permute(1, 0, 2) / 2
        quadratic = forms @ (bends + bends.mT) @ forms.T / 2
    return mp.polynomials.DensePolynomial(inputs.mean, net(at)[0], linear, quadratic)


def monte_carlo(
    net: mp.Chain, inputs: mp.Gaussian, poly: mp.polynomials.DensePolynomial, seconds: float
) -> mp.polynomials.DensePolynomial:
    """The coefficients E[f z] and E[f (z z' - I)] / 2 as plain averages, for as long as the closed form takes."""
    forward = poly.directions
    r, o, n = forward.shape[0], net.dim_out, 0
    mean, linear = torch.zeros(o, device=DEVICE).double(), torch.zeros(o, r, device=DEVICE).double()
    quadratic = torch.zeros(o, r, r, device=DEVICE).double()
    began = time.perf_counter()
    generator = torch.Generator(DEVICE).manual_seed(0)
    root = inputs.root
    while not n or time.perf_counter() - began < seconds:
        x = inputs.mean + torch.randn(4096, inputs.dim, device=DEVICE, generator=generator, dtype=torch.float64) @ root
        z, f = (x - inputs.mean) @ forward.T, net(x)
        mean, linear, n = mean + f.sum(0), linear + f.T @ z, n + len(x)
        for i in range(o):
            quadratic[i] += (z * f[:, i : i + 1]).T @ z
        synchronise(DEVICE)
    mean, quadratic = mean / n, quadratic / n
    quadratic = (quadratic - mean[:, None, None] * torch.eye(r, device=DEVICE)) / 2
    constant = mean - quadratic.diagonal(dim1=1, dim2=2).sum(1)
    return mp.polynomials.DensePolynomial(inputs.mean, constant, linear / n, quadratic, forward)


def regression(
    net: mp.Chain, inputs: mp.Gaussian, poly: mp.polynomials.DensePolynomial, count: int, degree: int
) -> Any:
    """Least squares on samples over the monomials of what the first layer sees, by normal equations."""
    forward = poly.directions
    r = forward.shape[0]
    upper = torch.triu_indices(r, r, device=DEVICE)

    def features(z: torch.Tensor) -> torch.Tensor:
        parts = [torch.ones_like(z[:, :1]), z]
        return torch.cat([*parts, z[:, upper[0]] * z[:, upper[1]]] if degree == 2 else parts, 1)

    gram, right = None, None
    for x in (part for whole in samples(inputs, count, seed=2) for part in whole.split(4096)):
        rows = features((x - inputs.mean) @ forward.T)
        gram = rows.T @ rows if gram is None else gram.addmm_(rows.T, rows)
        right = rows.T @ net(x) if right is None else right + rows.T @ net(x)
    gram.diagonal().add_(1e-9 * gram.diagonal().mean())
    solved = torch.cholesky_solve(right, torch.linalg.cholesky(gram))
    del gram
    return lambda x: features((x - inputs.mean) @ forward.T) @ solved


def variances_only(net: mp.Chain, inputs: Any) -> torch.Tensor:
    """Covariance of the outputs if only variances are carried from layer to layer (assumed density filtering)."""
    for layer in net.layers:
        behind = mp.propagate(layer, inputs)[0]
        inputs = mp.Gaussian(behind.mean, behind.cov.diagonal().clone())
    return torch.diag(inputs.cov)


# -- what is measured --------------------------------------------------------------------------------------------------


def fits(net: mp.Chain, inputs: Any, name: str, tiny: bool, peers: bool) -> tuple[dict[str, float], dict[str, float]]:
    """FVU of every way, the optimum's first, and seconds."""
    judge = Judge(net, inputs, 2**12 if tiny else 2**19)
    found: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for degree in (1, 2):
        closed, took = timed(lambda degree=degree: mp.fit(net, inputs, degree))
        tight = mp.methods.Sampled(0.3, 2**12) if tiny else mp.methods.Sampled(1e-3, 2**22)
        best = mp.fit(net, inputs, degree, method=tight)
        sampled, sampling = timed(lambda degree=degree: mp.fit(net, inputs, degree, method="sampled"))
        optimum = judge.fvu(best)
        found |= {
            f"degree {degree}, optimum": optimum,
            f"degree {degree}, closed form": judge.fvu(closed),
            f"degree {degree}, sampled": judge.fvu(sampled),
            f"degree {degree}, Taylor at the mean": judge.fvu(taylor(net, inputs, degree)),
        }
        seconds |= {f"degree {degree}, closed form": took, f"degree {degree}, sampled": sampling}
        if peers and isinstance(inputs, mp.Gaussian):
            found[f"degree {degree}, regression on as many samples"] = judge.fvu(
                regression(net, inputs, closed, int(sampled.report.details["samples"]), degree)
            )
            if degree == 2:
                found["degree 2, plain Monte Carlo in equal time"] = judge.fvu(monte_carlo(net, inputs, closed, took))
    for degree in COMPOSED[:2] if tiny else COMPOSED:
        poly = mp.fit(net, inputs, degree, method="composed")
        found[f"composed, degree {degree}, lines beyond 3"] = judge.fvu(poly.bounded(3.0))
        found[f"composed, degree {degree}, guarded"] = judge.fvu(poly)
        found[f"composed, degree {degree}, neither"] = judge.fvu(
            mp.fit(net, inputs, degree, method=mp.methods.Composed(0))
        )
    print(f"\n{name}", *(f"{k}: {v:.4g}" for k, v in found.items()), sep="\n  ", flush=True)
    return found, seconds


def covariances(net: mp.Chain, mixture: mp.GaussianMixture, tiny: bool) -> dict[str, float]:
    """Relative errors of the covariance of the logits under the mixture of classes, in the Frobenius norm."""
    total, many = mp.MomentAccumulator(net.dim_out), 2**14 if tiny else 10_000_000
    for x in samples(mixture, many, seed=3):
        total.update(net(x))
    truth = total.gaussian().cov
    few = torch.cov(net(mixture.sample(20_000, seed=4)).T)
    one = mp.Gaussian(mixture.mean, mixture.covariance)
    found = {
        "20 000 samples": few,
        "variances only": variances_only(net, one),
        "one Gaussian": mp.propagate(net, one)[-1].cov,
        "mixture": mp.propagate(net, mixture)[-1].cov,
    }
    return {name: float((cov - truth).norm() / truth.norm()) for name, cov in found.items()}


def random_networks(layers: int, width: int, networks: int, samples: int) -> dict[str, float]:
    """Mean square error of the means of the last hidden layer of random ReLU networks under N(0, I)."""
    errors: dict[str, list[float]] = {}
    for seed in range(networks):
        generator = torch.Generator(DEVICE).manual_seed(seed)
        weights = [
            torch.randn(width, width, device=DEVICE, generator=generator, dtype=torch.float64) * (2 / width) ** 0.5
            for _ in range(layers)
        ]
        net, inputs = mp.Chain([mp.MLP(w) for w in weights]), mp.Gaussian.standard(width)
        truth = sum(
            net(torch.randn(_ROWS, width, device=DEVICE, generator=generator, dtype=torch.float64)).mean(0)
            for _ in range(samples // _ROWS)
        ) / (samples // _ROWS)
        for order in ORDERS:
            mean = mp.propagate(net, inputs, cumulants=order)[-1].mean
            errors.setdefault(f"order {order}", []).append(float((mean - truth).square().mean()))
    return {name: sum(values) / len(values) for name, values in errors.items()}


def main(tiny: bool = False) -> None:
    """Run on the GPU, or on the CPU where there is none."""
    x, y, mixture = classes(tiny)
    gaussian = mp.Gaussian.from_samples(x)
    width, steps, depths = (8, 30, (2,)) if tiny else (256, 3000, (2, 3, 4))
    results: dict[str, Any] = {"tables": {}}
    for layers in (4, 8):
        case = (layers, 16, 1, 2**17) if tiny else (layers, 256, 4, 10_000_000)
        for name, error in random_networks(*case).items():
            results[f"random networks, 256 x {layers}: mean square error of the means, {name}"] = error
    for activation in ["relu"] if tiny else ACTIVATIONS:
        for layers in depths:
            net = trained(x, y, activation, layers, width, steps)
            title = f"{activation}, {layers} layers"
            for inputs, under in ((gaussian, "N(mean, cov)"), (mixture, "classes")):
                found, seconds = fits(net, inputs, f"{title}, {under}", tiny, peers=layers == 3 or tiny)
                results["tables"][f"{title}, {under}"] = {"fvu": found, "seconds": seconds}
                for degree in (1, 2):
                    ratio = found[f"degree {degree}, closed form"] / found[f"degree {degree}, optimum"]
                    results[f"{title}, {under}: degree {degree}, FVU of closed form / optimum"] = ratio
                    ratio = found[f"degree {degree}, sampled"] / found[f"degree {degree}, optimum"]
                    results[f"{title}, {under}: degree {degree}, FVU of sampled / optimum"] = ratio
            if activation == "relu":
                for name, error in covariances(net, mixture, tiny).items():
                    results[f"{title}: error of the covariance of the logits, {name}"] = error
            write("deep", results)
    save("deep", results)


if __name__ == "__main__":
    main()
