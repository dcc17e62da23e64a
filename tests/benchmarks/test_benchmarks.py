"""The benchmarks' own logic: what is recorded, what counts as worse, and what the page says."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from support.data import data_folder
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import (
    check,
    common,
    deep,
    evaluation,
    gpu,
    gpu_mixture,
    mixture_rates,
    page,
    public_table,
    scaling,
    summary,
    tables,
)
from benchmarks.__main__ import CPU, GPU, run_here


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(common, "FOLDER", tmp_path / "bench")
    return tmp_path / "bench"


def saved(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def written(folder, **results):
    """A folder with the results of one benchmark."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"about": common.about("scaling"), "results": results}
    (folder / "scaling.json").write_text(json.dumps(content))
    return folder


# -- what is recorded --------------------------------------------------------------------------------------------------


def test_save_keeps_everything_and_prints_single_numbers(folder, capsys):
    common.save(
        "x", {"a / b": np.float64(2.5), "curves": {"c": {"x": np.arange(2), "y": [1.0, np.nan]}}, "which": "relu"}
    )
    assert saved(folder, "x")["results"] == {
        "a / b": 2.5,
        "curves": {"c": {"x": [0, 1], "y": [1.0, None]}},
        "which": "relu",
    }
    printed = capsys.readouterr().out
    assert "a / b" in printed
    assert "curves" not in printed


def test_what_is_said_of_the_machine_names_no_host_and_no_path():
    import platform

    text = json.dumps(common.about("x"))
    host = platform.node()
    assert not host or host not in text
    assert "/home" not in text
    assert {"numpy", "torch", "mlpoly"} <= set(common.about("x")["versions"])


def test_slope_is_the_exponent():
    x = np.array([2.0, 4.0, 8.0])
    assert common.slope(x, 5 * x**1.5) == pytest.approx(1.5)


def test_paired_seconds_takes_turns():
    calls = []
    common.paired_seconds({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=2)
    assert "".join(calls) == "ababab"


# -- the regression check ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "old", "good", "bad"),
    [
        ("degree 3 / network", 1.0, 1.4, 1.6),
        ("fit: share of the product rate (goal 0.6)", 0.9, 0.65, 0.5),
        ("fit against d: slope, ideal 2", 2.0, 2.3, 2.4),
        ("d = 8: SGD / closed form, to excess 0.1", 100.0, 60.0, 40.0),
        ("FVU, exact quadratic", 0.01, 0.0105, 0.012),
    ],
)
def test_worse_means_worse_by_more_than_the_tolerance(key, old, good, bad):
    assert not check.worse(key, old, good)
    assert check.worse(key, old, bad)


@pytest.mark.parametrize(
    "key", ["fit, ms", "peak memory, GiB (goal 4)", "relu: seconds for ten outputs", "rate, TFLOP/s"]
)
def test_what_has_a_unit_is_not_compared(key):
    assert not check.comparable(key)
    assert check.comparable("fit / product (goal 3)")


def test_check_fails_only_when_a_ratio_got_worse(tmp_path, capsys):
    old = written(tmp_path / "old", **{"a / b": 1.0, "a, s": 1.0})
    same = written(tmp_path / "same", **{"a / b": 1.2, "a, s": 50.0})
    slow = written(tmp_path / "slow", **{"a / b": 2.0, "a, s": 1.0})
    assert check.main([str(same), str(old)]) == 0
    assert check.main([str(slow), str(old)]) == 1
    assert "1 worse" in capsys.readouterr().out
    assert check.main([str(tmp_path / "none"), str(old)]) == 2


# -- the page ----------------------------------------------------------------------------------------------------------


RESULTS = {
    "curves": {"fit against d": {"x": [1, 2, 4], "y": [1.0, 2.0, 4.0]}},
    "ideals": {"fit against d": {"slope": 1.0, "why": "it is so"}},
    "fit against d: slope, ideal 1": 1.03125,
    "fit, s": 7.0,
    "notes": ["A peer wins."],
    "versions": {"peer": "1.2.3"},
}


