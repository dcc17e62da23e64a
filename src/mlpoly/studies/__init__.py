"""Experiments, each a module that runs with ``python -m mlpoly.studies.NAME``."""
