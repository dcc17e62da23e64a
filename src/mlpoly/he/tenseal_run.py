"""Encrypted evaluation of a circuit with TenSEAL.

TenSEAL's own `mm` makes a new rotation for every diagonal of a matrix, out of those by powers of two: 2 900 for 785
rows, where 24 are enough. A vector of plain numbers that is added first breaks it (TenSEAL #462). So circuits run on
Microsoft SEAL as TenSEAL ships it, `tenseal.sealapi`.
"""

from collections.abc import Mapping
from dataclasses import asdict
from os import PathLike
from typing import Any

import numpy as np

from mlpoly.errors import FileFormatError
from mlpoly.he.circuit import Circuit, Vector, products
from mlpoly.he.ckks import CKKS, output_noise, parameters
from mlpoly.he.client import KEYS, EncryptedClient, layout
from mlpoly.he.files import EncryptedRows, read_format
from mlpoly.he.packing import PackedProduct, pack
from mlpoly.progress_bars import progress_bar


class EncryptedSession(EncryptedClient):
    """Keys for a circuit, and encryption, evaluation and decryption with them; `session` makes it.

    Evaluation uses the public keys alone (for products and for rotations); decryption alone uses the secret key, which
    stays in the process that made it. `save_keys` writes the public ones for a server, where `load_session` reads them.

    Attributes
    ----------
    circuit : Circuit
    layout, parameters, rows
        As in `EncryptedClient`.
    rotations : int
        Number of rotations in an evaluation, which are most of its time.
    """

    def __init__(self, circuit: Circuit, parameters: CKKS, public_keys: Mapping[str, np.ndarray] | None = None) -> None:
        self._packing = pack(circuit)
        self.circuit, self.rotations = circuit, self._packing.rotations
        self._encoded: dict[tuple[int, ...], Any] = {}
        super().__init__(layout(circuit, encryption=parameters), public_keys)
        self._evaluator = self._seal.Evaluator(self._context)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {self.rotations} rotations)"

    def noise(self, x: Any) -> np.ndarray:
        """Standard deviations (n, o) of the errors that encryption adds to the outputs at x (n, d), estimated.

        Errors above 16 standard deviations occur once in 1e10 outputs. The noise of rotations is taken as that of the
        worst slot, which counts where scale_bits and headroom_bits come near 60 together: there most errors are far
        smaller, by a factor of 20 with 45 and 12, of 100 with 50 and 10.
        """
        return output_noise(self.circuit, self._packing, self.parameters, self._rows(x))

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
                            times = self._new("multiply_plain", vector, diagonal)
                            times.scale = self._scale * self._primes[level]  # up to rounding; sums want the very same
                            found = self._added(found, times)
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

    def _new(self, operation: str, *arguments: Any) -> Any:
        """A new ciphertext, the result of an operation of SEAL."""
        found = self._seal.Ciphertext()
        getattr(self._evaluator, operation)(*arguments, found)
        return found

    def _lowered(self, ciphertext: Any, level: int) -> Any:
        return self._new("mod_switch_to", ciphertext, self._moduli[level])

    def _rotated(self, ciphertext: Any, distance: int) -> Any:
        return self._new("rotate_vector", ciphertext, distance, self._keys["rotations"])

    def _added(self, total: Any, ciphertext: Any) -> Any:
        if total is None or ciphertext is None:
            return ciphertext if total is None else total
        self._evaluator.add_inplace(total, ciphertext)
        return total

    def _multiply(self, one: Any, two: Any) -> Any:
        level = min(self._levels_of(one), self._levels_of(two))
        found = self._new("multiply", self._lowered(one, level), self._lowered(two, level))
        self._evaluator.relinearize_inplace(found, self._keys["products"])
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
    header, arrays = read_format(path, KEYS, "a file of public keys, as session.save_keys(path) writes it")
    try:
        stored = header["parameters"]
        own = parameters(circuit, *(stored[name] for name in ("scale_bits", "headroom_bits", "ring_dimension")))
        if asdict(own) != stored or header["steps"] != sorted(pack(circuit).steps):
            raise ValueError("they are those of another circuit")
        return EncryptedSession(circuit, own, arrays)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FileFormatError(f"the keys in {path} do not fit this circuit ({error}).") from None
