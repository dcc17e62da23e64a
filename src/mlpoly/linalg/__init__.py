"""Iterative linear algebra in any array library: block conjugate gradients and block Lanczos."""
