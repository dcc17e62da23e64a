"""Moments of the inputs of a model's blocks, collected in one pass over text."""
