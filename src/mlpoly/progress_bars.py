"""Progress bars for long work: on a terminal, after a moment, and only if rich is installed; with one switch."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE = 2.0  # seconds before a bar appears
_switch = {"on": True}


def progress(show: bool) -> None:
    """Switch progress bars, and the lines that long studies print, on or off, from now on and everywhere.

    Parameters
    ----------
    show : bool
        They are on at first, and drawn only where stderr is a terminal.

    Examples
    --------
    >>> import mlpoly as mp
    >>> mp.progress(False)
    """
    _switch["on"] = bool(show)


@contextmanager
def progress_bar(title: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
    """Give a function `update(done, note)` that draws a progress bar on stderr once the work has taken two seconds.

    Nested work gets a line of its own below. Nothing is drawn when stderr is not a terminal, so that logs and
    notebooks under test stay clean.
    """
    bar = _Bar(title, total) if _switch["on"] and sys.stderr.isatty() else None
    try:
        yield bar.update if bar is not None else lambda done, note: None
    finally:
        if bar is not None:
            bar.close()


def announce(text: str) -> None:
    """Print a line on stderr that says what is done next; unlike a bar, in files and pipes too."""
    if _switch["on"]:
        print(text, file=sys.stderr, flush=True)


class _Bar:
    drawn: object = None  # the one display on the screen, which nested bars share

    def __init__(self, title: str, total: int | None) -> None:
        self.title, self.total = title, total
        self.began = time.monotonic()
        self.bar: object = None
        self.task: object = None
        self.owner = False

    def update(self, done: int, note: str) -> None:
        if self.bar is None and time.monotonic() - self.began > _PATIENCE:
            self._open()
        if self.bar is not None:
            self.bar.update(self.task, completed=done, note=note)  # type: ignore[attr-defined]

    def _open(self) -> None:
        if _Bar.drawn is None:
            self._draw()
        if _Bar.drawn is not None:
            self.bar = _Bar.drawn
            self.task = self.bar.add_task(self.title, total=self.total, note="")  # type: ignore[attr-defined]

    def _draw(self) -> None:
        try:
            rich = importlib.import_module("rich.progress")
            console = importlib.import_module("rich.console").Console(stderr=True)
        except ImportError:
            return
        columns = (
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TimeElapsedColumn(),
            rich.TextColumn("{task.fields[note]}"),
        )
        _Bar.drawn = rich.Progress(*columns, console=console, transient=True)
        _Bar.drawn.start()  # type: ignore[attr-defined]
        self.owner = True

    def close(self) -> None:
        if self.owner:
            _Bar.drawn = None
            self.bar.stop()  # type: ignore[attr-defined]
        elif self.bar is not None:
            self.bar.remove_task(self.task)  # type: ignore[attr-defined]
