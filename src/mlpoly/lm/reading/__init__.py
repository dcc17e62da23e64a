"""What the polynomials of a model's blocks say, in tokens."""
