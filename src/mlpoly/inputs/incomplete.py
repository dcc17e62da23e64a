"""The Gaussian of data with gaps: maximum likelihood by expectation and maximisation (EM)."""

import numpy as np

from mlpoly.inputs.conditioning import Given
from mlpoly.inputs.gaussian import Gaussian
from mlpoly.records import trusted


def gaussian_with_gaps(x: np.ndarray, tolerance: float = 1e-6, rounds: int = 200) -> tuple[Gaussian, int]:
    """The Gaussian under which rows (n, d) with NaN for gaps are most likely, and the number of rounds it took.

    It is right where what is missing depends only on what was observed. Every round replaces the gaps by their mean
    given the row, and adds their covariance to that of the rows. It ends when no mean and no covariance moves by more
    than `tolerance`, in standard deviations of the inputs. A column without a number has mean and variance zero.
    """
    x = np.asarray(x, dtype=np.float64)
    seen = ~np.isnan(x)
    count = np.maximum(seen.sum(axis=0), 1)
    mean = np.where(seen, x, 0.0).sum(axis=0) / count
    filled = np.where(seen, x, mean)
    if seen.all():
        return trusted(Gaussian, mean=mean, cov=np.cov(x, rowvar=False, bias=True).reshape(len(mean), -1)), 0
    variance = np.where(seen, (filled - mean) ** 2, 0.0).sum(axis=0) / count
    scale = np.where(variance > 0, np.sqrt(variance), 1.0)
    x, filled = (x - mean) / scale, (filled - mean) / scale
    center, cov = np.zeros(len(mean)), np.diag(np.where(variance > 0, 1.0, 0.0))
    patterns, owner = np.unique(seen, axis=0, return_inverse=True)
    groups = [(np.flatnonzero(p), np.flatnonzero(owner.reshape(-1) == k)) for k, p in enumerate(patterns)]
    done, step = 0, np.inf
    while step >= tolerance and done < rounds:
        done += 1
        left = np.zeros_like(cov)
        for known, rows in groups:
            if len(known) < len(center):
                given = Given(trusted(Gaussian, mean=center, cov=cov), known)
                means = given.mean(x[np.ix_(rows, known)])
                filled[rows] = np.where(seen[rows], x[rows], means)
                left += len(rows) * given.left
        new = filled.mean(axis=0)
        moved = (filled - new).T @ (filled - new) / len(x) + left / len(x)
        step = max(np.abs(new - center).max(), np.abs(moved - cov).max())
        center, cov = new, (moved + moved.T) / 2
    return trusted(Gaussian, mean=mean + scale * center, cov=cov * scale * scale[:, None]), done
