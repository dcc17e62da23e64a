"""The numerical tests under every set of matrix kernels that this processor can run, and the margins of tolerances.

OpenBLAS and PyTorch choose their kernels by the processor, and each adds in another order. ``make test-kernels`` runs
the tests under one set of kernels after another and collects, for every comparison with a tolerance, the largest error
as a fraction of the tolerance. Comparisons that come closer than a factor of ten are listed.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# Each run has one set of kernels of OpenBLAS (NumPy, SciPy and JAX's LAPACK), one of PyTorch, and a number of threads;
# every value of each occurs.
RUNS = (
    ("Prescott", "default", 1),
    ("Nehalem", "avx2", 2),
    ("Haswell", "default", 2),
    ("SkylakeX", "avx2", 1),
    ("Zen", "avx2", 2),
)
TESTS = (
    *("activations", "features", "fitting", "inputs", "linalg", "measures", "moments", "networks", "polynomials"),
    *("propagation", "scores", "importers/test_torch_modules.py"),
    *("test_backends.py", "test_half_precision.py", "test_paper.py", "test_special.py"),
)
NAMED = 10  # margins below this are listed
ROOT = Path(__file__).parent.parent


def in_force(kernel: str) -> str:
    """The kernels that OpenBLAS really takes when asked for `kernel`; a processor that lacks them gets others."""
    look = "import numpy, threadpoolctl; print(threadpoolctl.threadpool_info()[0].get('architecture'))"
    asked = {**os.environ, "OPENBLAS_CORETYPE": kernel}
    return subprocess.run([sys.executable, "-c", look], env=asked, capture_output=True, text=True).stdout.strip()


def run(kernel: str, aten: str, threads: int, margins: Path, arguments: list[str]) -> bool:
    """Whether all tests pass under one set of kernels; their margins are added to a file."""
    settings = {
        "OPENBLAS_CORETYPE": kernel,
        "ATEN_CPU_CAPABILITY": aten,
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads)),
        "MLPOLY_MARGINS": str(margins),
    }
    workers = max(1, (os.cpu_count() or 1) // threads)
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-m", "not slow", "-n", str(workers)]
    command += ["-p", "no:cacheprovider", "-o", "enable_assertion_pass_hook=true"]
    files = arguments or [str(ROOT / "tests" / name) for name in TESTS]
    return subprocess.run([*command, *files], env={**os.environ, **settings}, cwd=ROOT).returncode == 0


def worst(margins: Path) -> dict[str, tuple[float, float]]:
    """For every comparison that rounding decides: the largest error over its tolerance, and the tolerance."""
    seen: dict[str, list[tuple[float, float]]] = {}
    for file in sorted(margins.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            where, error, tolerance = json.loads(line)
            seen.setdefault(where, []).append((error / tolerance, tolerance))
    return {where: max(ratios) for where, ratios in seen.items()}


def main(arguments: list[str]) -> int:
    """Run all, print the table of margins, and fail if a test does."""
    failed, done = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for kernel, aten, threads in RUNS:
            found = in_force(kernel)
            if found in done:
                print(f"-- {kernel}: OpenBLAS takes its {found} kernels, which {done[found]} has tested")
                continue
            done[found] = kernel
            print(f"-- {kernel} (OpenBLAS says {found}), ATen {aten}, {threads} thread(s)", flush=True)
            margins = Path(folder) / found
            margins.mkdir()
            if not run(kernel, aten, threads, margins, arguments):
                failed.append(kernel)
        ratios = [worst(Path(folder) / found) for found in done]
    print(f"\nLargest error as a fraction of the tolerance, where the kernels decide and it is above {1 / NAMED}:")
    same, largest = 0, 0.0
    for where in sorted(set().union(*ratios)):
        values = [r.get(where, (0.0, 0.0))[0] for r in ratios]
        if max(values) - min(values) <= 0.02 * max(values):
            same += max(values) > 1 / NAMED  # a limit of another kind, such as the rounding of 16-bit weights
            continue
        largest = max(largest, *values)
        if max(values) > 1 / NAMED:
            print(f"{max(values):8.3f}  {' '.join(f'{v:.3f}' for v in values)}  {where}")
    print(f"Worst of them: {largest:.3f}. Above that fraction and the same under all kernels: {same}")
    print("Kernels:", ", ".join(done.values()), "| comparisons:", len(set().union(*ratios)))
    print("Failed under:", ", ".join(failed) or "none")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
