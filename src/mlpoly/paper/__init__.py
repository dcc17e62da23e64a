"""The paper's own tools: Gaussian moments, the master theorem, raw moments of activations.

`mlpoly.fit` needs none of them: it projects each neuron by itself (MATH 1, 2). They are here for the paper's results
by name, and as an independent route to the same polynomials.
"""

from mlpoly.paper.isserlis import isserlis
from mlpoly.paper.master import master_theorem
from mlpoly.paper.raw import raw_moments

__all__ = ["isserlis", "master_theorem", "raw_moments"]
