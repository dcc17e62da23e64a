"""Progress bars for long work: on a terminal, after a moment, and only if rich is installed; with one switch."""

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_PATIENCE = 2.0  # seconds before a bar appears
_switch = {"on": True}


def progress(show: bool) -> bool:
    """Switch progress bars, and the lines that long studies print, on (as at first) or off; return what it was."""
    before, _switch["on"] = _switch["on"], bool(show)
    return before


@contextmanager
def progress_bar(title: str, total: int | None) -> Iterator[Callable[[int, str], None]]:
    """Give a function `update(done, note)` that draws a progress bar on a terminal, after two seconds."""
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
    drawn: Any = None  # the one display on the screen, which nested bars share

    def __init__(self, title: str, total: int | None) -> None:
        self.title, self.total, self.began = title, total, time.monotonic()
        self.task: Any = None
        self.owner = False

    def update(self, done: int, note: str) -> None:
        if self.task is None and time.monotonic() - self.began > _PATIENCE:
            if _Bar.drawn is None:
                try:  # by name: the core must not import rich
                    rich, console = map(importlib.import_module, ("rich.progress", "rich.console"))
                except ImportError:
                    return
                words, text = rich.TextColumn("{task.description}"), rich.TextColumn("{task.fields[note]}")
                columns = (words, rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeElapsedColumn(), text)
                display = rich.Progress(*columns, console=console.Console(stderr=True), transient=True)
                display.start()
                _Bar.drawn, self.owner = display, True
            self.task = _Bar.drawn.add_task(self.title, total=self.total, note="")
        if self.task is not None:
            _Bar.drawn.update(self.task, completed=done, note=note)

    def close(self) -> None:
        if self.owner:
            _Bar.drawn.stop()
            _Bar.drawn = None
        elif self.task is not None:
            _Bar.drawn.remove_task(self.task)
