"""Degree 2 under a Gaussian mixture, for any number of inputs (MATH 4).

A quadratic in whitened coordinates is one symmetric matrix (`matrices`). The Gram operator of the mixture on such
matrices needs matrix products alone (`gram`), and that of N(0, I), which it resembles in these coordinates, is inverted
in closed form (`precondition`). `solve` combines them: directly for few inputs, else by block conjugate gradients.
"""
