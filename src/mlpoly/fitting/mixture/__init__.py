"""Polynomials under a Gaussian mixture (MATH 4).

Degrees 0 and 1 have a closed form (`linear`). Degree 2 is one symmetric matrix in whitened coordinates (`matrices`):
the Gram operator of the mixture on such matrices needs matrix products alone, and that of N(0, I), which it resembles
in these coordinates, is inverted in closed form (`gram`); `quadratic` combines them. Any degree in few inputs is solved
directly (`direct`), and any degree and size neuron by neuron (`neuronwise`).
"""