def test_page_has_numbers_pictures_notes_and_versions(tmp_path):
    first = written(tmp_path / "first", **RESULTS)
    page.main([str(first), "--docs", str(tmp_path / "docs")])
    text = (tmp_path / "docs" / "benchmarks.md").read_text()
    assert "| fit against d: slope, ideal 1 | 1.03 |" in text
    assert "- A peer wins." in text
    assert "peer 1.2.3" in text
    assert "Not measured yet: `python -m benchmarks gpu`" in text
    assert "<!-- results" not in text
    pictures = re.findall(r"\]\((images/[^)]*)\)", text)
    assert pictures == ["images/bench-scaling.png"]
    assert (tmp_path / "docs" / pictures[0]).stat().st_size > 1000


def test_two_runs_stand_side_by_side_with_ratios_of_ratios_only(tmp_path):
    runs = [page.read(written(tmp_path / n, **RESULTS, **{"a / b": value})) for n, value in (("1", 2.0), ("2", 3.0))]
    text = page.section("scaling", runs)
    assert "| a / b | 2 | 3 | 1.50 |" in text
    assert "| fit, s | 7 | 7 |  |" in text


def test_every_benchmark_has_a_place_on_the_page():
    assert set(page.MARK.findall(page.TEMPLATE.read_text())) == {*CPU, *GPU}


def test_all_but_the_ratios_that_matter_is_folded():
    template = page.TEMPLATE.read_text()
    open_parts = re.sub(
        r"<details markdown id=\"[\w-]+\">\n<summary>.*?</summary>.*?\n</details>", "", template, flags=re.DOTALL
    )
    assert "<!-- measured: speed -->" in open_parts and not page.MARK.findall(open_parts)
    anchors = re.findall(r'<details markdown id="([\w-]+)">', template)
    assert len(anchors) == len(set(anchors)) == template.count("<summary>") == template.count("<details")


@pytest.mark.parametrize(
    ("value", "text"), [(0.012345, "0.0123"), (1234.5, "1234"), (3.2e-9, "3.20 · 10⁻⁹"), (None, "–")]
)
def test_numbers_have_three_digits(value, text):
    assert page.number(value) == text


# -- tiny runs ---------------------------------------------------------------------------------------------------------


def test_scaling_measures_slopes(folder):
    scaling.main(tiny=True)
    results = saved(folder, "scaling")["results"]
    assert len(results["curves"]["fit against d"]["y"]) == 3
    assert all(t > 0 for t in results["curves"]["fit against d"]["y"])
    assert "fit against d: slope, ideal 2" in results


def test_evaluation_compares_the_same_function(monkeypatch):
    monkeypatch.setattr(evaluation, "compiles", lambda: False)
    monkeypatch.setattr(evaluation, "BATCH", 50)
    for name, module in evaluation.networks(tiny=True).items():
        made = evaluation.contenders(module, "float64")
        x = np.random.default_rng(0).standard_normal((5, 12))
        for what in made["NumPy"]:
            import torch

            assert made["torch"][what](torch.tensor(x)).numpy() == pytest.approx(made["NumPy"][what](x), abs=1e-12)
        ratios = evaluation.beside_network(name, module, inputs=100)
        assert sum(key.endswith("degree 3 / network") for key in ratios) == 4


def test_dense_coefficients_are_the_same_quadratic():
    results = evaluation.beside_dense((3, 4), hidden=5, outputs=2)
    assert results["curves"]["dense coefficients"]["x"] == [3, 4]
    assert results["quadratic of 3-5-2, dense coefficients / ridge form"] > 0


def test_the_products_of_an_iteration_are_those_that_torch_counts():
    solver = mixture_rates.Solver(*mixture_rates.synthetic("cpu", d=15, components=3, outputs=2), "cpu")
    with FlopCounterMode(display=False) as counter:
        solver.operator.apply(solver.b)
    assert counter.get_total_flops() == solver.flops == 3 * 2 * 4 * 16**3


