"""Equinox, Flax and Keras models as networks: the same values, and the activation that they have."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mlpoly as mp

KEY = jax.random.key(0)
X = np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32)


def activations_of(net):
    return [layer.activation.name for layer in getattr(net, "layers", (net,)) if hasattr(layer, "activation")]


@pytest.fixture
def eqx():
    return pytest.importorskip("equinox", reason="Equinox is not installed")


@pytest.fixture
def nn():
    return pytest.importorskip("flax.linen", reason="Flax is not installed")


@pytest.fixture
def nnx():
    return pytest.importorskip("flax.nnx", reason="Flax is not installed")


@pytest.fixture
def keras():
    os.environ.setdefault("KERAS_BACKEND", "jax")
    return pytest.importorskip("keras", reason="Keras is not installed")


def near(net, outputs):
    x = X if isinstance(net.prototype, np.ndarray) else jnp.asarray(X)
    np.testing.assert_allclose(np.asarray(net(x)), np.asarray(outputs), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("function", "name"), [(jax.nn.gelu, "gelu_tanh"), (jnp.tanh, "tanh"), (jax.nn.silu, "silu")])
def test_equinox_mlp(eqx, function, name):
    model = eqx.nn.MLP(3, 2, 5, 2, activation=function, key=KEY)
    net = mp.from_equinox(model)
    assert activations_of(net) == [name, name]
    near(net, jax.vmap(model)(X))


def test_equinox_tells_gelu_from_its_approximation(eqx):
    model = eqx.nn.MLP(3, 2, 5, 1, activation=lambda y: jax.nn.gelu(y, approximate=False), key=KEY)
    net = mp.from_equinox(model)
    assert activations_of(net) == ["gelu"]
    assert net.W1 is model.layers[0].weight  # the arrays themselves, so that gradients flow
    with pytest.raises(TypeError, match=r"activation='gelu_tanh' between them do not compute"):
        mp.from_equinox(model, "gelu_tanh")


def test_equinox_functions_of_users_and_ends(eqx):
    def bump(y):
        return y / (1 + y * y)

    net = mp.from_equinox(model := eqx.nn.MLP(3, 2, 5, 1, activation=bump, key=KEY), bump)
    near(net, jax.vmap(model)(X))
    with pytest.raises(TypeError, match=r"any known activation between them.*\.?Pass activation="):
        mp.from_equinox(model)
    model = eqx.nn.MLP(3, 2, 5, 1, activation=jax.nn.relu, final_activation=jax.nn.sigmoid, key=KEY)
    near(mp.from_equinox(model), jax.vmap(model)(X))
    keys = jax.random.split(KEY, 2)
    linear = [eqx.nn.Linear(3, 4, key=keys[0]), eqx.nn.Linear(4, 1, use_bias=False, key=keys[1])]
    model = eqx.nn.Sequential([linear[0], eqx.nn.Lambda(jax.nn.relu), eqx.nn.Dropout(0.5), linear[1]])
    near(mp.from_equinox(model), jax.vmap(eqx.nn.inference_mode(model))(X))
    with pytest.raises(TypeError, match="is an array of another layer"):
        mp.from_equinox(eqx.nn.Sequential([linear[0], eqx.nn.LayerNorm(4), linear[1]]))


def test_flax_linen(nn):
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x, train=True):
            for width in (4, 5):
                x = nn.Dropout(0.5, deterministic=not train)(nn.gelu(nn.Dense(width)(x)))
            return nn.Dense(2)(x)

    model = Model()
    variables = model.init(KEY, X, train=False)
    net = mp.from_flax(model, variables, train=False)
    assert activations_of(net) == ["gelu_tanh", "gelu_tanh"]  # the default of flax.linen.gelu
    near(net, model.apply(variables, X, train=False))
    near(mp.from_flax(model, variables["params"], "gelu_tanh", train=False), net(jnp.asarray(X)))
    with pytest.raises(ValueError, match=r"from_flax\(module, variables\)"):
        mp.from_flax(model)


def test_flax_residuals_are_refused(nn):
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            return x + nn.Dense(3)(nn.relu(nn.Dense(5)(x)))

    with pytest.raises(TypeError, match="do not compute what it does"):
        mp.from_flax(Model(), Model().init(KEY, X))


def test_flax_nnx_finds_the_order_of_layers(nnx):
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.start = nnx.Linear(3, 4, rngs=rngs)
            self.middle = nnx.Linear(4, 4, rngs=rngs)
            self.end = nnx.Linear(4, 4, rngs=rngs)  # listed before the middle, which it fits as well

        def __call__(self, x):
            return self.end(nnx.relu(self.middle(nnx.relu(self.start(x)))))

    model = Model(nnx.Rngs(0))
    near(mp.from_flax(model), model(X))


@pytest.mark.parametrize("name", ["gelu", "leaky_relu", "selu"])
def test_keras(keras, name):
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [
            *(keras.Input((3,)), layers.Dense(5), layers.BatchNormalization(), layers.Activation(name)),
            *(layers.Dropout(0.5), layers.Dense(4, activation="tanh", use_bias=False), layers.Dense(2)),
        ]
    )
    norm = model.layers[1]
    norm.set_weights([np.linspace(a, b, 5) for a, b in ((0.5, 2), (-1, 1), (0, 1), (0.1, 3))])
    near(mp.from_keras(model), model(X, training=False))


def test_keras_softmax_is_left_out(keras):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(2, "softmax")])
    with pytest.warns(UserWarning, match="softmax"):
        net = mp.from_keras(model)
    values = np.asarray(net(X))
    np.testing.assert_allclose(jax.nn.softmax(values), np.asarray(model(X)), rtol=2e-5)


def test_keras_branches_are_refused(keras):
    start = keras.Input((3,))
    model = keras.Model(start, keras.layers.Dense(3)(keras.layers.Dense(3, "relu")(start)) + start)
    with pytest.raises(TypeError, match="its layers one after the other differ"):
        mp.from_keras(model)


def test_others_name_the_importer(eqx, nn, tmp_path):
    model = eqx.nn.MLP(3, 2, 5, 1, key=KEY)
    with pytest.raises(TypeError, match=r"mlpoly\.from_equinox\(module\)"):
        mp.fit(model, mp.Gaussian.standard(3), 2)
    with pytest.raises(ValueError, match=r"from_flax\(module, variables\)"):
        mp.report(nn.Dense(3), X)
    assert "mp.from_equinox(module)" in mp.report(model, np.repeat(X, 5, axis=0), out=tmp_path / "a.html").read_text()
