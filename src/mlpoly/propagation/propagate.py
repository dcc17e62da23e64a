"""Moments behind every layer of a deep network."""

from collections.abc import Iterator
from typing import Literal

from mlpoly.arrays import Array, namespace, readable, safe_root, scalar, to_numpy, widen
from mlpoly.arrays.host import by_value
from mlpoly.inputs import Gaussian, GaussianMixture, Gaussians, checked_inputs, require_gaussians
from mlpoly.networks import Chain, Network, check_network, walk
from mlpoly.progress_bars import progress_bar
from mlpoly.propagation.closure import Closure, State
from mlpoly.propagation.third_cumulants import ThirdCumulants, takes_third_cumulants
from mlpoly.records import record
from mlpoly.tables import Plottable, Table, Tabular


@record
class LayerMoments(Tabular, Plottable):
    """Distribution of the outputs of one layer of a chain.

    Attributes
    ----------
    outputs : Gaussian or GaussianMixture
        Distribution behind the layer, one component for each that entered the network.
    skewness : array (c, h), or (c, 2 h) for gated units
        Estimated skewness of the preactivations that enter the layer, for each component; of a residual connection
        those that enter its first layer.
    excess : array ()
        Estimated error of the units' means, in standard deviations of the units, root mean square; of a residual
        connection the largest of its layers. Zero for the first hidden layer, whose moments are exact; above about 0.05
        do not trust the moments behind it without a check on samples. Covariances may be further off.
    """

    outputs: Gaussian | GaussianMixture
    skewness: Array
    excess: Array

    @property
    def mean(self) -> Array:
        """Mean (o,) of the outputs."""
        return self.outputs.mean

    @property
    def cov(self) -> Array:
        """Covariance (o, o) of the outputs, that between components included."""
        return self.outputs.covariance

    def _table(self) -> Table:
        variance = to_numpy(self.cov).diagonal().clip(min=0)
        rows = zip(range(len(variance)), to_numpy(self.mean).tolist(), (variance**0.5).tolist(), strict=True)
        note = f"excess {scalar(self.excess):.2g}"
        return Table(("output", "mean", "standard deviation"), tuple(rows), note=note, limit=20)

    def __repr__(self) -> str:
        if not readable(self.excess):
            return "LayerMoments(traced)"
        return f"LayerMoments({self.outputs!r}, excess={scalar(self.excess):.2g})"


@record
class Propagation(Tabular, Plottable):
    """Moments behind every layer of a network: a sequence of `LayerMoments`, one for each layer of a chain."""

    layers: tuple[LayerMoments, ...]

    def __getitem__(self, index: int) -> LayerMoments:
        return self.layers[index]

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[LayerMoments]:
        return iter(self.layers)

    def _table(self) -> Table:
        rows = []
        for i, layer in enumerate(self.layers):
            mean, cov = to_numpy(layer.mean).astype(float), to_numpy(layer.cov).astype(float)
            sizes = ((mean**2).mean() ** 0.5).item(), max(cov.trace() / len(mean), 0.0) ** 0.5
            rows.append((i, len(mean), *sizes, scalar(layer.excess)))
        columns = ("layer", "outputs", "mean (rms)", "standard deviation (rms)", "excess")
        return Table(columns, tuple(rows), note="rms: root mean square over the outputs")

    def __repr__(self) -> str:
        return "\n".join(["Propagation", *(f"  {i}: {layer!r}" for i, layer in enumerate(self.layers))])


@by_value
def propagate(net: Network, inputs: Gaussians, cumulants: Literal[2, 3] = 2) -> Propagation:
    """Mean and covariance behind every layer of a network, without sampling (MATH 9).

    Every component of the inputs goes through the network by itself. Behind the first hidden layer its moments are
    exact; from there on the values that enter a layer are taken as Gaussian, with their covariance. That is close if
    layers are wide or components are narrow, and `LayerMoments.excess` estimates what it ignores.

    Parameters
    ----------
    net : network
    inputs : Gaussian or GaussianMixture
    cumulants : {2, 3}
        With 3 the values that enter a layer may be skewed, and their variances may fluctuate together (fourth
        cumulants of pairs): on random networks of width 256 the mean square error of the means is about sixty times
        smaller, at twice the cost. Not where `excess` stays above 0.05, as it may with very few inputs. For chains of
        `MLP`s; gated units and residual connections need 2.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> deep = mp.Chain([mp.MLP(np.eye(2), activation="square"), mp.MLP(np.ones((1, 2)), activation="square")])
    >>> [layer.mean.tolist() for layer in mp.propagate(deep, mp.Gaussian.standard(2))]  # E[(x0^2 + x1^2)^2] = 8
    [[1.0, 1.0], [8.0]]
    """
    check_network(net)
    inputs = require_gaussians(checked_inputs(net, inputs))
    if not readable(net.prototype, inputs.mean):
        raise TypeError("moments choose their route by value; propagate them outside jax.jit and torch.compile.")
    if cumulants not in (2, 3):
        raise ValueError(f"cumulants must be 2 (mean and covariance) or 3 (the third as well), got {cumulants!r}.")
    if cumulants == 3 and not takes_third_cumulants(net):
        raise ValueError(
            f"cumulants=3 takes a chain of layers without gates or residual connections; cumulants=2 takes {net!r}."
        )
    parts = [check_network(part) for part in (net.layers if isinstance(net, Chain) else (net,))]
    weights = widen(inputs.weights)
    current = [(weights[c], State.at(g)) for c, g in enumerate(inputs.components)]
    behind = []
    with progress_bar("layers", len(parts)) as update:
        for number, part in enumerate(parts):
            update(number, "")
            passed, closures = [], []
            for weight, state in current:
                closure = Closure() if cumulants == 2 else ThirdCumulants()
                passed.append((weight, walk(part, closure, state)))
                closures.append(closure)
            behind.append(_moments(passed, closures))
            current = passed
    return Propagation(tuple(behind))


def _moments(passed: list[tuple[Array, State]], closures: list[Closure]) -> LayerMoments:
    weights, states = zip(*passed, strict=True)
    xp = namespace(weight=weights[0])
    components = [s.inputs for s in states]
    # Mean square of the ignored shifts over units and components, for each layer within this part.
    excess = [
        sum(w * xp.mean(shift**2) for w, shift in zip(weights, shifts, strict=True))
        for shifts in zip(*(c.shifts for c in closures), strict=True)
    ]
    return LayerMoments(
        components[0] if len(components) == 1 else GaussianMixture.of(xp.stack(weights), components),
        xp.stack([c.skewness[0] for c in closures]),
        safe_root(xp.max(xp.stack(excess))),
    )
