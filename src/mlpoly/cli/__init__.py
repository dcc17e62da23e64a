"""The command line: each command is a dataclass of options that calls one public function.

A command's module, and the libraries that it needs, are imported when it is asked for.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence

from mlpoly._version import __version__
from mlpoly.extras import explain_missing

__all__ = ["main"]

# Module in this package, class, and what it does.
_COMMANDS = {
    "reproduce": ("paper", "Reproduce", "repeat the paper's experiments and write report.html"),
    "train": ("paper", "Train", "train networks as in the paper"),
    "dynamics": ("paper", "Dynamics", "fit polynomials to every checkpoint (figures 2 and 3)"),
    "features": ("paper", "Features", "eigenfeatures of every class over training (figure 1)"),
    "attack": ("paper", "Attack", "remove singular directions from the images, and steer (figures 4 and 5)"),
    "report": ("paper", "Report", "write tables, figures and report.html from the results in a folder"),
    "lm": ("lm", "Lm", "replace the blocks of a language model by polynomials and write report.html"),
    "data": ("data", "Data", "fetch a data set, or say where data is looked for"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 1 after an error, 2 for wrong options, 130 after an interrupt."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["--version"], ["-V"]):
        print(f"mlpoly {__version__}")
        return 0
    if words in (["--help"], ["-h"]):
        print("usage: mlpoly COMMAND [OPTIONS]\n\nNeural networks as polynomials, in closed form.\n\ncommands:")
        for name, (_, _, what) in _COMMANDS.items():
            print(f"  {name:<10} {what}")
        print("\nmlpoly COMMAND --help lists the options of a command, mlpoly --version says which mlpoly this is.")
        return 0
    if not words or words[0] not in _COMMANDS:
        wrong = f"there is no command {words[0]!r}" if words else "a command is missing"
        print(f"mlpoly: error: {wrong}; use one of {', '.join(_COMMANDS)}, or mlpoly --help", file=sys.stderr)
        raise SystemExit(2)
    name, *options = words
    module, kind, _ = _COMMANDS[name]
    try:
        with explain_missing(f"mlpoly {name}"):
            import tyro  # before the others: its extra brings all that the commands need

            command = getattr(importlib.import_module(f"mlpoly.cli.{module}"), kind)
    except ImportError as error:
        return _failed(error)
    given = tyro.cli(command, prog=f"mlpoly {name}", args=options)
    try:
        result = given.run()
        from mlpoly.studies.paper.tables import plain

        if given.json:
            print(json.dumps(plain(result), indent=2))
            return 0
        with explain_missing("the table of results"):
            from mlpoly.studies.paper.words import show
        show(result)
    except KeyboardInterrupt:
        print("mlpoly: interrupted; the same command goes on where it was.", file=sys.stderr)
        return 130
    except (ValueError, TypeError, OSError, RuntimeError, ImportError, MemoryError) as error:
        return _failed(error)
    return 0


def _failed(error: Exception) -> int:
    """One line about an error, with the traceback on request."""
    if os.environ.get("MLPOLY_TRACEBACK"):
        raise error
    first = " ".join(str(error).split()) or type(error).__name__
    print(f"mlpoly: error: {first}", file=sys.stderr)
    return 1
