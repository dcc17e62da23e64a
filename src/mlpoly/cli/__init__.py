"""The command line: each command is a dataclass of options that calls one public function.

The libraries that a command needs are imported when it is asked for.
"""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from mlpoly._version import __version__
from mlpoly.extras import explain_missing
from mlpoly.machine import COMMAND
from mlpoly.progress_bars import progress

__all__ = ["main"]

# Class in `mlpoly.cli.commands`, and what it does.
_COMMANDS = {
    "report": ("ReportCommand", "write a page about your own network, as a polynomial"),
    "lm": ("LmCommand", "replace the blocks of a language model by polynomials and write a page"),
    "paper": ("PaperCommand", "repeat the paper's experiments on images and write a page"),
    "data": ("DataCommand", "download a data set, or list the folders that are searched for data"),
}
_METAVARS: dict[Any, str] = {int: "N", float: "X", str: "NAME"}  # where a command does not choose another


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 1 after an error, 2 for wrong options, 130 after an interrupt."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["--version"], ["-V"]):
        print(f"mlpoly {__version__}")
        return 0
    if words in (["--help"], ["-h"]):
        print("usage: mlpoly COMMAND [OPTIONS]\n\nNeural networks as polynomials, in closed form.\n\ncommands:")
        for name, (_, what) in _COMMANDS.items():
            print(f"  {name:<10} {what}")
        print("\nmlpoly COMMAND --help lists the options of a command, mlpoly --version prints the version.")
        return 0
    if not words or words[0] not in _COMMANDS:
        wrong = f"there is no command {words[0]!r}" if words else "a command is missing"
        print(f"mlpoly: error: {wrong}; use one of {', '.join(_COMMANDS)}, or mlpoly --help", file=sys.stderr)
        raise SystemExit(2)
    running, shown = COMMAND.set(shlex.join(["mlpoly", *words])), progress(True)
    try:
        with explain_missing(f"mlpoly {words[0]}"):
            command = _parsed(words[0], words[1:])
            progress(not command.quiet)
            result = command.run()
            if command.json:
                from mlpoly.codec import to_plain

                print(json.dumps(to_plain(result), indent=2))
            else:
                from mlpoly.cli.printing import show

                show(result)
    except KeyboardInterrupt:
        print("mlpoly: interrupted; the same command resumes where it was.", file=sys.stderr)
        return 130
    except (ValueError, TypeError, OSError, RuntimeError, ImportError, MemoryError) as error:
        if os.environ.get("MLPOLY_TRACEBACK"):
            raise
        print(f"mlpoly: error: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr)
        if not isinstance(error, ValueError | OSError | ImportError):  # then it may be a mistake of the library
            print("mlpoly: set MLPOLY_TRACEBACK=1 to see where.", file=sys.stderr)
        return 1
    finally:
        COMMAND.reset(running)
        progress(shown)
    return 0


def _parsed(name: str, options: list[str]) -> Any:
    """The command with its options; help and wrong options end here."""
    import tyro  # before the others: its extra brings all that the commands need

    from mlpoly.cli import commands

    command = getattr(commands, _COMMANDS[name][0])
    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule
    def primitive(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec[Any] | None:
        read: Any = info.type
        if read not in _METAVARS:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar=_METAVARS[read],
            instance_from_str=lambda given: read(given[0]),
            is_instance=lambda value: isinstance(value, read),
            str_from_instance=lambda value: [str(value)],
        )

    return tyro.cli(command, prog=f"mlpoly {name}", args=options, registry=registry)
