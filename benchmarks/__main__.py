"""Run benchmarks: ``python -m benchmarks [--gpu] [--tiny] [name ...]``."""

import argparse
import importlib
import inspect
import subprocess
import sys
import time

from benchmarks.common import Skip

CPU = (
    "counts", "gaussian_fit", "sampling", "evaluation", "encrypted", "blocks", "rare", "published", "example_model",
    "uncertainty",
)  # fmt: skip
GPU = ("gpu", "mixture", "deep", "smollm2", "reading")


def main() -> None:
    """Run the named benchmarks, or all of them, each in a process of its own: none inherits memory or threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(CPU)}; all by default")
    parser.add_argument("--gpu", action="store_true", help=f"run those for a GPU instead: {', '.join(GPU)}")
    parser.add_argument("--tiny", action="store_true", help="small sizes where a benchmark has them, to try its code")
    chosen = parser.parse_args()
    names = chosen.names or (GPU if chosen.gpu else CPU)
    unknown = [name for name in names if name not in (*CPU, *GPU)]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; there are {', '.join((*CPU, *GPU))}")
    if len(names) == 1:
        run_here(names[0], chosen.tiny)
        return
    failed = [name for name in names if not run_alone(name, chosen.tiny)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def run_here(name: str, tiny: bool) -> None:
    """Run one benchmark, or say what it lacks."""
    try:
        work = importlib.import_module(f"benchmarks.{name}").main
        work(**({"tiny": True} if tiny and "tiny" in inspect.signature(work).parameters else {}))
    except Skip as reason:
        print(f"\n{name}: skipped, {reason}", flush=True)
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] in ("benchmarks", "mlpoly"):
            raise
        print(f"\n{name}: skipped, it needs {error.name} (pip install 'mlpoly[bench]')", flush=True)


def run_alone(name: str, tiny: bool) -> bool:
    """Run one benchmark in a new process; whether it went well."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "benchmarks", *["--tiny"] * tiny, name], check=False)
    print(f"  {name} took {time.perf_counter() - began:.0f} s", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    main()
