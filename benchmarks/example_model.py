"""The small language model of the package: what moments alone give, by the number of groups of tokens.

Needs no data and no GPU: about ten minutes on two cores. 64 groups, as in `benchmarks.smollm2`, would take an hour.
"""

from benchmarks import smollm2
from benchmarks.common import save


def main() -> None:
    """Convert its blocks under mixtures, and for comparison under one Gaussian and fitted to the tokens."""
    name = "example_model"
    model, train, held_out = smollm2.opened(tiny=True)
    ways = [case for case in smollm2.cases(train) if "sigma" not in case.title and "all coeff" not in case.title]
    ways = [case for case in ways if "64" not in case.title]
    short = [case._replace(degrees=(2, 3), exact=False) for case in ways]
    save(name, smollm2.compare(model, train, held_out, short, name))


if __name__ == "__main__":
    main()
