"""Chebyshev coefficients of the scaled normal tail integrals in ``mlpoly.special``.

    I_r(x) = int_0^inf tau^r / r! exp(-x tau - tau^2 / 2) dtau = exp(x^2 / 4) D_{-r-1}(x),    x >= 0

(x + K)^(r + 1) I_r(x) is smooth and of order one on the whole half line in the variable w = (x - K) / (x + K).
Run with mpmath installed; paste the output into ``special.py``.
"""

import mpmath as mp

K = 5
TERMS = 27
NODES = 80


def tail_integral(r: int, x: mp.mpf) -> mp.mpf:
    """I_r(x) through the parabolic cylinder function."""
    return mp.exp(x * x / 4) * mp.pcfd(-r - 1, x)


def chebyshev(r: int) -> list[mp.mpf]:
    """Coefficients of the Chebyshev series of (x + K)^(r + 1) I_r(x) in w."""
    angles = [mp.pi * (2 * j + 1) / (2 * NODES) for j in range(NODES)]
    points = [K * (1 + mp.cos(a)) / (1 - mp.cos(a)) for a in angles]
    values = [(x + K) ** (r + 1) * tail_integral(r, x) for x in points]
    series = [2 * sum(v * mp.cos(n * a) for v, a in zip(values, angles, strict=True)) / NODES for n in range(TERMS)]
    series[0] /= 2
    return series


def main() -> None:
    """Print the table as Python tuples."""
    mp.mp.dps = 40
    for r in (1, 2):
        print(f"_TAIL_{r} = (")
        for c in chebyshev(r):
            print(f"    {float(c)!r},")
        print(")")


if __name__ == "__main__":
    main()