def test_iterations_that_were_not_made_are_not_timed():
    solver = mixture_rates.Solver(*mixture_rates.synthetic("cpu", d=3, components=2, outputs=2), "cpu")
    with pytest.raises(RuntimeError, match="of 500 iterations"):
        solver.run(500)


def test_mixtures_on_a_gpu(folder):
    """On the CPU and in small; the shares mean nothing there, but all of them are made and drawn."""
    gpu_mixture.main(tiny=True)
    results = saved(folder, "gpu_mixture")["results"]
    shares = [key for key in results if "share of the product rate" in key]
    assert len(shares) == 9 and all(results[key] > 0 for key in shares)
    assert results["ReLU: FVU, exact quadratic"] <= 1.001 * results["ReLU: FVU, neuronwise quadratic"]
    (figure,) = gpu_mixture.plot(results).values()
    assert len(figure.axes[0].patches) == 9


def test_deep_networks(folder):
    """On the CPU and in small: every way is measured, the optimum is one, and the tables are made of all of it."""
    deep.main(tiny=True)
    results = saved(folder, "deep")["results"]
    for title, case in results["tables"].items():
        for degree in (1, 2):
            # The optimum is known up to sampling, and judged on 4096 samples of which the others see the same.
            assert case["fvu"][f"degree {degree}, closed form"] > 0.9 * case["fvu"][f"degree {degree}, optimum"], title
            assert case["fvu"][f"degree {degree}, Taylor at the mean"] > case["fvu"][f"degree {degree}, optimum"], title
        assert case["fvu"]["composed, degree 3, lines beyond 3"] < case["fvu"]["composed, degree 2, lines beyond 3"]
    errors = {key: value for key, value in results.items() if "covariance of the logits" in key}
    of = "relu, 2 layers: error of the covariance of the logits, "
    assert errors[of + "mixture"] < errors[of + "one Gaussian"] < errors[of + "variances only"]
    made = "".join(make(results) for make in tables.DEEP.values())
    assert made.count("Under the mixture of the classes") == 2 and "| plain Monte Carlo" in made and "order 3" in made
    (figure,) = deep.plot(results).values()
    assert [len(ax.lines) for ax in figure.axes] == [2, 2]


def test_a_failing_part_of_the_gpu_benchmark_costs_only_itself(folder, monkeypatch):
    def fails():
        raise RuntimeError("out of memory")

    monkeypatch.setattr(gpu, "parts", lambda tiny: {"one": fails, "two": lambda: {"share of the rate": 0.7}})
    with pytest.raises(SystemExit, match="one"):
        gpu.main(tiny=True)
    assert saved(folder, "gpu")["results"] == {"share of the rate": 0.7}


def test_a_benchmark_that_lacks_its_data_says_so(capsys, monkeypatch):
    monkeypatch.delenv("MLPOLY_DATA", raising=False)
    run_here("tokens", tiny=True)
    assert "tokens: skipped, it needs the model stories260K" in capsys.readouterr().out


def fake_conversions() -> dict:
    """Two blocks, some of the cases, numbers that tell where they come from."""

    def row(x: float, cost: float) -> dict:
        return {"change": cost, "held_out": [x, 100 * x], "closed_form": [x / 10, 0.2]}

    whole = {str(d): row(10.0**-d, 0.5**d) for d in range(1, 6)}
    table = {
        "closed form": whole,
        "closed form, lines beyond 3 sigma": whole,
        "fitted to the tokens": {"3": whole["3"]},
    }
    table["fitted to the tokens, lines beyond 3 sigma"] = whole
    found = {"removed: nats added": 7.0234, "mean: nats added": 5.7, "linear: nats added": 3.15}
    return {"table": table, "cross-entropy of the model": 1.2847, **found}


