"""The side of encrypted inference that has the secret key: it needs the layout of a circuit, but no weights."""

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from os import PathLike
from typing import Any

import numpy as np

from mlpoly._version import __version__
from mlpoly.arrays import as_float_array, check_finite, check_shape, to_numpy
from mlpoly.errors import FileFormatError
from mlpoly.extras import library
from mlpoly.files import write_tensors
from mlpoly.he.circuit import Circuit
from mlpoly.he.ckks import CKKS, parameters
from mlpoly.he.files import CIPHERTEXT, EncryptedRows, from_bytes, read_format, to_bytes
from mlpoly.he.packing import pack
from mlpoly.progress_bars import announce

KEYS, _LAYOUT, _SECRET = "mlpoly-public-keys", "mlpoly-layout", "mlpoly-secret-key"  # formats of files
# Scrypt takes 64 MB and a tenth of a second for a passphrase: RFC 7914's parameters for files.
_SCRYPT = {"n": 2**16, "r": 8, "p": 1}


@dataclass(frozen=True, eq=False)
class Layout:
    """What a client has to know of a circuit: sizes, packing, levels, encryption and limits, but no weights.

    Attributes
    ----------
    dim_in, dim_out, levels : int
    period, block : int
        Distance of the copies of the input, and number of slots for one row.
    steps : tuple of int
        Distances of the rotations for which keys are needed.
    parameters : CKKS
    low, high : array (d,) or None
        Inputs that `EncryptedClient.encrypt` accepts; None if the server states no limits.
    """

    dim_in: int
    dim_out: int
    levels: int
    period: int
    block: int
    steps: tuple[int, ...] = field(repr=False)
    parameters: CKKS
    low: np.ndarray | None = field(default=None, repr=False)
    high: np.ndarray | None = field(default=None, repr=False)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file for clients, which `load_layout` reads."""
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        kept = {"steps": list(self.steps), "parameters": asdict(self.parameters)}
        limits = {} if self.low is None or self.high is None else {"low": self.low, "high": self.high}
        write_tensors(path, limits, {"format": _LAYOUT, "version": __version__, **numbers, **kept})


_NUMBERS = ("dim_in", "dim_out", "levels", "period", "block")


def layout(circuit: Circuit, low: Any = None, high: Any = None, encryption: CKKS | None = None) -> Layout:
    """Return what a client has to know to make keys for a circuit, and to ask it.

    Parameters
    ----------
    circuit : Circuit
    low, high : array (d,) or number, optional
        Limits of the inputs that the client may send. A client without weights cannot evaluate the circuit to see
        whether an input leaves the range of a layer; these limits, such as those of the training data, are what it
        checks instead.
    encryption : CKKS, optional
        By default `parameters` of the circuit.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> circuit = mp.fit(mp.MLP(np.eye(3), activation="gelu"), mp.Gaussian.standard(3), degree=2).to_he()
    >>> public = mp.he.layout(circuit, -4.0, 4.0)
    >>> client = mp.he.client(public)  # on another computer, from public.save(path) and mp.he.load_layout(path)
    >>> server = mp.he.session(circuit)  # in one process; mp.he.load_session reads the keys that a client saved
    >>> client.layout.dim_in, client.encrypt(np.ones(3)).rows
    (3, 1)
    """
    packing = pack(circuit)
    if (low is None) != (high is None):
        raise ValueError("low and high come together: limits of the inputs on both sides.")
    sides = None
    if low is not None:
        sides = tuple(np.array(np.broadcast_to(np.asarray(a, np.float64), (circuit.dim_in,))) for a in (low, high))
        if not np.all(sides[0] <= sides[1]):
            raise ValueError("low must not be above high, for every input.")
    return Layout(
        circuit.dim_in, circuit.dim_out, circuit.levels, packing.period, packing.block, tuple(sorted(packing.steps)),
        parameters(circuit) if encryption is None else encryption, *(sides or ()),
    )  # fmt: skip


def load_layout(path: str | PathLike[str]) -> Layout:
    """Read what `Layout.save` wrote."""
    header, arrays = read_format(path, _LAYOUT, "a layout, as mlpoly.he.layout(circuit).save(path) writes it")
    try:
        numbers, steps = {name: header[name] for name in _NUMBERS}, tuple(header["steps"])
        encryption = CKKS(**header["parameters"])
        found = Layout(**numbers, steps=steps, parameters=encryption, low=arrays.get("low"), high=arrays.get("high"))
        sizes = all(type(n) is int and n > 0 for n in (*numbers.values(), *steps))
        sizes = sizes and found.dim_in < found.period <= found.block and found.levels == encryption.levels
        sides = [a.shape for a in (found.low, found.high) if a is not None]
        if not sizes or found.block > found.parameters.slots or sides not in ([], [(found.dim_in,)] * 2):
            raise ValueError("sizes that do not fit")
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path} is damaged ({error!r:.80}); save the layout again.") from None
    return found


class EncryptedClient:
    """Keys for a circuit of a given layout, and encryption and decryption with them; `client` makes it.

    `save_keys` writes the public keys for the server, `save_secret` what decrypts, under a passphrase, for a client
    that starts anew.

    Attributes
    ----------
    layout : Layout
    parameters : CKKS
    rows : int
        Largest number of rows in one ciphertext, which take no longer than one.
    """

    def __init__(self, layout: Layout, stored: Mapping[str, np.ndarray] | None = None) -> None:
        self.layout, self.parameters = layout, layout.parameters
        self.rows = layout.parameters.slots // layout.block
        self._scale = 2.0**self.parameters.scale_bits
        self._seal = seal = library("tenseal.sealapi", "TenSEAL", "encrypted inference")
        N = self.parameters.ring_dimension
        chosen = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
        chosen.set_poly_modulus_degree(N)
        chosen.set_coeff_modulus(seal.CoeffModulus.Create(N, list(self.parameters.primes)))
        self._context = context = seal.SEALContext(chosen, True, seal.SEC_LEVEL_TYPE.TC128)
        self._keys: dict[str, Any] = {"public": seal.PublicKey()}
        self._secret: Any = None
        if stored is None or "products" in stored:
            self._keys |= {"products": seal.RelinKeys(), "rotations": seal.GaloisKeys()}
        if stored is None:
            if sys.stderr.isatty():
                announce(f"Keys of {self.parameters}")
            generator = seal.KeyGenerator(context)
            generator.create_public_key(self._keys["public"])
            generator.create_relin_keys(self._keys["products"])
            # SEAL knows a rotation by the power of three with its distance.
            generator.create_galois_keys([pow(3, step, 2 * N) for step in layout.steps], self._keys["rotations"])
            self._secret = generator.secret_key()
        else:
            for name, key in self._keys.items():
                from_bytes(key, context, stored[name])
            if "secret" in stored:
                self._secret = seal.SecretKey()
                from_bytes(self._secret, context, stored["secret"])
        self._decryptor = None if self._secret is None else seal.Decryptor(context, self._secret)
        self._key = hashlib.sha256(to_bytes(self._keys["public"]).tobytes()).hexdigest()[:16]
        self._encryptor, self._encoder = seal.Encryptor(context, self._keys["public"]), seal.CKKSEncoder(context)

        self._moduli, self._primes = [], []  # by levels left: the identity of the modulus, and its last prime
        data = context.last_context_data()
        for _ in range(layout.levels + 1):
            self._moduli.append(data.parms_id())
            self._primes.append(data.parms().coeff_modulus()[-1].value())
            data = data.prev_context_data()

    def __repr__(self) -> str:
        sizes = f"{self.layout.dim_in} -> {self.layout.dim_out}"
        keys = "" if self._decryptor else ", public keys only"
        return f"{type(self).__name__}({sizes}, {self.parameters}, {self.rows} rows at a time{keys})"

    # -- files --------------------------------------------------------------------------------------------------------

    def save_keys(self, path: str | PathLike[str]) -> None:
        """Write the public keys for a server, a safetensors file; `mlpoly.he.load_session` reads it there.

        They allow encryption and evaluation, not decryption. A key for rotations has some 20 MB at N = 16384.
        """
        if "rotations" not in self._keys:
            raise ValueError("this client was read from its secret key; the public keys were saved when it made them.")
        kept: dict[str, Any] = {"parameters": asdict(self.parameters), "steps": list(self.layout.steps)}
        header = {"format": KEYS, "version": __version__, **kept}
        write_tensors(path, {name: to_bytes(key) for name, key in self._keys.items()}, header)

    def save_secret(self, path: str | PathLike[str], passphrase: str) -> None:
        """Write the secret key, encrypted with a passphrase (scrypt, AES-256-GCM); `load_client` reads it.

        Whoever has the file and the passphrase can decrypt every question and answer.
        """
        if self._secret is None:
            raise ValueError("this session has public keys only; the secret one is where they were made.")
        salt, nonce = os.urandom(16), os.urandom(12)
        sealed = _cipher(passphrase, salt).encrypt(nonce, to_bytes(self._secret).tobytes(), None)
        header = {"format": _SECRET, "version": __version__, "salt": salt.hex(), "nonce": nonce.hex()}
        arrays = {"secret": np.frombuffer(sealed, np.uint8), "public": to_bytes(self._keys["public"])}
        write_tensors(path, arrays, header)

    def load(self, path: str | PathLike[str]) -> EncryptedRows:
        """Read rows that `EncryptedRows.save` wrote."""
        header, arrays = read_format(path, CIPHERTEXT, "a ciphertext, as session.encrypt(x).save(path) writes it")
        if header.get("key") != self._key:
            raise FileFormatError(f"{path} was encrypted with other keys than those of this session.")
        encrypted, rows = self._seal.Ciphertext(), header.get("rows")
        if type(rows) is not int or not 1 <= rows <= self.rows or "ciphertext" not in arrays:
            raise FileFormatError(f"{path} is damaged; save the ciphertext again.")
        try:
            from_bytes(encrypted, self._context, arrays["ciphertext"])
        except (RuntimeError, ValueError) as error:
            raise FileFormatError(f"{path} is damaged ({error}); save the ciphertext again.") from None
        return EncryptedRows(encrypted, rows, self._key)

    # -- questions and answers ----------------------------------------------------------------------------------------

    def encrypt(self, x: Any, check: bool = True) -> EncryptedRows:
        """Encrypt rows of inputs.

        Parameters
        ----------
        x : array (d,) or (n, d)
            At most `rows` rows.
        check : bool
            Whether to refuse inputs that are out of range: a client compares them with the layout's limits, a session
            evaluates the circuit without encryption.
        """
        d = self.layout.dim_in
        x = self._rows(x)
        if not 1 <= len(x) <= self.rows:
            raise ValueError(
                f"x has {len(x)} rows, and a ciphertext holds 1 to {self.rows}; predict(x) takes any number."
            )
        if check:
            self._check(x)
        slots = np.zeros((len(x), self.layout.period))
        slots[:, :d], slots[:, d] = x, 1.0
        repeated = slots[:, np.arange(self.layout.block) % self.layout.period]
        encrypted = self._seal.Ciphertext()
        self._encryptor.encrypt(self._encode(repeated.ravel(), self.layout.levels, self._scale), encrypted)
        return EncryptedRows(encrypted, len(x), self._key)

    def decrypt(self, encrypted: EncryptedRows) -> np.ndarray:
        """Outputs (n, o) of the rows that were encrypted."""
        if self._decryptor is None:
            raise ValueError("this session has public keys only; decrypt with the session that made them.")
        self._check_key(encrypted)
        if self._levels_of(encrypted.ciphertext):
            raise ValueError("the rows have not been evaluated yet; decrypt takes what session.evaluate returns.")
        decrypted = self._seal.Plaintext()
        self._decryptor.decrypt(encrypted.ciphertext, decrypted)
        block, slots = self.layout.block, np.asarray(self._encoder.decode_double(decrypted))
        return slots[: encrypted.rows * block].reshape(encrypted.rows, block)[:, : self.layout.dim_out]

    def _rows(self, x: Any) -> np.ndarray:
        x = to_numpy(as_float_array("x", x, integers=True)).astype(np.float64)
        x = x[None] if x.ndim == 1 else x
        check_shape("x", x, (None, self.layout.dim_in), "one row for each input")
        check_finite("x", x)
        return x

    def _check(self, x: np.ndarray) -> None:
        low, high = self.layout.low, self.layout.high
        if low is None or high is None:
            return
        outside = (x < low) | (x > high)
        if outside.any():
            row, i = (int(n) for n in np.argwhere(outside)[0])
            raise ValueError(
                f"input {i} in row {row} of x is {x[row, i]:.4g}, and the server takes {low[i]:.4g} to {high[i]:.4g}; "
                f"beyond, its answer may be meaningless. check=False sends it all the same."
            )

    def _check_key(self, encrypted: EncryptedRows) -> None:
        if encrypted.key != self._key:
            raise ValueError("the rows were encrypted with other keys than those of this session.")

    def _encode(self, numbers: np.ndarray, level: int, scale: float) -> Any:
        encoded = self._seal.Plaintext()
        self._encoder.encode(numbers.tolist(), self._moduli[level], scale, encoded)
        return encoded

    def _levels_of(self, ciphertext: Any) -> int:
        return int(ciphertext.coeff_modulus_size()) - 1


def client(layout: Layout) -> EncryptedClient:
    """Make keys for the circuit of a layout (extra `he`); see `layout`."""
    return EncryptedClient(layout)


def load_client(layout: Layout, path: str | PathLike[str], passphrase: str) -> EncryptedClient:
    """Make the client again whose secret key `EncryptedClient.save_secret` wrote."""
    header, arrays = read_format(path, _SECRET, "a secret key, as client.save_secret(path, passphrase) writes it")
    try:
        salt, nonce = (bytes.fromhex(header[name]) for name in ("salt", "nonce"))
        cipher, sealed = _cipher(passphrase, salt), arrays["secret"].tobytes()
        stored = {"public": arrays["public"]}
    except (KeyError, ValueError) as error:
        raise FileFormatError(f"{path} is damaged ({error!r:.80}).") from None
    try:
        stored["secret"] = np.frombuffer(cipher.decrypt(nonce, sealed, None), np.uint8)
    except Exception as error:  # InvalidTag has no message
        raise ValueError(f"the passphrase does not open {path}, or the file is damaged.") from error
    try:
        return EncryptedClient(layout, stored)
    except (RuntimeError, ValueError) as error:
        raise FileFormatError(f"the secret key in {path} does not fit this layout ({error}).") from None


def _cipher(passphrase: str, salt: bytes) -> Any:
    """AES-256-GCM with a key that scrypt makes of a passphrase."""
    if not isinstance(passphrase, str) or not passphrase:
        raise ValueError("passphrase must be a text that is not empty; a secret key is not written in the clear.")
    aead = library("cryptography.hazmat.primitives.ciphers.aead", "cryptography", "saving a secret key")
    key = hashlib.scrypt(passphrase.encode(), salt=salt, dklen=32, maxmem=2**27, **_SCRYPT)
    return aead.AESGCM(key)
