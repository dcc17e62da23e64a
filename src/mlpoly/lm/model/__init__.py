"""Language models while they run: loading, hooks, polynomials in place of blocks."""
