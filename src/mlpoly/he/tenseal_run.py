"""Encrypted evaluation of a circuit with TenSEAL.

TenSEAL's own `mm` makes a new rotation for every diagonal of a matrix, out of those by powers of two: 2 900 for 785
rows, where 24 are enough. A vector of plain numbers that is added first breaks it (TenSEAL #462). So circuits run on
Microsoft SEAL as TenSEAL ships it, `tenseal.sealapi`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import asdict
from os import PathLike
from typing import Any

import numpy as np

from mlpoly._version import __version__
from mlpoly.arrays import as_float_array, check_finite, check_shape, to_numpy
from mlpoly.errors import FileFormatError
from mlpoly.extras import library
from mlpoly.files import write_tensors
from mlpoly.he.circuit import Circuit, Vector, products
from mlpoly.he.ckks import CKKS, output_noise, parameters
from mlpoly.he.files import CIPHERTEXT, EncryptedRows, from_bytes, read_format, to_bytes
from mlpoly.he.packing import PackedProduct, pack
from mlpoly.progress_bars import announce, progress_bar

_KEYS = "mlpoly-public-keys"  # format of files


class EncryptedSession:
    """Keys for a circuit, and encryption, evaluation and decryption with them; `session` makes it.

    Evaluation uses the public keys alone (for products and for rotations); decryption alone uses the secret key, which
    stays in the process that made it. `save_keys` writes the public ones for a server, where `load_session` reads them.

    Attributes
    ----------
    circuit : Circuit
    parameters : CKKS
    rows : int
        Largest number of rows in one ciphertext, which take no longer than one.
    rotations : int
        Number of rotations in an evaluation, which are most of its time.
    """

    def __init__(self, circuit: Circuit, parameters: CKKS, public_keys: Mapping[str, np.ndarray] | None = None) -> None:
        self._packing = pack(circuit)
        self.circuit, self.parameters = circuit, parameters
        self.rows = parameters.slots // self._packing.block
        self.rotations = self._packing.rotations
        self._scale = 2.0**parameters.scale_bits
        self._encoded: dict[tuple[int, ...], Any] = {}

        self._seal = seal = library("tenseal.sealapi", "TenSEAL", "encrypted inference")
        N = parameters.ring_dimension
        chosen = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
        chosen.set_poly_modulus_degree(N)
        chosen.set_coeff_modulus(seal.CoeffModulus.Create(N, list(parameters.primes)))
        self._context = context = seal.SEALContext(chosen, True, seal.SEC_LEVEL_TYPE.TC128)
        self._public = seal.PublicKey()
        self._for_products, self._for_rotations = seal.RelinKeys(), seal.GaloisKeys()
        self._decryptor = None
        if public_keys is None:
            if sys.stderr.isatty():
                announce(f"Keys of {parameters}")
            keys = seal.KeyGenerator(context)
            keys.create_public_key(self._public)
            keys.create_relin_keys(self._for_products)
            # SEAL knows a rotation by the power of three with its distance.
            keys.create_galois_keys([pow(3, step, 2 * N) for step in sorted(self._packing.steps)], self._for_rotations)
            self._decryptor = seal.Decryptor(context, keys.secret_key())
        else:
            for name, key in self._public_keys().items():
                from_bytes(key, context, public_keys[name])
        self._key = hashlib.sha256(to_bytes(self._public).tobytes()).hexdigest()[:16]
        self._encryptor = seal.Encryptor(context, self._public)
        self._evaluator, self._encoder = seal.Evaluator(context), seal.CKKSEncoder(context)

        self._moduli, self._primes = [], []  # by levels left: the identity of the modulus, and its last prime
        data = context.last_context_data()
        for _ in range(circuit.levels + 1):
            self._moduli.append(data.parms_id())
            self._primes.append(data.parms().coeff_modulus()[-1].value())
            data = data.prev_context_data()

    def __repr__(self) -> str:
        sizes = f"{self.circuit.dim_in} -> {self.circuit.dim_out}"
        rows = f"{self.rows} rows at a time, {self.rotations} rotations"
        keys = "" if self._decryptor else ", public keys only"
        return f"EncryptedSession({sizes}, {self.parameters}, {rows}{keys})"

    # -- files --------------------------------------------------------------------------------------------------------

    def _public_keys(self) -> dict[str, Any]:
        return {"public": self._public, "products": self._for_products, "rotations": self._for_rotations}

    def save_keys(self, path: str | PathLike[str]) -> None:
        """Write the public keys for a server, a safetensors file; `mlpoly.he.load_session` reads it there.

        They allow encryption and evaluation, not decryption. A key for rotations has some 20 MB at N = 16384.
        """
        kept = {"parameters": asdict(self.parameters), "steps": sorted(self._packing.steps)}
        header = {"format": _KEYS, "version": __version__, **kept}
        write_tensors(path, {name: to_bytes(key) for name, key in self._public_keys().items()}, header)

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

    def noise(self, x: Any) -> np.ndarray:
        """Standard deviations (n, o) of the errors that encryption adds to the outputs at x (n, d), estimated.

        Errors above 16 standard deviations occur once in 1e10 outputs. The noise of rotations is taken as that of the
        worst slot, which counts where scale_bits and headroom_bits come near 60 together: there most errors are far
        smaller, by a factor of 20 with 45 and 12, of 100 with 50 and 10.
        """
        return output_noise(self.circuit, self._packing, self.parameters, self._rows(x))

    def _rows(self, x: Any) -> np.ndarray:
        x = to_numpy(as_float_array("x", x, integers=True)).astype(np.float64)
        x = x[None] if x.ndim == 1 else x
        check_shape("x", x, (None, self.circuit.dim_in), "one row for each input")
        check_finite("x", x)
        return x

    # -- client -------------------------------------------------------------------------------------------------------

    def encrypt(self, x: Any, check: bool = True) -> EncryptedRows:
        """Encrypt rows of inputs.

        Parameters
        ----------
        x : array (d,) or (n, d)
            At most `session.rows` rows.
        check : bool
            Whether to evaluate the circuit without encryption, and refuse inputs that leave the range of a layer.
        """
        d = self.circuit.dim_in
        x = self._rows(x)
        if not 1 <= len(x) <= self.rows:
            raise ValueError(
                f"x has {len(x)} rows, and a ciphertext holds 1 to {self.rows}; predict(x) takes any number."
            )
        if check:
            self._check(x)
        packing = self._packing
        slots = np.zeros((len(x), packing.period))
        slots[:, :d], slots[:, d] = x, 1.0
        repeated = slots[:, np.arange(packing.block) % packing.period]
        encrypted = self._seal.Ciphertext()
        self._encryptor.encrypt(self._encode(repeated.ravel(), self.circuit.levels, self._scale), encrypted)
        return EncryptedRows(encrypted, len(x), self._key)

    def _check(self, x: np.ndarray) -> None:
        run = self.circuit.run(x)
        for layer, values in zip(self.circuit.layers, run.entries, strict=True):
            size = np.abs(values).max(axis=-1, initial=0.0)
            if not np.all(size <= 1):  # false for NaN too
                row = int(np.argmax(np.nan_to_num(size, nan=np.inf)))
                raise ValueError(
                    f"row {row} of x leaves the range of {layer.name}: {size[row]:.3g} times what its polynomial was "
                    f"made for, {layer.radius:.3g} standard deviations. Make the circuit with a smaller `outside` or "
                    f"with `samples` like x, poly.to_he(samples=x), or encrypt with check=False."
                )
        size = float(np.abs(run.outputs).max())
        if not size < self.parameters.capacity:
            raise ValueError(
                f"an output of x is {size:.3g}, but only numbers up to {self.parameters.capacity:.4g} come back. "
                f"Use a larger headroom_bits than {self.parameters.headroom_bits}."
            )

    def _check_key(self, encrypted: EncryptedRows) -> None:
        if encrypted.key != self._key:
            raise ValueError("the rows were encrypted with other keys than those of this session.")

    def decrypt(self, encrypted: EncryptedRows) -> np.ndarray:
        """Outputs (n, o) of the rows that were encrypted."""
        if self._decryptor is None:
            raise ValueError("this session has public keys only; decrypt with the session that made them.")
        self._check_key(encrypted)
        if self._levels_of(encrypted.ciphertext):
            raise ValueError("the rows have not been evaluated yet; decrypt takes what session.evaluate returns.")
        decrypted = self._seal.Plaintext()
        self._decryptor.decrypt(encrypted.ciphertext, decrypted)
        block, slots = self._packing.block, np.asarray(self._encoder.decode_double(decrypted))
        return slots[: encrypted.rows * block].reshape(encrypted.rows, block)[:, : self.circuit.dim_out]

    def predict(self, x: Any, check: bool = True) -> np.ndarray:
        """Encrypt, evaluate and decrypt rows of inputs (n, d), as many at a time as a ciphertext holds."""
        x = self._rows(x)
        outputs = [np.zeros((0, self.circuit.dim_out))]
        with progress_bar("Encrypted inference", len(x)) as update:
            for start in range(0, len(x), self.rows):
                update(start, f"{self.rows} rows at a time")
                rows = self.encrypt(x[start : start + self.rows], check)
                outputs.append(self.decrypt(self.evaluate(rows)))
        return np.concatenate(outputs)

    # -- server -------------------------------------------------------------------------------------------------------

    def evaluate(self, encrypted: EncryptedRows) -> EncryptedRows:
        """Outputs of the circuit, encrypted; the first time takes longer, because the matrices are encoded."""
        self._check_key(encrypted)
        if self._levels_of(encrypted.ciphertext) != self.circuit.levels:
            raise ValueError("the rows have been evaluated already; evaluate takes what session.encrypt(x) returns.")
        vectors = {Vector(0): encrypted.ciphertext}
        for i, layer in enumerate(self.circuit.layers, 1):
            turned: dict[tuple[Vector, int], list[Any]] = {}  # rotations, which forms and gates share
            vectors[Vector(i)] = self._sum((i, False), vectors, turned)
            if layer.gates:
                vectors[Vector(i, 0, True)] = self._sum((i, True), vectors, turned)
            for made, (one, two) in products(self.circuit.powers(i)).items():
                vectors[made] = self._multiply(vectors[one], vectors[two])
        outputs = self._sum((len(self.circuit.layers) + 1, False), vectors, {})
        return EncryptedRows(outputs, encrypted.rows, encrypted.key)

    def _sum(
        self, target: tuple[int, bool], vectors: dict[Vector, Any], turned: dict[tuple[Vector, int], list[Any]]
    ) -> Any:
        """Matrices times vectors, summed, at a scale of exactly `scale_bits`."""
        packed = self._packing.sums[target]
        level = min(self._levels_of(vectors[term.vector]) for product in packed for term in product.terms)
        total = None
        for number, product in enumerate(packed):
            for term in product.terms:
                copies = turned.setdefault((term.vector, level), [self._lowered(vectors[term.vector], level)])
                while len(copies) < product.baby:
                    copies.append(self._rotated(copies[-1], 1))
            # Horner's rule for the giant steps: all of them are rotations by the same distance.
            found = None
            for giant in reversed(product.giants):
                if found is not None:
                    found = self._rotated(found, product.baby)
                for k, term in enumerate(product.terms):
                    for baby in product.babies(giant):
                        vector = turned[term.vector, level][baby]
                        diagonal = self._diagonal((*target, number, k, giant, baby), product, vector, level)
                        if not diagonal.is_zero():  # SEAL refuses products with zero
                            found = self._added(found, self._times(vector, diagonal, level))
            for fold in range(product.folds if found is not None else 0):
                found = self._added(found, self._rotated(found, product.diagonals << fold))
            total = self._added(total, found)
        if total is None:  # all matrices are zero
            total = self._seal.Ciphertext()
            self._encryptor.encrypt_zero(self._moduli[level], total)
        self._evaluator.rescale_to_next_inplace(total)
        total.scale = self._scale
        return total

    def _diagonal(self, key: tuple[int, ...], product: PackedProduct, vector: Any, level: int) -> Any:
        """A diagonal of a matrix, encoded; kept, because scales and levels are the same in every evaluation."""
        if key not in self._encoded:
            # At this scale the product is after rescaling, a division by the last prime, at the scale of the session.
            scale = self._scale * self._primes[level] / vector.scale
            term, giant, baby = key[-3:]
            numbers = product.diagonal(term, giant, baby, self._packing.block)
            self._encoded[key] = self._encode(np.tile(numbers, self.rows), level, scale)
        return self._encoded[key]

    def _encode(self, numbers: np.ndarray, level: int, scale: float) -> Any:
        encoded = self._seal.Plaintext()
        self._encoder.encode(numbers.tolist(), self._moduli[level], scale, encoded)
        return encoded

    def _levels_of(self, ciphertext: Any) -> int:
        return int(ciphertext.coeff_modulus_size()) - 1

    def _lowered(self, ciphertext: Any, level: int) -> Any:
        found = self._seal.Ciphertext()
        self._evaluator.mod_switch_to(ciphertext, self._moduli[level], found)
        return found

    def _rotated(self, ciphertext: Any, distance: int) -> Any:
        found = self._seal.Ciphertext()
        self._evaluator.rotate_vector(ciphertext, distance, self._for_rotations, found)
        return found

    def _times(self, ciphertext: Any, diagonal: Any, level: int) -> Any:
        found = self._seal.Ciphertext()
        self._evaluator.multiply_plain(ciphertext, diagonal, found)
        found.scale = self._scale * self._primes[level]  # up to rounding it is; sums want the very same
        return found

    def _added(self, total: Any, ciphertext: Any) -> Any:
        if total is None or ciphertext is None:
            return ciphertext if total is None else total
        self._evaluator.add_inplace(total, ciphertext)
        return total

    def _multiply(self, one: Any, two: Any) -> Any:
        level = min(self._levels_of(one), self._levels_of(two))
        found = self._seal.Ciphertext()
        self._evaluator.multiply(self._lowered(one, level), self._lowered(two, level), found)
        self._evaluator.relinearize_inplace(found, self._for_products)
        self._evaluator.rescale_to_next_inplace(found)
        return found


def session(
    circuit: Circuit, scale_bits: int = 40, headroom_bits: int = 12, ring_dimension: int | None = None
) -> EncryptedSession:
    """Make keys to evaluate a circuit on encrypted inputs with TenSEAL (extra `he`).

    Parameters
    ----------
    circuit : Circuit
    scale_bits : int
        Bits behind the point, 25 to 58.
    headroom_bits : int
        Bits before the point of an output, its sign included: outputs are below 2^(headroom_bits - 1).
    ring_dimension : int, optional
        4096, 8192, 16384 or 32768; if None the smallest that has enough levels at 128-bit security.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> net = mp.MLP(np.eye(3), None, np.ones((2, 3)), None, "gelu")
    >>> circuit = mp.fit(net, mp.Gaussian.standard(3), degree=2).to_he()
    >>> session, x = mp.he.session(circuit), np.eye(3)
    >>> outputs = session.decrypt(session.evaluate(session.encrypt(x)))  # or session.predict(x)
    >>> np.allclose(outputs, circuit(x), atol=1e-3)
    True
    """
    return EncryptedSession(circuit, parameters(circuit, scale_bits, headroom_bits, ring_dimension))


def load_session(circuit: Circuit, path: str | PathLike[str]) -> EncryptedSession:
    """Make the session of a server, which evaluates a circuit on ciphertexts that it cannot decrypt.

    Parameters
    ----------
    circuit : Circuit
        The circuit for which the keys were made.
    path : path
        Public keys written by `EncryptedSession.save_keys`. ``.load(path)`` reads a ciphertext, and
        ``.evaluate(rows).save(path)`` answers it.
    """
    header, arrays = read_format(path, _KEYS, "a file of public keys, as session.save_keys(path) writes it")
    try:
        stored = header["parameters"]
        own = parameters(circuit, *(stored[name] for name in ("scale_bits", "headroom_bits", "ring_dimension")))
        if asdict(own) != stored or header["steps"] != sorted(pack(circuit).steps):
            raise ValueError("they are those of another circuit")
        return EncryptedSession(circuit, own, arrays)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FileFormatError(f"the keys in {path} do not fit this circuit ({error}).") from None