def test_tables_of_language_models_are_filled_from_json():
    marks = "".join(f"<!-- table: stories {kind} -->\nold\n<!-- end -->\n" for kind in tables.BLOCKS)
    text = f"before\n{marks}<!-- table: other cost -->\nkept\n<!-- end -->\nafter\n"
    results = fake_conversions()
    made = tables.filled(text, {"stories": {"results": results}})
    assert "old" not in made and "kept" in made and made.startswith("before") and made.endswith("after\n")
    assert "| closed form, polynomials everywhere | 0.50 | 0.25 | 0.12 | 0.0625 | 0.0312 |" in made
    assert '| `method="samples"`, polynomials everywhere |  |  | 0.12 |  |  |' in made
    assert "| 1 | .200 .200 .200 .200 .200 | 10.0 1.0 .100 .0100 .0010 |" in made
    assert "| worst | .200 .200 .200 .200 .200 | 10.0 1.0" in made
    assert "has 1.28 nats" in made and "removed + 7.02" in made
    assert tables.filled(made, {"stories": {"results": results}}) == made


def test_the_table_of_several_models():
    row = {"linear R^2": 0.5, "closed form": [0.4, 0.2, 0.04, 0.02, 0.002]}
    row |= {"held out": [0.5, 0.4, 0.3, 20.0, None], "held out, bounded": [0.5, 0.4, 0.1, 0.05, 0.01]}
    other = row | {"linear R^2": 0.991, "closed form": [0.01] * 5}
    made = tables.public({"models": {"small": {"blocks": {"layers.0.mlp": row, "layers.1.mlp": other}}}})
    first, _, cells = made.splitlines()[:3]
    assert first.count("|") == cells.count("|") == 9
    assert cells.startswith("| small | 2 | .746 (.500 to .991) | .205 (.0100 to .400) |")
    assert "| `layers.0.mlp` | .500 | .400 .200 .0400 .0200 .0020 | .500 .400 .300 20.0 – | .500 .400" in made


@pytest.mark.data
def test_blocks_of_several_models_in_small(folder):
    """On little text of stories260K: what the Gaussian predicts falls with the degree, and adds up to its spectrum."""
    data_folder("stories260K")
    public_table.main(tiny=True)
    results = saved(folder, "public_table")["results"]
    blocks = results["models"]["stories260K"]["blocks"]
    assert len(blocks) == 5
    for row in blocks.values():
        assert 0 < row["linear R^2"] < 1 and sorted(row["closed form"], reverse=True) == row["closed form"]
        assert 1 - sum(row["spectrum"]) == pytest.approx(row["closed form"][-1], abs=1e-6)
        assert row["held out, bounded"][4] < row["held out, bounded"][0]
    assert set(public_table.plot(results)) == {"public_table"}
    again = public_table.saved(
        {name: {} for name in blocks},
        {case: {str(d): {"closed_form": [row["closed form"][d - 1] for row in blocks.values()],
                         "held_out": [row[held][d - 1] for row in blocks.values()],
                         "typical": [row["typical, bounded"][d - 1] for row in blocks.values()]} for d in range(1, 6)}
         for case, held in (("closed form", "held out"), ("closed form, lines beyond 3 sigma", "held out, bounded"))},
    )  # fmt: skip
    for name, row in blocks.items():
        assert again[name]["spectrum"] == pytest.approx(row["spectrum"], abs=1e-6)
        assert {k: v for k, v in again[name].items() if k != "spectrum"} == {
            k: v for k, v in row.items() if k not in ("spectrum", "linear R^2")
        }


def fake_deep() -> dict:
    """Two networks under a Gaussian, one of them under the classes too, with numbers that tell where they come from."""

    def case(x: float) -> dict:
        errors = {f"degree {d}, {way}": x / d for d in (1, 2) for way in ("optimum", "closed form", "sampled")}
        errors |= {"degree 2, plain Monte Carlo in equal time": 12.3}
        for degree, lines in ((2, 0.02), (5, 0.004)):
            errors |= {
                f"composed, degree {degree}, lines beyond 3": lines,
                f"composed, degree {degree}, guarded": 2 * lines,
            }
            errors[f"composed, degree {degree}, neither"] = None if degree == 5 else 2.7e35
        seconds = {"degree 1, closed form": 0.0512, "degree 2, closed form": 1.26}
        return {"fvu": errors, "seconds": seconds}

    tables = {"relu, 2 layers, N(mean, cov)": case(0.3), "relu, 3 layers, N(mean, cov)": case(0.5)}
    tables["relu, 2 layers, classes"] = case(0.1)
    error = "relu, {} layers: error of the covariance of the logits, {}"
    found = {error.format(n, way): 0.01 * n for n in (2, 3) for way in ("one Gaussian", "mixture")}
    means = {f"random networks, 256 x {n}: mean square error of the means, order 2": n * 1e-5 for n in (4, 8)}
    return {"tables": tables, "curves": {}, **found, **means}


