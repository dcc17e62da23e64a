"""A whole study of one language model: moments, polynomials, their cost, their features, and a report."""
