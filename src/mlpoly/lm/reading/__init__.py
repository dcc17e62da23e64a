"""Polynomials of blocks read in terms of tokens: features, degree spectra, contributions to logits."""
