"""ONNX models in: each network against onnx's own evaluator, and an error for every graph that is no chain."""

import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from support.mistakes import assert_explained, mistakes

import mlpoly as mp

RNG = np.random.default_rng(0)
W, V, U = RNG.normal(size=(4, 6)), RNG.normal(size=(6, 3)), RNG.normal(size=(4, 6))
B, C = RNG.normal(size=6), RNG.normal(size=3)
S = RNG.normal(size=(6, 6))
ALL = {"W": W, "V": V, "U": U, "B": B, "C": C, "S": S}


def model(*nodes, x=(None, 4), dtype=np.float64, opset=20, outputs=("y",), inputs=(), **constants):
    """A model whose nodes are words: output, operation and inputs, with attributes in a dictionary behind them."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    made = []
    for number, (words, *attributes) in enumerate(n if isinstance(n, tuple) else (n,) for n in nodes):
        out, op, *given = words.split()
        given = ["" if name == "-" else name for name in given]
        options = {"domain": "ai.onnx.ml" if op == "Scaler" else ""} | (attributes or [{}])[0]
        made.append(helper.make_node(op, given, out.split(","), name=f"n{number}", **options))
    used = {name for node in made for name in node.input}
    arrays = {name: np.asarray(a) for name, a in (ALL | constants).items() if name in used}
    stored = [
        numpy_helper.from_array(a.astype(dtype) if a.dtype == np.float64 else a, name) for name, a in arrays.items()
    ]
    graph = helper.make_graph(
        made, "graph",
        [helper.make_tensor_value_info("x", kind, x), *(helper.make_tensor_value_info(n, kind, s) for n, s in inputs)],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs], stored,
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def points(d=4, dtype=np.float64):
    return (2 * np.random.default_rng(1).normal(size=(40, d))).astype(dtype)


def assert_same(net, graph, x=None, tolerance=1e-12):
    x = points(net.dim_in) if x is None else x
    expected = ReferenceEvaluator(graph).run(None, {"x": x})[0]
    found = net(x.reshape(len(x), -1))
    assert found.shape == (len(x), net.dim_out)
    expected = expected.reshape(found.shape)
    assert expected.std() > 1e-2
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


CHAINS = {
    "matmul and add": (["a MatMul x W", "b Add a B", "c Relu b", "d MatMul c V", "y Add d C"],
                       "MLP(4 -> 6 -> 3, relu)"),
    "gemm": (["a Gemm x W B", "c Relu a", "y Gemm c V C"], "MLP(4 -> 6 -> 3, relu)"),
    "gemm, transposed": ([("a Gemm x WT B", {"transB": 1}), "c Relu a", ("y Gemm c VT C", {"transB": 1})],
                         "MLP(4 -> 6 -> 3, relu)"),
    "gemm, factors": ([("a Gemm x W B", {"alpha": 0.5, "beta": -2.0}), "y Relu a"], "MLP(4 -> 6 -> 6, relu)"),
    "gemm, one bias": (["a Gemm x W one", "y Relu a"], "MLP(4 -> 6 -> 6, relu)"),
    "deep": (["a Gemm x W B", "b Relu a", "c Gemm b S", "d Tanh c", "e Gemm d V C", "y Sigmoid e"],
             "Chain(4 -> 6 -> 6 -> 3)"),
    "affine": (["y Gemm x W B"], "Affine(4 -> 6)"),
    "activations twice": (["a Gemm x W B", "b Relu a", "y Tanh b"], "Chain(4 -> 6 -> 6)"),
    "activation alone": (["y Tanh x"], "MLP(4 -> 4 -> 4, tanh)"),
    "scaled input": (["m Sub x mean", "s Div m deviation", "a Gemm s W B", "y Relu a"], "MLP(4 -> 6 -> 6, relu)"),
    "constants before": (["s Sub mean x", "t Mul deviation s", "a Gemm t W B", "y Relu a"], "MLP(4 -> 6 -> 6, relu)"),
    "scaled output": (["a Gemm x W B", "b Relu a", "c Gemm b V C", "d Mul c two", "e Add d C", "y Neg e"],
                      "MLP(4 -> 6 -> 3, relu)"),
    "batch norm": (["a MatMul x W", ("n BatchNormalization a B B B2 B2", {"epsilon": 0.1}), "c Relu n", "y Gemm c V C"],
                   "MLP(4 -> 6 -> 3, relu)"),
    "batch norm behind": (["a Gemm x W B", "c Relu a", "n BatchNormalization c B B B B2", "y Gemm n V C"],
                          "MLP(4 -> 6 -> 3, relu)"),
    "slopes": (["a Gemm x W B", "p PRelu a B", "y Gemm p V C"], "MLP(4 -> 12 -> 3, relu)"),
    "one slope": (["a Gemm x W B", "p PRelu a two", "y Gemm p V C"], "MLP(4 -> 6 -> 3, leaky_relu(2))"),
    "nothing": (["a Gemm x W B", "i Identity a", "o Dropout i", "y Relu o"], "MLP(4 -> 6 -> 6, relu)"),
    "constant node": ([("w Constant", {"value": numpy_helper.from_array(W)}), "a MatMul x w", "y Relu a"],
                      "MLP(4 -> 6 -> 6, relu)"),
    "many terms": (["a MatMul x W", "b Sum B a one B2", "c Relu b", "d MatMul c D", "e Sum x d", "y Sum C4 one e"],
                   "Chain(4 -> 4 -> 4)"),
    # Gated units and residual connections.
    "SiLU gate": (["g MatMul x W", "s Sigmoid g", "a Mul g s", "u MatMul x U", "h Mul a u", "y Gemm h V C"],
                  "GLU(4 -> 6 -> 3, silu)"),
    "product": (["g Gemm x W B", "u Gemm x U B", "y Mul u g"], "GLU(4 -> 6 -> 6, identity)"),
    "residual": (["g Gemm x W B", "a Relu g", "b Gemm a D", "y Add x b"], "Residual(MLP(4 -> 6 -> 4, relu))"),
    "difference": (["a MatMul x W", "b Relu a", "c MatMul b S", "y Sub c a"], "Chain(4 -> 18 -> 18 -> 6)"),
    "side by side": (["a MatMul x W", "b Relu a", "c Gemm x W B", "d Relu c", ("y Concat b d", {"axis": 1})],
                     "MLP(4 -> 12 -> 12, relu)"),
    "residual inside": (["g Gemm x W B", "a Relu g", "b Gemm a S B", "c Tanh b", "d Add c a", "y Gemm d V C"],
                        "Chain(4 -> 6 -> 6 -> 3)"),
    "computed weight": (["T Transpose WT", "a MatMul x T", "y Relu a"], "MLP(4 -> 6 -> 6, relu)"),
    "reshaped at the end": (["a Gemm x W B", "b Relu a", "c MatMul b column", "y Reshape c shape"],
                            "MLP(4 -> 6 -> 1, relu)"),
    "scikit-learn's scaler": ([("s Scaler x", {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [0.5, 2.0, 1.0, 1.5]}),
                               "a MatMul s W", "y Relu a"], "MLP(4 -> 6 -> 6, relu)"),
}  # fmt: skip
CONSTANTS = {
    "WT": np.ascontiguousarray(W.T),
    "VT": np.ascontiguousarray(V.T),
    "mean": RNG.normal(size=4),
    "deviation": RNG.uniform(0.5, 2, size=(1, 4)),
    "B2": B**2 + 0.3,
    "one": np.array(0.7),
    "two": np.array([2.0]),
    "row": B[None],
    "column": B[:, None],
    "D": RNG.normal(size=(6, 4)),
    "C4": RNG.normal(size=4),
    "axis": np.array([1]),
    "shape": np.array([-1, 1]),
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains(name):
    nodes, shown = CHAINS[name]
    constants = CONSTANTS | ({"deviation": CONSTANTS["deviation"][0]} if "norm" in name else {})
    graph = model(*nodes, **constants)
    net = mp.from_onnx(graph)
    assert repr(net) == shown
    assert net.prototype.dtype == np.float64
    assert_same(net, graph)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16], ids=str)
def test_dtypes_stay(dtype):
    nodes = ["a MatMul x W", "b Add a B", "n BatchNormalization b B B B B2", "c Relu n", "y Gemm c V C"]
    graph = model(*nodes, dtype=dtype, **CONSTANTS)
    net = mp.from_onnx(graph)
    assert {net.W1.dtype, net.b1.dtype, net.W2.dtype, net.b2.dtype} == {np.dtype(dtype)}
    assert_same(net, graph, points(dtype=dtype), 1e-12 if dtype == np.float64 else 20 * float(np.finfo(dtype).eps))


def test_images_are_rows():
    x = np.random.default_rng(2).normal(size=(20, 1, 2, 2))
    size = ["s Shape x", "n Gather s zero", "m Unsqueeze n zeros", "shape Concat m rest"]
    for nodes in (
        ["f Flatten x"],
        ["f Reshape x flat"],
        ["f Reshape x kept"],
        [*size[:3], ("shape Concat m rest", {"axis": 0}), "f Reshape x shape"],
    ):
        graph = model(
            *nodes, "a Gemm f W B", "y Relu a", x=(None, 1, 2, 2), flat=np.array([-1, 4]), kept=np.array([0, -1]),
            zero=np.array(0), zeros=np.array([0]), rest=np.array([-1]),
        )  # fmt: skip
        net = mp.from_onnx(graph)
        assert repr(net) == "MLP(4 -> 6 -> 6, relu)"
        assert_same(net, graph, x)


HALVES = {
    "split": [("g,u Split a", {"axis": -1, "num_outputs": 2})],
    "sizes": [("g,u Split a halves", {"axis": 1})],
    "slices": ["g Slice a zero_ three_ last", "u Slice a three_ six_ last"],
    "from the end": ["g Slice a zero_ back last one_", "u Slice a back far last one_"],
}
INDICES = {
    "halves": [3, 3],
    "zero_": [0],
    "three_": [3],
    "six_": [6],
    "last": [1],
    "one_": [1],
    "back": [-3],
    "far": [99],
}


@pytest.mark.parametrize("nodes", HALVES.values(), ids=HALVES)
def test_gated_units_of_one_product(nodes):
    indices = {name: np.array(values) for name, values in INDICES.items()}
    graph = model("a Gemm x W B", *nodes, "s Sigmoid g", "y Mul s u", **indices)
    assert repr(mp.from_onnx(graph)) == "GLU(4 -> 3 -> 3, sigmoid)"
    assert_same(mp.from_onnx(graph), graph)


ACTIVATIONS = {
    "relu": [("y Relu a")],
    "leaky_relu(0.25)": [("y LeakyRelu a", {"alpha": 0.25})],
    "celu(0.5)": [("y Celu a", {"alpha": 0.5})],
    "selu": ["y Selu a"],
    "elu(0.5) ": [("y Selu a", {"alpha": 0.5, "gamma": 1.5})],
    "sigmoid": ["y Sigmoid a"],
    "tanh": ["y Tanh a"],
    "softplus": ["y Softplus a"],
    "erf": ["y Erf a"],
    "mish": ["y Mish a"],
    "hardswish": ["y HardSwish a"],
    "hardtanh(0, 1)": [("y HardSigmoid a", {"alpha": 0.125, "beta": 0.25})],
    "gelu": ["y Gelu a"],
    "gelu_tanh": [("y Gelu a", {"approximate": "tanh"})],
    "jumprelu(0.5)": [("y ThresholdedRelu a", {"alpha": 0.5})],
    "relu6": ["y Clip a zero six"],
    "hardtanh(-0.5, 6)": ["y Clip a low six"],
    "relu ": ["y Clip a zero"],
    "threshold(-0.5, -0.5)": ["y Clip a low -"],
    "threshold(-6, -6) ": ["y Min six a"],
    "square": ["y Pow a two"],
    "cube": ["y Pow a three"],
    "square ": ["y Mul a a"],
    "gelu ": ["p Div a root", "q Erf p", "r Add q one", "s Mul a r", "y Mul s half"],
    "gelu_tanh ": ["p Pow a three", "q Mul p cubic", "r Add a q", "s Mul r outer", "t Tanh s", "u Add t one",
                   "v Mul a u", "y Mul half v"],
    "silu": ["p Sigmoid a", "y Mul a p"],
    "quick_gelu": ["k Mul a quick", "p Sigmoid k", "y Mul a p"],
    "mish ": ["s Softplus a", "t Tanh s", "y Mul a t"],
    "sigmoid ": ["m Neg a", "e Exp m", "d Add e one", "y Div one d"],
    "softplus ": ["e Exp a", "d Add e one", "y Log d"],
    "relu2": ["r Relu a", "y Mul r r"],
}  # fmt: skip
NUMBERS = {
    "zero": np.array(0.0), "six": np.array(6.0), "low": np.array(-0.5), "two": np.array(2.0), "three": np.array(3.0),
    "half": np.array(0.5), "root": np.array(np.sqrt(2)), "one": np.array(1.0), "cubic": np.array(0.044715),
    "outer": np.array(np.sqrt(2 / np.pi)), "quick": np.array(1.702),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    graph = model("a Gemm x W B", *ACTIVATIONS[name], **NUMBERS)
    net = mp.from_onnx(graph)
    assert net.activation_names == name.strip()
    # The evaluator has erf, and some constants of gelu_tanh and selu, in float32.
    rounded = name.strip() in ("erf", "gelu", "gelu_tanh", "selu", "hardswish") and name != "gelu_tanh "
    assert_same(net, graph, tolerance=1e-7 if rounded else 1e-12)


@pytest.mark.parametrize("name", ["gelu ", "gelu_tanh ", "quick_gelu", "mish "])
@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=str)
def test_activations_whose_constants_are_rounded(name, dtype):
    graph = model("a Gemm x W B", *ACTIVATIONS[name], "z Gemm y V C", outputs=["z"], dtype=dtype, **NUMBERS)
    net = mp.from_onnx(graph)
    assert repr(net) == f"MLP(4 -> 6 -> 3, {name.strip()})"
    assert_same(net, graph, points(dtype=dtype) / 4, 100 * float(np.finfo(dtype).eps))


@pytest.mark.usefixtures("scratch_registry")
def test_an_activation_of_ones_own():
    nodes = ["a Gemm x W B", "e Sin a", "f Add e a", "y Mul f half"]
    with pytest.raises(TypeError, match="does not know the function"):
        mp.from_onnx(model(*nodes, **NUMBERS))
    mp.activations.register_activation("torch_only", lambda y: y.double(), overwrite=True)
    mp.activations.register_activation("snake_like", lambda y: y + np.sin(y), overwrite=True)
    graph = model(*nodes, **NUMBERS)
    net = mp.from_onnx(graph)
    assert net.activation_names == "snake_like"
    assert_same(net, graph)


@pytest.mark.parametrize(
    ("nodes", "name"),
    [
        (["r Relu a", "y Min r far"], "hardtanh(0, 25)"),
        (["y Clip a - far"], "threshold(-25, -25)"),
        (["y Clip a zero largest"], "relu"),
        (["r Clip a near far", "y Clip r - three"], "hardtanh(-7, 3)"),
        (["g Gelu a", "y Min g far"], "gelu, threshold(-25, -25)"),
        (["p Sigmoid a", "q Mul a p", "y Min q far"], "silu, threshold(-25, -25)"),
    ],
)
def test_limits_on_values_far_from_zero(nodes, name):
    numbers = {"far": np.array(25.0), "near": np.array(-7.0), "largest": np.array(np.finfo(np.float32).max, float)}
    graph = model("a Gemm x W B", *nodes, **NUMBERS, **numbers)
    net = mp.from_onnx(graph)
    assert net.activation_names == name
    x = 20 * points()
    assert (x @ W + B > 25).mean() > 0.1
    assert (x @ W + B < -7).mean() > 0.1
    assert_same(net, graph, x, 1e-7 if "gelu" in name else 1e-12)  # the evaluator has erf in float32


@pytest.mark.parametrize("op", ["Sum", "Max", "Min"])
@pytest.mark.parametrize(
    "given", [["a"], ["a", "a", "a"], ["a", "zero", "low"], ["low", "a", "zero", "six"]], ids=" ".join
)
def test_operations_on_any_number_of_values(op, given):
    graph = model("a Gemm x W B", f"b {op} {' '.join(given)}", "c Tanh b", "y Gemm c V C", **NUMBERS)
    assert_same(mp.from_onnx(graph), graph)


def test_clip_with_attributes_in_old_opsets():
    graph = model("a MatMul x W", ("y Clip a", {"min": -1.0, "max": 2.0}), opset=6, dtype=np.float32)
    net = mp.from_onnx(graph)
    assert net.activation.name == "hardtanh(-1, 2)"
    assert_same(net, graph, points(dtype=np.float32), 1e-5)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_a_softmax_at_the_end_is_left_out(op):
    nodes = ["a Gemm x W B", "b Relu a", "logits Gemm b V C"]
    with pytest.warns(UserWarning, match=rf"leaves out the {op} \(node 'n3'\) at the end: .* the logits") as seen:
        net = mp.from_onnx(model(*nodes, f"y {op} logits"))
    assert seen[0].filename == __file__
    assert_same(net, model(*nodes, outputs=["logits"]))


def test_a_value_inside():
    nodes = ["a Gemm x W B", "b Relu a", "logits Gemm b V C", "y Softmax logits", "label ArgMax logits"]
    graph = model(*nodes, outputs=["y", "label"])
    graph.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net = mp.from_onnx(graph, output="logits")
        assert repr(mp.from_onnx(graph, output="b")) == "MLP(4 -> 6 -> 6, relu)"
    assert_same(net, model(*nodes[:3], outputs=["logits"]))
    with pytest.warns(UserWarning, match="Softmax"):  # the only output of floating-point numbers
        assert repr(mp.from_onnx(graph)) == repr(net)


NORM = ["m ReduceMean a", "s Sub a m", "v ReduceMean s", "r Sqrt v", "n Div s r", "t Mul n B"]  # written out


def test_a_part_between_two_norms():
    gelu = ["c Pow h three", "d Mul c k", "e Add h d", "f Mul e root", "g Tanh f"]
    gelu += ["i Add one g", "j Mul h i", "l Mul j half"]
    constants = {
        "three": np.array(3.0), "k": np.array(0.044715), "root": np.array((2 / np.pi) ** 0.5), "one": np.array(1.0),
        "half": np.array(0.5),
    }  # fmt: skip
    nodes = ["a Gemm x W B", *NORM, "h Gemm t S B", *gelu, "o MatMul l S", "z Add o t"]
    graph = model(*nodes, ("y LayerNormalization z B B", {"axis": -1}), opset=17, **constants)
    net = mp.from_onnx(graph, input="t", output="z")
    assert repr(net) == "Residual(MLP(6 -> 6 -> 6, gelu_tanh))"
    inside = model("h Gemm x S B", *gelu, "o MatMul l S", "y Add o x", x=(None, 6), **constants)
    assert_same(net, inside)
    assert repr(mp.from_onnx(graph, "a", "x")) == "Affine(4 -> 6)"


@pytest.mark.parametrize("zero", [None, 3, [3, -1, 0, 2, 7, -5]], ids=str)
def test_products_of_what_is_rounded_as_it_comes(zero):
    rng = np.random.default_rng(3)
    stored = rng.integers(-90, 90, size=(4, 6)).astype(np.int8)
    zeros = np.zeros(6, np.int8) if zero is None else np.asarray(zero, np.int8)
    scales = rng.uniform(0.005, 0.01, size=6).astype(np.float32)
    product = "p MatMulInteger q stored zq" + (" zeros" if zero is not None else "")
    nodes = ["q,sq,zq DynamicQuantizeLinear x", product, ("c Cast p", {"to": 1}), "s Mul sq scales", "h Mul c s"]
    graph = model(*nodes, "b Add h B", "y Relu b", dtype=np.float32, stored=stored, zeros=zeros, scales=scales)
    with pytest.warns(UserWarning, match=r"DynamicQuantizeLinear \(node 'n0'\) of the model rounds to 8 bits"):
        net = mp.from_onnx(graph)
    assert repr(net) == "MLP(4 -> 6 -> 6, relu)"
    exact = (stored - np.broadcast_to(zeros, 6).astype(np.float64)) * scales
    np.testing.assert_allclose(net.W1, exact.T, rtol=1e-6)  # the product of two numbers in float32
    x = points(dtype=np.float32)
    # An input is rounded to 1 in 255 steps from its least value to its largest, by half a step and, as the zero is a
    # whole number, at the ends by a whole one.
    step = (max(x.max(), 0) - min(x.min(), 0)) / 255
    rounding = ReferenceEvaluator(graph).run(None, {"x": x})[0] - net(x)
    assert 0 < np.abs(rounding).max() <= step * np.abs(exact).sum(0).max()


def test_files_with_weights_beside_them(tmp_path):
    wide = {"W": RNG.normal(size=(4, 300)), "V": RNG.normal(size=(300, 3))}
    graph = model("a MatMul x W", "b Relu a", "y MatMul b V", **wide)
    place = tmp_path / "model.onnx"
    onnx.save(graph, str(place))
    assert_same(mp.from_onnx(place), graph)
    onnx.save(graph, str(place), save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (tmp_path / "weights.bin").stat().st_size >= 8 * 7 * 300
    assert_same(mp.from_onnx(str(place)), model("a MatMul x W", "b Relu a", "y MatMul b V", **wide))
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(mp.FileFormatError, match=r"model\.onnx is not a readable ONNX file"):
        mp.from_onnx(place)


def test_broken_files(tmp_path):
    place = tmp_path / "model.onnx"
    graph = model("a MatMul x W", "b Relu a", "y MatMul b V")
    whole = graph.SerializeToString()
    for content in (b"", b"\x80\x04}q\x00.", b"PK\x03\x04", b"not a model", whole[: len(whole) // 2], whole[:-9]):
        place.write_bytes(content)
        with pytest.raises(mp.FileFormatError, match=r"model\.onnx is not a (readable|valid) ONNX"):
            mp.from_onnx(place)
    graph.graph.initializer[0].raw_data = graph.graph.initializer[0].raw_data[:-8]
    with pytest.raises(mp.FileFormatError):
        mp.from_onnx(graph)
    with pytest.raises(FileNotFoundError, match="no ONNX file"):
        mp.from_onnx(tmp_path / "nosuch.onnx")


def branching():
    """A model that chooses one of two branches by the number of rows; both use a value outside of them."""
    graph = model("a MatMul x W", "s Shape x", "c Cast s", "y If c")
    graph.graph.node[2].attribute.append(helper.make_attribute("to", TensorProto.BOOL))
    branch = helper.make_graph(
        [helper.make_node("Relu", ["a"], ["r"])], "branch", [],
        [helper.make_tensor_value_info("r", TensorProto.DOUBLE, None)],
    )  # fmt: skip
    for name in ("then_branch", "else_branch"):
        graph.graph.node[3].attribute.append(helper.make_attribute(name, branch))
    return graph


def refuse(*nodes, **options):
    return lambda: mp.from_onnx(model(*nodes, **{**CONSTANTS, **options}))


CUT = r"from_onnx\(model, output=\.\.\., input=\.\.\.\)"
IMAGE = {"x": (None, 1, 4, 4), "K": np.ones((1, 1, 3, 3))}


@mistakes(
    [
        ("convolution", refuse(("c Conv x K", {"pads": [1, 1, 1, 1]}), "y Relu c", **IMAGE), TypeError,
         r"Conv \(node 'n0'\): it is not fully connected", CUT),
        ("layer norm", refuse("a MatMul x W", "y LayerNormalization a B B"), TypeError,
         "LayerNormalization .* divides by the size of its own input", CUT),
        ("weights from data", refuse("a MatMul x W", "t Transpose a", "y MatMul t x"), TypeError,
         "Transpose .* rows of data must stay rows"),
        ("attention", refuse("a MatMul x S4", "y MatMul a x", S4=np.eye(4)), TypeError, "MatMul .* combines several"),
        ("softmax inside", refuse("a MatMul x W", "s Softmax a", "y MatMul s V"), TypeError,
         r"Softmax \(node 'n1'\): it couples its inputs", CUT),
        ("softmax over the batch", refuse("a MatMul x W", ("y Softmax a", {"axis": 0})), TypeError, "not over the out"),
        ("training", refuse("a MatMul x W", ("y,m,v BatchNormalization a B B B B2", {"training_mode": 1})), TypeError,
         "training mode", "evaluation mode"),
        ("batch norm of images", refuse("n BatchNormalization x one one one one", "f Flatten n", "y Relu f", **IMAGE,
                                        one=np.ones(1)), TypeError, "BatchNormalization .* not of rows of numbers"),
        ("bias", refuse("y Gemm x W C"), TypeError, "bias has 3 entries for 6 outputs"),
        ("large constant", refuse("c ConstantOfShape big", "a MatMul x c", "y Relu a", big=np.array([4, 10**12])),
         TypeError, "ConstantOfShape .* not among the operations on constants"),
        ("two inputs", refuse("a MatMul x W", "b MatMul z W", "y Add a b", inputs=[("z", (None, 4))]), TypeError,
         r"depends on 2 inputs of the graph \(x, z\)", CUT),
        ("two outputs", refuse("a MatMul x W", "b Relu a", outputs=["a", "b"]), TypeError, "2 outputs", "output="),
        ("no such value", lambda: mp.from_onnx(model("y MatMul x W"), output="z"), ValueError, "output='z' is not",
         "such are x, y"),
        ("not the only input", lambda: mp.from_onnx(model("a MatMul x W", "b MatMul a S", "y Add a b"), input="b"),
         TypeError, r"depends on 2 inputs of the graph \(x, b\)", CUT),
        ("layer norm written out", refuse("a MatMul x W", *NORM, "y MatMul t V"), TypeError,
         r"ReduceMean \(node 'n1'\): it runs over the units, as a layer norm", CUT),
        ("a constant", refuse("s Shape x", ("y Cast s", {"to": 11})), TypeError, "does not depend on the values"),
        ("exponential", refuse("a MatMul x W", "y Exp a"), TypeError, r"the function that Exp \(node 'n1'\) computes",
         "register_activation"),
        ("product", refuse("a MatMul x W", "b Relu a", "c MatMul b S", "d Tanh c", "y Mul d b"), TypeError,
         r"Mul \(node 'n4'\)", "not as a gated unit or a residual"),
        ("reshape", refuse("f Reshape x into", "y MatMul f S2", S2=np.ones((2, 2)), into=np.array([-1, 2])), TypeError,
         "Reshape .* mixes the rows"),
        ("quantised", refuse("q QuantizeLinear x scale zero", "y DequantizeLinear q scale zero", dtype=np.float32,
                             scale=np.array(0.1), zero=np.array(0, np.uint8)), TypeError, "quantis"),
        ("unknown", refuse("y CumSum x zero", zero=np.array(0)), TypeError, r"CumSum \(node 'n0'\): it is not among"),
        ("other domain", refuse("a Gemm x W B", ("y Gelu a", {"domain": "com.microsoft"})), TypeError,
         r"Gelu \(node 'n1'\): it is an operation of 'com.microsoft'"),
        ("control flow", lambda: mp.from_onnx(branching()), TypeError, r"If \(node 'n3'\): it has graphs of its own"),
    ]
)  # fmt: skip
def test_mistakes(act, exception, patterns):
    assert_explained(act, exception, patterns)
