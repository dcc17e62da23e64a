"""The loss of a model with other functions in place of its blocks."""
