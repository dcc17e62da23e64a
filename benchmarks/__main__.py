"""Run benchmarks: ``python -m benchmarks [--gpu] [name ...]``."""

from __future__ import annotations

import argparse
import importlib

CPU = ("gaussian_fit", "mixture", "measures")
GPU = ("gpu", "language_model")


def main() -> None:
    """Run the named benchmarks, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(CPU)}; all by default")
    parser.add_argument("--gpu", action="store_true", help="run the GPU benchmarks instead")
    chosen = parser.parse_args()
    for name in chosen.names or (GPU if chosen.gpu else CPU):
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
