"""Tables of the documentation from the JSON of the benchmarks: ``<!-- table: NAME KIND -->`` ... ``<!-- end -->``."""

import math
import re
import statistics
from collections.abc import Callable, Mapping
from typing import Any

MARKED = re.compile(r"(<!-- table: (\w+) (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
DEGREES = ("1", "2", "3", "4", "5")

# Rows of the table of costs: title of the case in the JSON, and how a user asks for it.
COSTS = {
    "closed form": "closed form, polynomials everywhere",
    "neuronwise, first token apart": '`groups="first"`, `method="neuronwise"`, polynomials everywhere',
    "fitted to the tokens": '`method="samples"`, polynomials everywhere',
    "fitted to the tokens, all coefficients": '`method="samples"`, `coefficients="free"`, polynomials everywhere',
    "closed form, lines beyond 3 sigma": "closed form, `bound=3.0`",
    "closed form, lines where best": 'closed form, `bound="auto"`',
    "neuronwise, first token apart, lines where best": '`groups="first"`, `method="neuronwise"`, `bound="auto"`',
    "fitted to the tokens, lines where best": '`method="samples"`, `bound="auto"`',
    "fitted to the tokens, all coefficients, lines where best": (
        '`method="samples"`, `coefficients="free"`, `bound="auto"`'
    ),
}
# Columns of the table of errors: case, field, and heading.
ERRORS = (
    ("closed form", "closed_form", "under the moments"),
    ("closed form", "held_out", "on held-out tokens"),
    ("closed form, lines beyond 3 sigma", "held_out", "`bound=3.0`"),
    ("fitted to the tokens, lines where best", "held_out", '`method="samples"`, `bound="auto"`'),
)


def filled(text: str, run: Mapping[str, Any]) -> str:
    """The text with the tables of those benchmarks that were run."""

    def make(mark: re.Match[str]) -> str:
        if mark[2] not in run:
            return mark[0]
        return f"{mark[1]}{KINDS[mark[3]](run[mark[2]]['results'])}\n{mark[4]}"

    return MARKED.sub(make, text)


def costs(results: Mapping[str, Any]) -> str:
    """Nats added by degree."""
    lines = ["| | 1 | 2 | 3 | 4 | 5 |", "|---|---|---|---|---|---|"]
    for title, said in COSTS.items():
        rows = results["table"].get(title, {})
        if rows:
            cells = [nats(rows[d]["change"]) if d in rows else "" for d in DEGREES]
            lines.append(f"| {said} | {' | '.join(cells)} |")
    return "\n".join(lines)


def errors(results: Mapping[str, Any]) -> str:
    """Fractions of variance unexplained, the five degrees in each cell."""
    table = results["table"]
    lines = [f"| block | {' | '.join(heading for *_, heading in ERRORS)} |", "|---|" + "---|" * len(ERRORS)]
    count = len(table["closed form"]["1"]["held_out"])
    kinds: dict[str, Any] = {str(i): lambda values, i=i: values[i] for i in range(count)}
    for name, pick in (kinds | {"median": statistics.median, "worst": max}).items():
        cells = [" ".join(fraction(pick(table[case][d][field])) for d in DEGREES) for case, field, _ in ERRORS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def baselines(results: Mapping[str, Any]) -> str:
    """One sentence."""
    said = {"removed": "removed", "mean": "mean output", "linear": "least-squares linear map"}
    found = [f"{words} + {results[f'{name}: nats added']:.3g}" for name, words in said.items()]
    before = results["cross-entropy of the model"]
    return f"The model itself has {before:.2f} nats. Simpler replacements for the same blocks: {', '.join(found)}."


def features(results: Mapping[str, Any]) -> str:
    """Median scores of the features of a block, by kind."""
    columns = {
        "square": "square_correlation",
        "block": "block_correlation",
        "logits, removed": "correlation",
        "logits, write taken out": "direct_correlation",
    }
    rows = []
    for kind, row in results["table"].items():
        rows.append(
            [KINDS_OF_FEATURES.get(kind, kind), *(f"{row[c]:.2f}" if c in row else "" for c in columns.values())]
        )
    return grid(list(columns), rows)


def groups(results: Mapping[str, Any]) -> str:
    """Nats added by quadratics and cubics from moments alone, by the groups of tokens."""
    table, ways = results["table"], ("neuronwise", "joint")
    apart = list(dict.fromkeys(t.split(", ")[1] for t in table if t.startswith("joint, ")))
    rows = []
    for way in ways:
        for lines, said in (("", "polynomials everywhere"), (", lines where best", '`bound="auto"`')):
            cells = [table.get(f"{way}, {one}{lines}", {}) for one in apart]
            shown = [" ".join(nats(cell[d]["change"]) for d in ("2", "3") if d in cell) for cell in cells]
            rows.append([f'`method="{way}"`, {said}', *shown])
    return grid(apart, rows)


def published(results: Mapping[str, Any]) -> str:
    """Fractions of variance unexplained by degree, of networks that others trained."""
    columns = {
        "claimed": "closed form, under its Gaussian",
        "closed form": "the same on the data",
        "fitted": "fitted to data",
        "taylor": "Taylor",
        "scikit-learn": "scikit-learn",
    }
    rows = []
    for title, row in results["table"].items():
        degrees = list(row["fitted"])
        cells = ["<br>".join(tiny(row[c].get(d)) for d in degrees) if c in row else "" for c in columns]
        kept = "<br>".join(f"{100 * value:.1f}" for value in row.get("kept", {}).values())
        rows.append(
            [f"{title}, {row['network'].partition('(')[2].rstrip(')').replace('->', '→')}", row["inputs"], *cells, kept]
        )
    return grid(["inputs", *columns.values(), "decisions kept, %"], rows)


def tiny(value: float | None) -> str:
    """A fraction, with the power of ten of those that four digits do not show."""
    return fraction(value) if not value or value >= 5e-5 else power_of_ten(math.floor(math.log10(value)))


KINDS_OF_FEATURES = {
    "principal": "principal (eigenvectors of principal forms)",
    "token": "token (towards a logit)",
    "term": "term (of `decompose`)",
    "pca": "pca, a control",
    "random": "random, a control",
    "exchanged": "exchanged write vectors, a control",
}


def chaos(results: Mapping[str, Any]) -> str:
    """Polynomial chaos: errors of moments and Sobol indices, what the polynomial leaves, points and time."""
    rows = []
    for title, row in results["table"].items():
        problem, name = title.split(": ")
        errors = [scientific(row[key]) for key in ("mean", "deviation", "Sobol", "FVU")]
        rows.append([f"{problem}: {name}", *errors, str(row["points"] or ""), f"{row['seconds']:.2g}"])
    return grid(["mean", "standard deviation", "Sobol, worst", "FVU", "points", "s"], rows)


# -- fits --------------------------------------------------------------------------------------------------------------

# Rows of the table of qualities: what it says, and the key in the JSON.
QUALITIES = {
    "exact quadratic, default tolerance": "exact quadratic",
    "exact quadratic, fully converged": "exact quadratic, converged",
    "the paper's route: the N(0, I) fit, then 2000 steps of schedule-free SGD": "paper: N(0, I) + 2000 steps of SGD",
    "the same with 200 steps": "paper: N(0, I) + 200 steps of SGD",
    "neuronwise quadratic": "neuronwise quadratic",
    "quadratic under N(mean, cov) of all the data": "quadratic under N(mean, cov)",
    "quadratic under N(0, I)": "quadratic under N(0, I)",
    "linear": "linear",
}


def qualities(results: Mapping[str, Any]) -> str:
    """Fractions of variance unexplained under a mixture."""
    nets = ("ReLU", "SwiGLU")
    return grid(
        list(nets), [[said, *(f"{results[f'{n}: FVU, {k}']:.3g}" for n in nets)] for said, k in QUALITIES.items()]
    )


def sampling(results: Mapping[str, Any]) -> str:
    """Times of all ways relative to the closed form, to an excess of 0.01 and of 0.001 in each cell."""
    pattern = r"(d = .*): (.*) / closed form, to excess (0\.\d+)( \(extrapolated\))?"
    times: dict[str, dict[str, list[str]]] = {}
    for key, value in results.items():
        if (match := re.fullmatch(pattern, key)) and value is not None:
            cell = times.setdefault(match[2], {}).setdefault(match[1], [])
            cell.append(brief(value) + ("\\*" if match[4] else ""))
    problems = list(dict.fromkeys(problem for row in times.values() for problem in row))
    return grid(problems, [[way, *(" / ".join(row.get(p, [])) for p in problems)] for way, row in times.items()])


def evaluation(results: Mapping[str, Any]) -> str:
    """Times relative to the network, by degree."""
    rows: dict[str, list[str]] = {}
    for key, value in results.items():
        if match := re.fullmatch(r"(.*): degree (\d) / network", key):
            rows.setdefault(match[1], []).append(brief(value))
    return grid(["degree 2", "degree 3", "degree 5"], [[case, *cells] for case, cells in rows.items()])


def rare(results: Mapping[str, Any]) -> str:
    """Errors on unseen rows, all degrees in each cell, and how often there was a warning."""
    ways = {"closed form": "closed form, by itself"} | {
        way: way for way in ("on data", "neuron by neuron", "readout", "free", "scikit-learn")
    }

    def row(table: Mapping[str, Any], way: str) -> str:
        return " ".join(fraction(degree[way]) for degree in table.values() if way in degree)

    rows = [
        [case.removeprefix("0/1, "), *(row(t, way) for way in ways)]
        for case, t in results["tables"].items()
        if case.startswith("0/1")
    ]
    off, warned, holds, wrong = (value for value in results.values() if isinstance(value, int))
    said = (
        f"Of {off + holds} closed forms, those for normal columns included, {off} are off by more than a factor of two "
        f"on unseen rows; `fvu` warned of {warned} of these, and of {wrong} of the other {holds}."
    )
    return f"{grid(['closed form says', 'is on data', *list(ways.values())[2:]], rows)}\n\n{said}"


def layers(results: Mapping[str, Any]) -> str:
    """Errors of compositions on unseen rows, all degrees in each cell."""
    ways = ("by itself", "chosen", "by itself, lines", "chosen, lines")
    rows = [
        [case, *(" ".join(fraction(degree[way]) for degree in table.values()) for way in ways)]
        for case, table in results["deep"].items()
    ]
    return grid(
        ["each layer by itself", "as `fit` chooses", "by itself, `.bounded(3.0)`", "chosen, `.bounded(3.0)`"], rows
    )


def numbers(results: Mapping[str, Any]) -> str:
    """All single numbers."""
    return grid(["measured"], [[key, number(v)] for key, v in results.items() if not isinstance(v, dict | list)])


def number(value: Any) -> str:
    """Three digits of a number; anything else as it is."""
    if not isinstance(value, float):
        return "–" if value is None else str(value)
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa} · {power_of_ten(int(exponent))}"


def power_of_ten(exponent: int) -> str:
    """As it is written by hand: 10⁻¹³."""
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


# -- deep networks -----------------------------------------------------------------------------------------------------


def flat(results: Mapping[str, Any]) -> str:
    """FVU of the polynomials of whole networks, degrees 1 and 2 in each cell."""
    ways = {
        "optimum": "optimum",
        "closed form": "closed form",
        "sampled": '`method="sampled"`',
        "Taylor at the mean": "Taylor expansion at the mean",
        "regression on as many samples": "regression on as many samples",
        "plain Monte Carlo in equal time": "plain Monte Carlo, for as long as the closed form takes",
    }

    def cell(case: Mapping[str, Any], way: str, kind: str, show: Callable[[Any], str]) -> str:
        found = [case[kind].get(f"degree {degree}, {way}") for degree in (1, 2)]
        return "" if found == [None, None] else " ".join(map(show, found))

    def rows(cases: list[Mapping[str, Any]]) -> list[list[str]]:
        errors = [[said, *(cell(c, way, "fvu", fraction) for c in cases)] for way, said in ways.items()]
        for way in ("closed form", "sampled"):
            errors.append([f"seconds, {ways[way]}", *(cell(c, way, "seconds", brief) for c in cases)])
        return errors

    return by_inputs(results, rows)


def composed(results: Mapping[str, Any]) -> str:
    """FVU of polynomials layer by layer, all degrees in each cell."""
    ways = {
        "lines beyond 3": "`.bounded(3.0)`",
        "guarded": 'polynomials everywhere, `guard="auto"`',
        "neither": "polynomials everywhere, `guard=0`",
    }

    def cell(case: Mapping[str, Any], way: str) -> str:
        found = [fraction(v) for key, v in case["fvu"].items() if re.fullmatch(f"composed, .*, {way}", key)]
        return "<br>".join(found)  # one below the other: four do not fit beside one another

    def rows(cases: list[Mapping[str, Any]]) -> list[list[str]]:
        return [[said, *(cell(case, way) for case in cases)] for way, said in ways.items()]

    return by_inputs(results, rows)


def moments(results: Mapping[str, Any]) -> str:
    """Errors of propagated covariances, then of means."""
    parts = []
    for pattern, show in (
        (r"(.*): error of the covariance of the logits, (.*)", lambda value: f"{value:.1%}"),
        (r"random networks, (.*): mean square error of the means, (.*)", lambda value: f"{value:.1e}"),
    ):
        found = {match.groups(): value for key, value in results.items() if (match := re.fullmatch(pattern, key))}
        networks, ways = (list(dict.fromkeys(names)) for names in zip(*found, strict=True))
        cells = [[way, *(show(found[net, way]) if (net, way) in found else "" for net in networks)] for way in ways]
        parts.append(grid(networks, cells))
    return "\n\n".join(parts)


# -- encrypted inference -----------------------------------------------------------------------------------------------


def accuracies(results: Mapping[str, Any]) -> str:
    """Test accuracy in per cent by degree; a table for each network."""
    parts = []
    for title, net in results["tables"].items():
        degrees = net["degrees"]
        names = dict.fromkeys(name for part in degrees.values() for name in part["rows"])
        found = {name: [part["rows"].get(name) for part in degrees.values()] for name in names}
        rows = [
            [name, *(f"{100 * r['test']['accuracy']:.1f}" if r else "" for r in row)] for name, row in found.items()
        ]
        rows.append(["levels", *(str(part["levels"]) for part in degrees.values())])
        parts.append(f"{title}, itself {100 * net['network']:.1f} %:\n\n{grid([f'degree {d}' for d in degrees], rows)}")
    return "\n\n".join(parts)


def shifted(results: Mapping[str, Any]) -> str:
    """Classes kept, FVU, largest error and images outside, by kind of images: last network, highest degree."""
    rows = list(list(results["tables"].values())[-1]["degrees"].values())[-1]["rows"]
    kinds = list(next(iter(rows.values())))

    def cell(found: Mapping[str, Any]) -> str:
        kept, worst = f"{100 * found['same class']:.1f} %", fraction(found["largest error of a logit"])
        return f"{kept}, {fraction(found['FVU'])}, {worst}, {found['outside']}"

    columns = [f"{kind} ({found['images']})" for kind, found in next(iter(rows.values())).items()]
    return grid(columns, [[name, *(cell(row[kind]) for kind in kinds)] for name, row in rows.items()])


def runs_encrypted(results: Mapping[str, Any]) -> str:
    """One row for each circuit."""
    columns = ["levels", "N", "bits of the modulus", "same class", "largest difference of a logit", "images at a time"]
    rows = []
    for title, net in results["tables"].items():
        for name, run in net.get("encrypted", {}).items():
            cells = [run["levels"], run["ring dimension"], run["modulus bits"]]
            cells += [f"{run['same class']} of {run['images']}", f"{run['largest difference']:.1e}"]
            cells += [run["images at a time"], brief(run["seconds for each such batch"])]
            rows.append([f"{title}, {name}", *map(str, cells)])
    return grid([*columns, "seconds for them"], rows)


def plans(results: Mapping[str, Any]) -> str:
    """Planned degrees for every budget of levels, beside the largest equal ones that fit; a table for each network."""
    columns = ["planned degrees", "predicted FVU", "FVU", "accuracy", "equal degrees", "FVU", "accuracy"]
    parts = []
    for title, net in results["tables"].items():
        rows = []
        for budget, plan in net["plans"].items():
            cells = ["-".join(map(str, plan["degrees"])), *(fraction(plan[key]) for key in ("predicted FVU", "FVU"))]
            cells.append(f"{100 * plan['accuracy']:.1f}")
            fits = [degree for degree, part in net["degrees"].items() if part["levels"] <= int(budget)]
            if fits:
                equal = net["degrees"][fits[-1]]["rows"]["one per neuron, closed form"]["test"]
                cells += [fits[-1], fraction(equal["FVU"]), f"{100 * equal['accuracy']:.1f}"]
            rows.append([budget, *cells, *[""] * (len(columns) - len(cells))])
        if rows:
            parts.append(f"{title}:\n\n{grid(columns, rows).replace('| |', '| levels |', 1)}")
    return "\n\n".join(parts)


def by_inputs(results: Mapping[str, Any], rows: Callable[[list[Mapping[str, Any]]], list[list[str]]]) -> str:
    """One table of the networks for each distribution of the inputs."""
    groups: dict[str, dict[str, Any]] = {}
    for title, case in results["tables"].items():
        net, layers, under = title.split(", ", 2)
        groups.setdefault(under, {})[f"{net}, {layers}"] = case
    return "\n\n".join(
        f"Under {'the mixture of the classes' if under == 'classes' else under}:\n\n"
        + grid(list(cases), rows(list(cases.values())))
        for under, cases in groups.items()
    )


def grid(columns: list[str], rows: list[list[str]]) -> str:
    """A table whose first column has no heading, without rows that are empty."""
    lines = [f"| {' | '.join(row)} |" for row in [["", *columns], *(row for row in rows if any(row[1:]))]]
    return "\n".join([lines[0].replace("|  |", "| |", 1), "|---" * (len(columns) + 1) + "|", *lines[1:]])


BLOCKS = {"groups": groups, "cost": costs, "errors": errors, "baselines": baselines}
DEEP = {"flat": flat, "composed": composed, "moments": moments}
ENCRYPTED = {"accuracy": accuracies, "shifted": shifted, "runs": runs_encrypted, "plans": plans}
PUBLISHED = {"published": published}
OTHERS = {
    "rare": rare,
    "layers": layers,
    "features": features,
    "qualities": qualities,
    "times": sampling,
    "ratios": evaluation,
    "chaos": chaos,
}
KINDS = BLOCKS | DEEP | ENCRYPTED | PUBLISHED | OTHERS


def nats(value: float) -> str:
    """Four decimals where they tell something."""
    return f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


def fraction(value: float | None) -> str:
    """Short: .0038, .15, 1.2."""
    if value is None:
        return "–"
    if value >= 1e4:
        return f"10<sup>{math.floor(math.log10(value))}</sup>"
    if value >= 1:
        return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
    return (f"{value:.4f}" if value < 0.0995 else f"{value:.3f}").removeprefix("0")


def scientific(value: float) -> str:
    """Two digits and a power of ten: 1.7 · 10⁻³."""
    digits, power = f"{value:.1e}".split("e")
    return f"{digits} · {power_of_ten(int(power))}"


def brief(value: float | None) -> str:
    """Two digits."""
    return "–" if value is None else f"{float(f'{value:.2g}'):g}"
