"""Compiles exports with HEIR, runs what it generates with OpenFHE, encrypted, and compares with the polynomial.

    pip install heir_py . && python tools/check_heir.py make FOLDER
    pip install openfhe && python tools/check_heir.py run FOLDER     # with a Python that OpenFHE has a wheel for

HEIR generates C++. OpenFHE's wheel has the library, but not the headers to compile that with, so the second step
translates it, statement by statement, into the same calls through OpenFHE's own Python interface. The generated code
has assignments, loops over a range, conditions and calls.
"""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

SIZES = (6, 8, 8, 3)
TYPES = r"(?:auto&?|Plaintext|CryptoContextT|size_t|int32_t|int64_t|bool|double)"


def make(folder: Path) -> None:
    """Write a program, HEIR's C++ and the expected values for each case."""
    import numpy as np

    import mlpoly as mp
    from mlpoly.he import to_heir, to_orion

    rng = np.random.default_rng(0)
    d, h, _, o = SIZES

    def layer(d: int, h: int, o: int | None = None, kind: str = "MLP", activation: str = "relu") -> mp.MLP | mp.GLU:
        forms = [
            part
            for _ in range(2 if kind == "GLU" else 1)
            for part in (rng.standard_normal((h, d)) * np.sqrt(2 / d), 0.3 * rng.standard_normal(h))
        ]
        readout = [] if o is None else [rng.standard_normal((o, h)) / np.sqrt(h), rng.standard_normal(o)]
        return getattr(mp, kind)(*forms, *readout, activation=activation)

    deep = mp.Chain([layer(d, h), layer(h, h, o)])
    inputs = mp.Gaussian.standard(d)
    x = inputs.sample(1, seed=1)
    cases = {
        **{f"neurons{n}": (deep, n, "neurons") for n in (2, 3, 4)},
        "shared3": (deep, 3, "shared"),
        "gated3": (layer(d, h, o, "GLU", "silu"), 3, "neurons"),
        "skip2": (mp.Chain([mp.Residual(layer(d, h, d)), layer(d, h, o, activation="gelu")]), 2, "neurons"),
    }
    folder.mkdir(parents=True, exist_ok=True)
    expected = {}
    for name, (net, degree, form) in cases.items():
        poly = mp.fit(net, inputs, degree, method="composed")
        text = to_heir(poly, form, name=name)
        values = poly(x) if form == "neurons" else to_orion(poly, form)(x)
        expected[name] = {"x": x[0].tolist(), "values": values[0].tolist(), "levels": poly.to_he().levels}
        for command in (
            ["heir-opt", "--canonicalize", "--mlir-to-ckks"],
            ["heir-opt", f"--scheme-to-openfhe=entry-function={name}"],
            ["heir-translate", "--emit-openfhe-pke"],
        ):
            text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
        (folder / f"{name}.cpp").write_text(text)
    (folder / "expected.json").write_text(json.dumps(expected))


def translated(source: str) -> str:
    """The functions of a generated file in Python."""
    lines, indent = [], 0
    for line in source[source.index("std::vector<Plaintext> ") :].splitlines():
        s = line.strip().rstrip(";").replace("[[maybe_unused]] ", "").replace("->", ".").replace("nullptr", "None")
        s = re.sub(r"static_cast<\w+>\((\w+)\)", r"\1", s).replace("&&", "and").replace(".size()", ".__len__()")
        s = re.sub(r"std::vector<[\w<>:]+>&? ", "VECTOR ", s).removeprefix("const ").replace(".push_back(", ".append(")
        # A vector's slots are filled up to half the ring dimension.
        s = re.sub(r"cc\.GetCryptoParameters\(\).*GetRingDimension\(\) / 2", "cc.GetRingDimension() // 2", s)
        indent -= s.startswith("}")
        if s in ("", "}", "PlaintextT pt") or s.startswith("#pragma") or ".reserve(" in s:
            continue
        opens, s = s.endswith("{"), s.removesuffix(" {").replace("} else", "else:")
        for pattern, replacement in (
            (r"for \(\w+ (\w+) = (.+); \w+ < (.+); \+\+\w+\)", r"for \1 in range(\2, \3):"),
            (r"for \(\w+ (\w+) = (.+); \w+ < (.+); \w+ \+= (\w+)\)", r"for \1 in range(\2, \3, \4):"),
            (r"if \((\w+)\)", r"if \1:"),
            (r"std::copy\((\w+)\.begin.*, (\w+)\.begin\(\) \+ (\w+)\)", r"\2[\3 : \3 + len(\1)] = \1"),
            (r"VECTOR (\w+) = \{(.*)\}", r"\1 = [\2]"),
            (r"(?:VECTOR (\w+)|auto (?=\w+_filled = )(\w+)) = (\w+)", r"\1\2 = list(\3)"),
            (r"cc\.Decrypt\((\w+), (\w+), &pt\)", r"pt = cc.Decrypt(\1, \2)"),
            (r"std::transform\(std::begin\((\w+)\).*std::begin\((\w+)\), \[.*", r"\2 = [c.real for c in \1]"),
            (r"(cc\.EvalRotateKeyGen\(sk), \{(.*)\}\)", r"\1, [\2])"),
            (r"CCParamsT params", "params = CCParamsCKKSRNS()"),
            (rf"{TYPES} (\w+) = (.*)", r"\1 = \2"),
        ):
            s = re.sub(f"^{pattern}$", replacement, s)
        if opens and not s.endswith(":"):
            name, arguments = re.fullmatch(r"\w+ (\w+)\((.*)\)", s).groups()
            names = [argument.split()[-1].lstrip("&") for argument in arguments.split(",") if argument.strip()]
            s = f"def {name}({', '.join(names)}):"
        s = re.sub(r"^VECTOR (\w+)\((.+), (.+)\)$", r"\1 = [\3] * \2", s)
        s = re.sub(r"^VECTOR (\w+)\((.+)\)$", r"\1 = vector(\2)", s)
        s = re.sub(r"\((v\d+) / (v\d+)\)", r"(\1 // \2)", s)
        lines.append("    " * indent + s)
        indent += opens
        lines += ["    " * indent + "pass"] * opens
    return "\n".join(lines)


def run(folder: Path) -> None:
    """Encrypt, evaluate, decrypt, and print a line for each case."""
    import openfhe

    for name, case in json.loads((folder / "expected.json").read_text()).items():
        names = {key: getattr(openfhe, key) for key in dir(openfhe)}
        names["vector"] = lambda size: list(size) if isinstance(size, list) else [None] * size
        names |= {key: getattr(openfhe.PKESchemeFeature, key) for key in ("PKE", "KEYSWITCH", "LEVELEDSHE")}
        source = (folder / f"{name}.cpp").read_text()
        exec(translated(source), names)
        context = names[f"{name}__generate_crypto_context"]()
        keys = context.KeyGen()
        names[f"{name}__configure_crypto_context"](context, keys.secretKey)
        start = time.perf_counter()
        encrypted = names[name](context, names[f"{name}__encrypt__arg0"](context, case["x"], keys.publicKey))
        seconds = time.perf_counter() - start
        found = names[f"{name}__decrypt__result0"](context, encrypted, keys.secretKey)
        error = max(abs(a - b) for a, b in zip(found, case["values"], strict=True))
        levels = re.search(r"SetMultiplicativeDepth\((\d+)\)", source)[1]
        print(
            f"{name:10s} {levels} levels (circuit: {case['levels']})  N = {context.GetRingDimension()}  "
            f"error {error:.1e}  {seconds:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    {"make": make, "run": run}[sys.argv[1]](Path(sys.argv[2]))
