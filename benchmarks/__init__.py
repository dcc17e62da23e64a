"""Benchmarks: each answers one question with ratios measured in one run, and writes JSON."""
