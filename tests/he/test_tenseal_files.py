"""Client and server in two processes: public keys and ciphertexts as files."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.inputs import gaussian
from support.mistakes import assert_explained
from support.networks import network

import mlpoly as mp
from mlpoly.errors import FileFormatError
from mlpoly.files import read_tensors, write_tensors
from mlpoly.he import EncryptedSession, load_session

pytest.importorskip("tenseal", reason="encrypted inference needs TenSEAL, extra he")

INPUTS = gaussian(d=4)
X = INPUTS.sample(3, seed=0)
CIRCUIT = mp.fit(network(d=4, h=5, o=2), INPUTS, 2).to_he()

PROPERTY = settings(
    derandomize=True, deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

SERVER = """
from mlpoly.he import load_circuit, load_session
server = load_session(load_circuit("circuit.safetensors"), "keys.safetensors")
server.evaluate(server.load("question.safetensors")).save("answer.safetensors")
"""


@pytest.fixture(scope="module")
def session():
    return mp.he.session(CIRCUIT)


@pytest.mark.process
def test_a_server_answers_what_it_cannot_read(session, tmp_path):
    mp.he.save_circuit(CIRCUIT, tmp_path / "circuit.safetensors")
    session.save_keys(tmp_path / "keys.safetensors")
    session.encrypt(X).save(tmp_path / "question.safetensors")
    subprocess.run([sys.executable, "-c", SERVER], cwd=tmp_path, check=True)
    answer = session.load(tmp_path / "answer.safetensors")
    assert answer.rows == 3
    assert np.all(np.abs(session.decrypt(answer) - CIRCUIT(X)) < 16 * session.noise(X))
    # What the server has is public.
    assert set(read_tensors(tmp_path / "keys.safetensors")[1]) == {"public", "products", "rotations"}


def test_public_keys_do_not_decrypt(session, tmp_path):
    session.save_keys(tmp_path / "keys")
    server = load_session(CIRCUIT, tmp_path / "keys")
    assert "public keys only" in repr(server)
    assert_explained(lambda: server.decrypt(server.encrypt(X)), ValueError, ("public keys only", "session that made"))


CLIENT = """
import sys
import numpy as np
from mlpoly.he import client, load_client, load_layout
layout = load_layout("layout.safetensors")
if sys.argv[1] == "ask":
    one = client(layout)
    one.save_keys("keys.safetensors")
    one.save_secret("secret.safetensors", "a passphrase")
    one.encrypt(np.load("x.npy")).save("question.safetensors")
else:
    one = load_client(layout, "secret.safetensors", "a passphrase")
    np.save("outputs.npy", one.decrypt(one.load("answer.safetensors")))
