"""Polynomials for the blocks of a model, fitted under their moments."""
