"""Conversion from and to other libraries, which are imported only when they are needed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mlpoly.extras import library

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from torch import nn

    from mlpoly.importers.blocks import Block
    from mlpoly.networks import Network

__all__ = ["feedforward_blocks", "find_blocks", "from_onnx", "from_sklearn", "from_torch"]


def from_torch(module: nn.Module) -> Network:
    """Return the weights of a torch module as a network that `fit` and `propagate` take.

    The network is the module in evaluation mode. It holds the module's own parameters: nothing is detached, so results
    computed from it can be differentiated with respect to them, and an optimiser step on the module changes the
    network. Only weights that have to be computed (batch norms folded in, parametrisations, slopes of PReLU) keep the
    values they have now.

    Parameters
    ----------
    module : torch.nn.Module
        An ``nn.Sequential`` of any depth. Linears and activations become layers. A batch norm in evaluation mode is
        folded into a Linear beside it. Dropout, Identity and ``Flatten(start_dim=1)`` are passed over: the network's
        inputs are rows. A Softmax or LogSoftmax at the end is left out with a warning, and the outputs are the logits.
        Sequentials inside are taken apart; any other module that `from_torch` takes becomes a part of the chain.

        A class of your own with such parts, under any names, if it computes them in the order in which it defines
        them, or adds its input to what they give: then the network is a `Residual`. A single activation may serve all
        layers. A few test inputs show whether this is so; where numbers cannot be read (on the meta device, inside
        torch.func), the parts are taken in order.

        A feedforward block of Hugging Face transformers: GPT-2, GPT-NeoX, Llama and its many relatives, Phi, T5, and
        others with the same parts. If the block has no module of its own (OPT, BERT, Whisper), `find_blocks` of the
        layer finds it, and ``find_blocks(layer)[0].net()`` is its network. A block of TransformerLens, with the
        parameters W_in, W_out and perhaps W_gate.

        Any other module needs an adapter, see `mlpoly.importers.torch.register_adapter`, or the way through ONNX:
        ``torch.onnx.export(module.eval(), x, "model.onnx", dynamo=False)``, then `from_onnx`. Convolutions, layer norm
        and attention have no place in a network of this library; the message says which part of the module does.

    Returns
    -------
    MLP, GLU, Affine, Chain or Residual
        With one hidden layer an `MLP` or `GLU`.

    Raises
    ------
    TypeError
        For a module without an adapter, or with parts that cannot be converted; for one that does more than the block
        in it; for batch norm in training mode; for quantised weights; for TorchScript; for a module that has the parts
        of a known block but computes something else, which test inputs reveal (they run the forward hooks of a
        Sequential or class). The message says what to do.

    Notes
    -----
    The test inputs are random, of standard deviations 1, 10, 100 and 10 000. They reveal differences of a few parts in
    a million (modules in 16 bits are tested in float32; behind batch norms folded in float32 one in ten thousand), and
    limits on values that they reach. They do not reveal smaller differences, limits beyond, nor what happens only for
    special inputs: a case for negative ones in all places, for inputs that are exactly zero, for long sequences.

    Examples
    --------
    >>> import torch, mlpoly as mp
    >>> from torch import nn
    >>> mp.from_torch(nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 2)))
    MLP(3 -> 8 -> 2, gelu)
    >>> deep = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> mp.from_torch(deep.eval())
    Chain(3 -> 8 -> 8 -> 2)
    """
    return _importer("torch", "from_torch").from_torch(module)


def from_sklearn(estimator: Any) -> Network:
    """Return a fitted multilayer perceptron of scikit-learn as a network in NumPy's float64.

    Parameters
    ----------
    estimator : MLPRegressor, MLPClassifier, Pipeline, search or TransformedTargetRegressor
        A Pipeline ends with one of the others. Its earlier steps must be affine: StandardScaler, MinMaxScaler,
        MaxAbsScaler, RobustScaler, PCA (also with ``whiten=True``), TruncatedSVD, feature selection, "passthrough",
        and a ColumnTransformer or Pipeline of such steps. They are folded into the first weights, so the network takes
        rows in the original units. A SimpleImputer changes nothing where nothing is missing; one that takes a number
        such as 0 for missing is refused.

        Of an estimator that was fitted on a data frame, the network keeps the names of the columns, `net.names`:
        inputs and data with the same columns in another order are refused.

        Of a search (GridSearchCV) it is the best estimator. The scaler of a TransformedTargetRegressor is folded into
        the last weights.

    Returns
    -------
    Affine, MLP or Chain
        Its outputs (n, o) are those of ``predict`` for a regressor; for ``loss="poisson"`` their logarithms, with a
        warning. For a classifier they are logits: ``predict_proba`` is their softmax, and for two classes, with one
        output, or for several labels their sigmoid, the probability of ``classes_[1]`` or of each label.

    Raises
    ------
    TypeError
        For a step that is not affine, and for other estimators; the message says which, and what can be done.
    ValueError
        For an estimator that is not fitted.

    Notes
    -----
    Folding is exact up to rounding. In original units the bias of a hidden unit holds the means of the inputs, so that
    inputs far from zero compared to their standard deviation lose as many digits as that ratio has.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> from sklearn.neural_network import MLPRegressor
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> model = make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=8, max_iter=5000))
    >>> model = model.fit(x, x[:, 0] * x[:, 1])
    >>> net = mp.from_sklearn(model)
    >>> net
    MLP(3 -> 8 -> 1, relu)
    >>> bool(np.allclose(net(x)[:, 0], model.predict(x)))
    True
    """
    return _importer("sklearn_models", "from_sklearn", "sklearn", "scikit-learn").from_sklearn(estimator)


def from_onnx(model: str | PathLike[str] | Any, output: str | None = None) -> Network:
    r'''Return the network of an ONNX model, in NumPy and in the dtype of its weights.

    Nothing of the file is run.

    Parameters
    ----------
    model : path or onnx.ModelProto
        A chain from one input: Gemm, MatMul, sums and products with constants, BatchNormalization, and activations, as
        one node or as the many that exporters write (a GELU by its Erf, a SiLU as a product). Products of two branches
        become a `GLU`, sums of a value and a branch that starts at it a `Residual`. What makes rows of the input
        (Flatten, Reshape) is passed over. A Softmax or LogSoftmax at the end is left out with a warning, and the
        outputs are the logits.
    output : str, optional
        Name of the value that the network computes, also one inside the graph. By default the graph's only output of
        floating-point numbers.

    Returns
    -------
    MLP, GLU, Affine, Chain or Residual

    Raises
    ------
    TypeError
        For a graph that is no such chain; the message names the node and says what can be done.
    FileFormatError
        If the file is not a valid ONNX model.
    FileNotFoundError

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> import onnx.parser
    >>> text = """
    ...     <ir_version: 8, opset_import: ["" : 17]>
    ...     agraph (double[N, 2] x) => (double[N, 1] y)
    ...     <double[2, 2] W = {1.0, 0.0, 0.0, 1.0}, double[2, 1] V = {1.0, 2.0}> {
    ...         h = MatMul (x, W)
    ...         a = Relu (h)
    ...         y = MatMul (a, V)
    ...     }"""
    >>> net = mp.from_onnx(onnx.parser.parse_model(text))  # or mp.from_onnx("model.onnx")
    >>> net
    MLP(2 -> 2 -> 1, relu)
    >>> net(np.array([[1.0, 3.0]])).tolist()
    [[7.0]]
    '''
    return _importer("onnx_models", "from_onnx", "onnx", "ONNX").from_onnx(model, output)


def find_blocks(model: nn.Module, blocks: str | Sequence[str] | None = None) -> list[Block]:
    """Find the feedforward blocks of a model that `from_torch` knows, in the order of the model.

    Each expert of a mixture is a block, "model.layers.3.mlp.experts.5", and so is a shared one: terms of a sum that a
    router weights. Experts that transformers keeps in one module (Mixtral, Qwen, OLMoE, DeepSeek) are found if they are
    MLPs or GLUs; those that clamp their gates (gpt-oss) or scale their inputs (Llama 4) are not.

    Parameters
    ----------
    model : torch.nn.Module
        A model of Hugging Face transformers, or your own.
    blocks : str or sequence of str, optional
        Names or patterns as in a shell: ``model.layers.*.mlp``, ``*.layers.[0-3].mlp``. Leading parts of the names may
        be left out: ``layers.*.mlp``. All blocks by default.

    Returns
    -------
    list of Block
        Each has a name, the modules `entry` and `exit` to hook, and `net()`, the network that `fit` takes.

    Raises
    ------
    TypeError
        If the model has no known block.
    ValueError
        If a pattern matches none of the blocks; the message lists them.

    Examples
    --------
    >>> import torch, mlpoly as mp
    >>> from mlpoly.importers import find_blocks
    >>> class Layer(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.mlp = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    >>> model = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([Layer(), Layer()])})
    >>> find_blocks(model)
    [Block('layers.0.mlp', Sequential), Block('layers.1.mlp', Sequential)]
    >>> find_blocks(model, "1.mlp")[0].net()
    MLP(3 -> 8 -> 3, gelu)
    """
    return _importer("blocks", "find_blocks").find_blocks(model, blocks)


def feedforward_blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of `find_blocks` by name, such as "model.layers.0.mlp"."""
    return _importer("blocks", "feedforward_blocks").feedforward_blocks(model)


def _importer(module: str, purpose: str, needed: str = "torch", package: str = "PyTorch") -> Any:
    library(needed, package, purpose)
    return importlib.import_module(f"mlpoly.importers.{module}")