"""


@pytest.mark.process
def test_a_client_without_weights_asks_stops_and_reads_the_answer(session, tmp_path):
    mp.he.layout(CIRCUIT, X.min(axis=0), X.max(axis=0)).save(tmp_path / "layout.safetensors")
    assert set(read_tensors(tmp_path / "layout.safetensors")[1]) == {"low", "high"}  # no weights
    np.save(tmp_path / "x.npy", X)
    subprocess.run([sys.executable, "-c", CLIENT, "ask"], cwd=tmp_path, check=True)
    mp.he.save_circuit(CIRCUIT, tmp_path / "circuit.safetensors")
    subprocess.run([sys.executable, "-c", SERVER], cwd=tmp_path, check=True)
    subprocess.run([sys.executable, "-c", CLIENT, "read"], cwd=tmp_path, check=True)
    assert np.all(np.abs(np.load(tmp_path / "outputs.npy") - CIRCUIT(X)) < 16 * session.noise(X))


@pytest.fixture(scope="module")
def client():
    return mp.he.client(mp.he.layout(CIRCUIT, X.min(axis=0), X.max(axis=0)))


def test_mistakes_of_clients_are_explained(session, client, tmp_path):
    path = tmp_path / "secret"
    client.save_secret(path, "right")
    again = mp.he.load_client(client.layout, path, "right")
    public = load_session(CIRCUIT, saved_keys(session, tmp_path))
    for act, patterns in (
        (lambda: mp.he.load_client(client.layout, path, "wrong"), ("passphrase does not open",)),
        (lambda: client.save_secret(path, ""), ("passphrase must be a text", "not written in the clear")),
        (lambda: public.save_secret(path, "right"), ("public keys only",)),
        (lambda: again.save_keys(path), ("saved when it made them",)),
        (lambda: client.encrypt(X + 100), (r"input 0 in row 0 of x is .*, and the server takes", "check=False")),
        (lambda: mp.he.layout(CIRCUIT, low=0.0), ("low and high come together",)),
        (lambda: mp.he.layout(CIRCUIT, 1.0, 0.0), ("low must not be above high",)),
    ):
        assert_explained(act, ValueError, patterns)
    assert client.encrypt(X + 100, check=False).rows == 3
    assert b"right" not in path.read_bytes()


def saved_keys(session, folder):
    session.save_keys(folder / "keys")
    return folder / "keys"


@PROPERTY
@given(
    change=st.sampled_from([{"dim_in": 0}, {"block": 1}, {"levels": 9}, {"steps": [0]}, {"period": "4"}, {"low": None}])
)
def test_damaged_layouts_are_refused(client, change, tmp_path):
    client.layout.save(tmp_path / "layout")
    header, arrays = read_tensors(tmp_path / "layout")
    if "low" in change:
        del arrays["low"]
    else:
        header |= change
    write_tensors(tmp_path / "layout", arrays, header)
    with pytest.raises(FileFormatError, match="damaged"):
        mp.he.load_layout(tmp_path / "layout")


PARAMETERS = [{"levels": 10**12}, {"levels": 1}, {"scale_bits": "40"}, {"ring_dimension": None}, {"more": 1}]


def spoilt(data, array):
    """The bytes of an object of SEAL, cut or changed from some place on."""
    place = int(data.draw(st.sampled_from([0.0, 0.25, 0.5, 0.75])) * len(array))
    return array[:place] if data.draw(st.booleans()) else np.concatenate([array[:place], 255 - array[place:]])


@PROPERTY
@given(data=st.data())
def test_damaged_keys_are_refused(session, data, tmp_path):
    session.save_keys(tmp_path / "keys")
    header, arrays = read_tensors(tmp_path / "keys")
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(arrays)))
        arrays[name] = spoilt(data, arrays[name])
    else:
        header["parameters"] |= data.draw(st.sampled_from(PARAMETERS))
    write_tensors(tmp_path / "keys", arrays, header)
    with pytest.raises(FileFormatError, match=r"keys in .* do not fit"):
        load_session(CIRCUIT, tmp_path / "keys")


@PROPERTY
@given(data=st.data())
def test_damaged_ciphertexts_are_refused(session, data, tmp_path):
    session.encrypt(X).save(tmp_path / "rows")
    header, arrays = read_tensors(tmp_path / "rows")
    if data.draw(st.booleans()):
        arrays["ciphertext"] = spoilt(data, arrays["ciphertext"])
    else:
        header["rows"] = data.draw(st.sampled_from([0, -1, 10**9, "3", True, None]))
    write_tensors(tmp_path / "rows", arrays, header)
    with pytest.raises(FileFormatError, match=r"damaged.*save the ciphertext again"):
        session.load(tmp_path / "rows")


def test_keys_of_another_circuit_are_refused(session, tmp_path):
    session.save_keys(tmp_path / "keys")
    other = mp.fit(network(d=4, h=5, o=2), INPUTS, 4).to_he()  # one level more
    with pytest.raises(FileFormatError, match="do not fit this circuit"):
        load_session(other, tmp_path / "keys")


def test_files_of_other_kinds_are_refused(session, tmp_path):
    mp.he.save_circuit(CIRCUIT, tmp_path / "circuit")
    for act in (lambda path: load_session(CIRCUIT, path), session.load):
        with pytest.raises(FileFormatError, match="is not a"):
            act(tmp_path / "circuit")
        with pytest.raises(FileNotFoundError, match=r"as session.* writes it"):
            act(tmp_path / "none")


def test_rows_of_other_keys_are_refused(session, tmp_path):
    other = EncryptedSession(CIRCUIT, mp.he.parameters(CIRCUIT))
    rows = other.encrypt(X)
    rows.save(tmp_path / "rows")
    with pytest.raises(FileFormatError, match="other keys"):
        session.load(tmp_path / "rows")
    for act in (session.evaluate, session.decrypt):
        with pytest.raises(ValueError, match="other keys"):
            act(rows)
