"""Polynomials under a Gaussian mixture (MATH 4).

Degrees 0 and 1 have a closed form (`linear`), degree 2 is solved by iteration (`quadratic`), any degree in few inputs
directly (`direct`), and any degree and size neuron by neuron (`neuronwise`).
"""
