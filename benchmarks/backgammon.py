"""Positions of backgammon, from games that a network plays against itself, as the inputs of GNU Backgammon's networks.

A board is a pair of 25 counts: the checkers of the player to move and of the other one, each by the distance to the end
less one; the last is the bar.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import mlpoly as mp

Board = tuple[tuple[int, ...], tuple[int, ...]]

_START = tuple({5: 5, 7: 3, 12: 5, 23: 2}.get(i, 0) for i in range(25))


def networks(path: Path) -> list[mp.MLP]:
    """The networks of a file gnubg.wd, without the logistic function at their outputs, in the order of the file.

    They are for positions with contact, races and crashed positions, then smaller ones for the same, which see the
    board alone.
    """
    data, at, found = path.read_bytes(), 8, []
    while at < len(data):
        d, h, o, _ = np.frombuffer(data, "<i4", 4, at)
        beta, _ = np.frombuffer(data, "<f4", 2, at + 16)
        sizes = (d * h, h * o, h, o)
        parts = np.split(np.frombuffer(data, "<f4", sum(sizes), at + 24).astype(float), np.cumsum(sizes)[:-1])
        W1, W2 = parts[0].reshape(d, h).T, parts[1].reshape(o, h)
        found.append(mp.MLP(beta * W1, beta * parts[2], W2, parts[3], activation="sigmoid"))
        at += 24 + 4 * sum(sizes)
    return found


def encoded(boards: list[Board]) -> np.ndarray:
    """Inputs (n, 200): for each player and place, one checker, two, three or more, and half the number above three."""
    counts = np.array([[board[1], board[0]] for board in boards])  # the other player's come first
    rows = np.stack([counts == 1, counts == 2, counts >= 3, np.maximum(counts - 3, 0) / 2], -1).astype(float)
    bar = counts[..., 24]
    rows[..., 24, :3] = np.stack([bar >= 1, bar >= 2, bar >= 3], -1)
    return rows.reshape(len(boards), 200)


def games(value: Callable[[Any], Any], positions: int, seed: int = 0) -> Iterator[Board]:
    """Boards with contact, from games in which both sides play the move after which the other's value is least.

    One move in five is drawn at random, so that games differ.
    """
    rng, found = np.random.default_rng(seed), 0
    while found < positions:
        board: Board = (_START, _START)
        while board[0] != (0,) * 25 and in_contact(board) and found < positions:
            yield board
            found += 1
            dice = tuple(int(n) for n in rng.integers(1, 7, 2))
            after = sorted({(other, mine) for mine, other in moves(board, dice)})
            if rng.random() < 0.2:
                board = after[rng.integers(len(after))]
            else:
                board = after[int(np.argmin(value(encoded(after))))]


def in_contact(board: Board) -> bool:
    """Whether the players still have to pass each other."""
    far = [max((i for i, n in enumerate(side) if n), default=-1) for side in board]
    return far[0] + far[1] > 22 and min(far) >= 0


def moves(board: Board, dice: tuple[int, ...]) -> set[Board]:
    """Boards after all legal moves, before the turn passes: as many dice are used as can be."""
    orders = {dice, dice[::-1]} if dice[0] != dice[1] else {dice * 2}
    best, most = {board}, 0
    for order in orders:
        reached, used = {board}, 0
        for pips in order:
            after = {new for old in reached for new in _steps(old, pips)}
            if not after:
                break
            reached, used = after, used + 1
        if used > most:
            best, most = set(reached), used
        elif used == most:
            best |= reached
    return best


def _steps(board: Board, pips: int) -> Iterator[Board]:
    mine, other = board
    far = max(i for i, n in enumerate(mine) if n) if any(mine) else -1
    for start in [24] if mine[24] else range(far + 1):
        end = start - pips
        if not mine[start] or (end < 0 and (far > 5 or (end < -1 and start != far))):
            continue
        if end >= 0 and other[23 - end] > 1:
            continue
        a, b = list(mine), list(other)
        a[start] -= 1
        if end >= 0:
            a[end] += 1
            if b[23 - end]:
                b[23 - end], b[24] = 0, b[24] + 1
        yield tuple(a), tuple(b)
