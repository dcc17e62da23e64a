"""Options of the experiments, without torch; the text below a field is its help on the command line."""

from dataclasses import dataclass
from typing import Literal

from mlpoly.activations import get
from mlpoly.arrays import as_integer, as_number

Stage = Literal["training", "dynamics", "features", "attack", "report"]


@dataclass(frozen=True)
class TrainConfig:
    """Options of a training."""

    hidden: int = 256
    """Hidden units."""
    activation: str = "relu"
    """Any name that `mlpoly.activations` knows."""
    gated: bool = False
    """A gated linear unit instead of an MLP."""
    steps: int = 2**14
    """Steps of the optimiser, schedule-free AdamW."""
    batch_size: int = 64
    """Images in a batch."""
    learning_rate: float = 1e-3
    """Learning rate after the warm-up."""
    weight_decay: float = 0.1
    """Decoupled weight decay."""
    warmup: int = 1000
    """Steps of linear warm-up."""
    seed: int = 0
    """Seed of the initial weights and of the order of the images."""

    def __post_init__(self) -> None:
        for name, least in (("hidden", 1), ("steps", 0), ("batch_size", 1), ("warmup", 0), ("seed", 0)):
            as_integer(name, getattr(self, name), least)
        as_number("learning_rate", self.learning_rate, "a positive number", 0)
        as_number("weight_decay", self.weight_decay, "a number >= 0", 0, edge=True)
        get(self.activation)


@dataclass(frozen=True)
class DynamicsConfig:
    """Options of fits and measures."""

    shrinkage: float = 0.01
    """Shrinkage of the class covariances towards a multiple of the identity. Those of MNIST are singular; without it
    the optimum under the mixture has no reason to behave on test images, which leave the range of a class."""
    samples: int = 20_000
    """Samples of the mixture for the sampled curves, drawn afresh for every checkpoint."""
    tolerance: float = 1e-3
    """Tolerance of the mixture solver, see `mlpoly.fit`."""
    max_degree: int = 6
    """Highest degree that the spectrum distinguishes."""
    paper_steps: int = 200
    """Steps of SGD on the paper's own route to the quadratic under the mixture; 0 leaves it out."""

    def __post_init__(self) -> None:
        for name, least in (("samples", 2), ("max_degree", 1), ("paper_steps", 0)):
            as_integer(name, getattr(self, name), least)
        if not 0 <= self.shrinkage <= 1:
            raise ValueError(f"shrinkage must lie between 0 and 1, got {self.shrinkage}.")
        as_number("tolerance", self.tolerance, "a number >= 0", 0, edge=True)