def test_tables_of_deep_networks_are_filled_from_json():
    marks = "".join(f"<!-- table: deep {kind} -->\nold\n<!-- end -->\n" for kind in tables.DEEP)
    made = tables.filled(marks, {"deep": {"results": fake_deep()}})
    assert "old" not in made
    flat, composed, moments = made.split("<!-- end -->")[:3]
    gaussian, mixture = flat.split("Under the mixture of the classes:")
    assert "Under N(mean, cov):\n\n| | relu, 2 layers | relu, 3 layers |\n|---|---|---|\n" in gaussian
    assert "| closed form | .300 .150 | .500 .250 |" in gaussian and "| closed form | .100 .0500 |" in mixture
    assert "| – 12.3 | – 12.3 |" in gaussian and "Taylor" not in flat  # which nobody measured here
    assert "| seconds, closed form | 0.051 1.3 |" in mixture
    assert "| `.bounded(3.0)` | .0200<br>.0040 | .0200<br>.0040 |" in composed
    assert "`guard=0` | 10<sup>35</sup><br>– | 10<sup>35</sup><br>– |" in composed
    assert "| one Gaussian | 2.0% | 3.0% |" in moments and "| order 2 | 4.0e-05 | 8.0e-05 |" in moments
    assert tables.filled(made, {"deep": {"results": fake_deep()}}) == made


def test_the_documents_tables_are_those_of_the_kept_results():
    """Whoever edits a number by hand, or keeps other results without writing the page, hears of it here."""
    for document, names, kinds in (
        ("language_models.md", ("smollm2", "stories"), tables.BLOCKS),
        ("deep_networks.md", ("deep",), tables.DEEP),
        ("encrypted.md", ("encrypted",), tables.ENCRYPTED),
        ("benchmarks.md", ("encrypted",), ("accuracy",)),
    ):
        text = (Path(__file__).parents[2] / "docs" / document).read_text(encoding="utf-8")
        marks = {(mark[2], mark[3]) for mark in tables.MARKED.finditer(text)}
        assert marks - {("public_table", "public")} == {(name, kind) for name in names for kind in kinds}
        assert tables.filled(text, page.read(page.KEPT)) == text
    runs = [page.read(folder) for folder in (page.KEPT, page.KEPT / "second")]
    for kind, document in (("mixtures", "mixtures.md"), ("speed", "benchmarks.md")):
        text = (Path(__file__).parents[2] / "docs" / document).read_text(encoding="utf-8")
        assert f"<!-- measured: {kind} -->\n{summary.KINDS[kind](runs)}\n<!-- end -->" in text
        assert summary.filled(text, runs) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.6469, "0.65"),
        (1.0357, "1.04"),
        (14.92, "15"),
        (8102.0, "8100"),
        (1.447e6, "1.4 · 10⁶"),
        (1.01e-13, "10⁻¹³"),
        (256, "256"),
    ],
)
def test_the_table_of_ratios_has_two_digits(value, text):
    assert summary.short(value) == text


def test_ranges_span_all_runs():
    runs = [{"b": {"results": {"x, share": x, "y, share": 0.5, "note": "z"}}} for x in (0.71, 0.64)]
    assert summary.span(runs, "b", "share") == "0.5 to 0.71"
    assert summary.span(runs, "b", "^y") == "0.5"
    assert summary.span([{}, *runs], "b", "share") == "0.5 to 0.71"  # not every benchmark was run twice
    with pytest.raises(KeyError):
        summary.span(runs, "b", "nothing")
