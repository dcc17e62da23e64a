"""Parameters of CKKS encryption at 128-bit security, and how exact its results are."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlpoly.he.circuit import Circuit, Vector, products
from mlpoly.he.packing import PackedProduct, Packing, pack

# Largest modulus in bits for 128-bit security by ring dimension: the homomorphic encryption standard of 2018
# (homomorphicencryption.org), ternary secret, classical attacks. SEAL has the same table.
MODULUS_BITS = {4096: 109, 8192: 218, 16384: 438, 32768: 881}

_SMALLEST_PRIME = 25  # bits; of fewer there are too few primes that are one modulo 2 N for all levels
_LARGEST_PRIME = 60  # bits of the largest prime that SEAL takes
_SIGMA = 3.2  # standard deviation of the errors of an encryption, in the standard and in SEAL


@dataclass(frozen=True, repr=False)
class CKKS:
    """Parameters of CKKS encryption at 128-bit security.

    Attributes
    ----------
    ring_dimension, levels : int
        Dimension N, so that a ciphertext has N / 2 slots; and products that can follow one another.
    scale_bits : int
        Bits behind the point, and of the prime that each level uses up.
    headroom_bits : int
        Bits before the point of a result, its sign included.
    """

    ring_dimension: int
    levels: int
    scale_bits: int = 40
    headroom_bits: int = 12

    def __post_init__(self) -> None:
        most = MODULUS_BITS.get(self.ring_dimension, 0)
        if self.modulus_bits > most:
            raise ValueError(
                f"a modulus of {self.modulus_bits} bits is not secure at ring_dimension {self.ring_dimension}, where "
                f"128-bit security allows {most}; mlpoly.he.parameters(circuit) chooses parameters that are."
            )

    @property
    def slots(self) -> int:
        """Numbers in a ciphertext."""
        return self.ring_dimension // 2

    @property
    def primes(self) -> tuple[int, ...]:
        """Bits of the primes: of the result, of each level, and the special prime that keys have in addition."""
        return (self.scale_bits + self.headroom_bits, *[self.scale_bits] * self.levels, _LARGEST_PRIME)

    @property
    def modulus_bits(self) -> int:
        """Bits of the modulus, the special prime included: what the security depends on."""
        return sum(self.primes)

    @property
    def security(self) -> int:
        """Bits of security."""
        return 128

    @property
    def capacity(self) -> float:
        """Largest result that can be decrypted."""
        return 2.0 ** (self.headroom_bits - 1)

    def __repr__(self) -> str:
        first, *_, special = self.primes
        return (
            f"CKKS(N={self.ring_dimension}, modulus of {self.modulus_bits} bits "
            f"({first} + {self.levels} x {self.scale_bits} + {special}), {self.levels} levels, "
            f"{self.security}-bit security)"
        )


def parameters(
    circuit: Circuit, scale_bits: int = 40, headroom_bits: int = 12, ring_dimension: int | None = None
) -> CKKS:
    """Parameters of CKKS encryption for a circuit, at 128-bit security; `session` describes the arguments.

    Examples
    --------
    >>> import numpy as np, mlpoly as mp
    >>> circuit = mp.fit(mp.MLP(np.eye(3), activation="gelu"), mp.Gaussian.standard(3), degree=4).to_he()
    >>> mp.he.parameters(circuit).ring_dimension
    16384
    """
    return choose_parameters(circuit.levels, pack(circuit).block, scale_bits, headroom_bits, ring_dimension)


def choose_parameters(
    levels: int, slots: int = 1, scale_bits: int = 40, headroom_bits: int = 12, ring_dimension: int | None = None
) -> CKKS:
    """Choose the smallest ring dimension for a number of levels and slots, or check a given one.

    A ValueError states how many levels fit; `session` describes the other arguments.
    """
    if not (isinstance(scale_bits, int) and _SMALLEST_PRIME <= scale_bits <= _LARGEST_PRIME - 2):
        allowed = f"from {_SMALLEST_PRIME} to {_LARGEST_PRIME - 2}"
        raise ValueError(f"scale_bits must be a whole number {allowed}, got {scale_bits!r}.")
    if not (isinstance(headroom_bits, int) and 2 <= headroom_bits <= _LARGEST_PRIME - scale_bits):
        raise ValueError(
            f"headroom_bits must be from 2 to {_LARGEST_PRIME - scale_bits}, so that it has with the scale_bits "
            f"({scale_bits}) no more than the {_LARGEST_PRIME} bits of a prime; got {headroom_bits!r}."
        )
    if ring_dimension is not None and not (isinstance(ring_dimension, int) and ring_dimension in MODULUS_BITS):
        known = ", ".join(str(n) for n in MODULUS_BITS)
        raise ValueError(f"ring_dimension must be one of {known}, got {ring_dimension!r}.")
    fixed = _LARGEST_PRIME + scale_bits + headroom_bits
    room = {n: max(bits - fixed, 0) // scale_bits for n, bits in MODULUS_BITS.items()}  # levels
    enough = [n for n in MODULUS_BITS if room[n] >= levels and n // 2 >= slots]
    if ring_dimension is None and enough:
        return CKKS(enough[0], levels, scale_bits, headroom_bits)
    if ring_dimension in enough:
        return CKKS(ring_dimension, levels, scale_bits, headroom_bits)
    tried = ring_dimension if ring_dimension is not None else max(MODULUS_BITS)
    remedy = f"ring_dimension={enough[0]} does" if enough else "use a smaller network"
    if room[tried] >= levels:
        raise ValueError(f"the network needs {slots} slots, and ring_dimension {tried} has {tried // 2}; {remedy}.")
    if not enough:
        remedy = "use a smaller scale_bits, or lower degrees: mlpoly.he.plan(net, inputs, levels=...)"
    raise ValueError(
        f"the network needs {levels} levels, and ring_dimension {tried} has {room[tried]} with 128-bit security and "
        f"scale_bits {scale_bits}; {remedy}."
    )


def output_noise(circuit: Circuit, packing: Packing, parameters: CKKS, x: np.ndarray) -> np.ndarray:
    """Standard deviations (n, o) of the outputs' errors through encryption, at inputs x (n, d), to first order.

    Each operation adds noise of known variance to every slot. Noise of different operations and slots is taken as
    independent, and reaches the outputs through the derivatives of the circuit at x. In a slot it is at worst the real
    part of the product of two complex Gaussian numbers, a Laplace distribution: 16 standard deviations are left once in
    1e10 slots.
    """
    N, scale = parameters.ring_dimension, 2.0**parameters.scale_bits
    encoding = math.sqrt(N / 24) / scale  # coefficients rounded to integers
    # What is dropped from both halves of a ciphertext is uniform, and one half counts times the secret key. A new
    # encryption has the same noise, because SEAL makes it with the special prime and drops that.
    rounding = N / 6 / scale
    # The digits of a ciphertext times the errors of a key, over the special prime. The digits run from zero to a
    # prime, so that their mean is N / pi primes in the first slot, the worst.
    digits = math.hypot(*(2.0 ** (bits - parameters.primes[-1]) for bits in parameters.primes[:-1]))
    switching = math.hypot(rounding, digits * _SIGMA * math.sqrt(N / 2) * N / math.pi / scale)

    last = len(circuit.layers) + 1
    value = circuit.run(x).value
    slopes: dict[Vector, Any] = {}  # derivatives (n, o, size) of the outputs with respect to each vector

    def through(packed: tuple[PackedProduct, ...], slope: np.ndarray) -> np.ndarray:
        """Variance (n, o) of the noise of a sum; hands its derivatives on to the vectors in it."""
        variance: Any = rounding**2
        for product in packed:
            for term in product.terms:
                # A giant step, or a fold, rotates at the square of the scale, where its noise counts for nothing.
                turned = switching**2 * (product.baby - 1) / 2 * np.sum(term.matrix**2, axis=1)
                encoded = encoding**2 * np.sum(value(term.vector) ** 2, axis=1)
                variance = variance + turned + encoded[:, None]
                slopes[term.vector] = slopes.get(term.vector, 0.0) + slope @ term.matrix
        return np.sum(slope**2 * np.broadcast_to(variance, slope[:, 0].shape)[:, None], axis=-1)

    total = through(
        packing.sums[last, False], np.broadcast_to(np.eye(circuit.dim_out), (len(x), *[circuit.dim_out] * 2))
    )
    for i in range(last - 1, 0, -1):
        for made, parts in reversed(products(circuit.powers(i)).items()):
            total = total + rounding**2 * np.sum(slopes[made] ** 2, axis=-1)
            for part, other in (parts, parts[::-1]):
                slopes[part] = slopes.get(part, 0.0) + slopes[made] * value(other)[:, None]
        for v, gated in ((Vector(i), False), (Vector(i, 0, True), True)):
            if v in slopes:
                total = total + through(packing.sums[i, gated], slopes[v])
    return np.sqrt(
        total + (rounding**2 + encoding**2) * np.sum(slopes.get(Vector(0), np.zeros((1, 1, 1))) ** 2, axis=-1)
    )
