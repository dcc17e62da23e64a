"""The experiments of the paper: training, dynamics, features, attacks, claims, figures and report."""
