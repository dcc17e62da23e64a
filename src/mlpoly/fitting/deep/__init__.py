"""Polynomials of deep networks (MATH 9): as a whole (`expansion`, `sampled`), or layer by layer (`layerwise`)."""
