"""Covariances of pairs of hidden units beyond a degree, one file for each way to have them (MATH 5).

Each has a `remainder(one, two, rows, columns, angles, degree, own)`: the covariance of a chunk of units of one
expansion with a chunk of another at all degrees above `degree`, and a bound on its truncation error, or None.
"""
