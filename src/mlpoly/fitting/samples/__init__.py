"""Polynomials on samples: least squares over all monomials (`exact`), or neuron by neuron (`neuronwise`)."""
