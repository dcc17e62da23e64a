"""A study in a folder: where its results come from, its stages, and how it resumes."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any, Generic, TypeVar

from mlpoly._version import __version__
from mlpoly.codec import load_results, save_results, to_plain, write_table
from mlpoly.errors import FileFormatError
from mlpoly.files import make_folder, read_json, write_json
from mlpoly.machine import COMMAND, describe_machine

R = TypeVar("R")

_FILE = "study.json"


@dataclass
class Study(Generic[R]):
    """A folder with the results of a study, and what they were made from.

    study.json has `about`; results/STAGE.json what a stage has added, its arrays in a .safetensors file. A stage is
    there as a whole or not at all, so that a study that was killed resumes after the last one.
    """

    folder: Path
    kind: type[R]  # record of all results; its fields have defaults, as a stage fills some of them
    about: dict[
        str, Any
    ]  # version, command, options ("config"), data, machine, seconds of every finished stage; as JSON
    parts: dict[str, R] = field(default_factory=dict)  # what every finished stage has added

    @classmethod
    def open(cls, folder: str | PathLike[str], kind: type[R]) -> "Study[R]":
        """Read the study in a folder, finished or not."""
        folder = Path(folder)
        if not (folder / _FILE).is_file():
            raise FileNotFoundError(f"there is no study in {folder}; run the one that makes it first.")
        about = read_json(folder / _FILE)
        if not isinstance(about, dict) or about.get("kind") != kind.__name__:
            raise FileFormatError(
                f"{folder} holds a study of another kind or version; choose another --out, or delete {_FILE} in it."
            )
        return cls(folder, kind, about, {name: load_results(_path(folder, name), kind) for name in about["seconds"]})

    @classmethod
    def create(
        cls,
        folder: str | PathLike[str],
        kind: type[R],
        config: Mapping[str, Any],
        sources: Mapping[str, str],
        device: str = "cpu",
        *,
        may_change: tuple[str, ...] = (),
        restart: bool = False,
        **about: Any,
    ) -> "Study[R]":
        """Begin a study, or resume the one in the folder; one with other options or sources is refused and kept.

        `sources` are fingerprints of what the results depend on besides the options. Options that `may_change` may
        differ from those in the folder; the stages answer for that. `restart` discards the stages that the folder has.
        """
        new = {"kind": kind.__name__, "version": __version__, "command": COMMAND.get(), "config": config}
        new |= {"sources": dict(sources), "machine": describe_machine(device), **about}
        target, old = Path(folder), None
        if (target / _FILE).is_file() and not restart:
            old = cls.open(target, kind)
            config, plain, machine = old.about.get("config", {}), to_plain(new), old.about.get("machine", {})
            changed = [
                f"{name} {config.get(name)!r}, now {value!r}"
                for name, value in plain["config"].items()
                if name not in may_change and config.get(name) != value
            ]
            known = old.about.get("sources", {})
            # The options first: tokens and prompts depend on them.
            changed = changed or [f"another {name}" for name, v in plain["sources"].items() if known.get(name) != v]
            if changed:
                raise ValueError(
                    f"{folder} holds a study with {', '.join(changed)}; choose another --out, or replace it with "
                    f"--restart (resume=False)."
                )
            here = plain["machine"].items()
            moved = [f"{name} {machine[name]}, now {v}" for name, v in here if machine.get(name, v) != v]
            if moved:
                warnings.warn(
                    f"the results in {folder} are kept although the machine or versions have changed "
                    f"({'; '.join(moved)}); --restart (resume=False) computes them again.",
                    stacklevel=2,
                )
        study = cls(make_folder(target), kind, to_plain(new) | {"seconds": {}})
        if old is not None:
            study.about["seconds"], study.parts = old.about["seconds"], old.parts
        for path in target.glob("results/*") if restart else ():
            path.unlink()
        write_json(target / _FILE, study.about)
        return study

    @property
    def results(self) -> R:
        """The results of all finished stages: of a field that is a tuple, the entries of all of them."""
        values: dict[str, Any] = {}
        for f in fields(self.kind):  # type: ignore[arg-type]
            added = [value for part in self.parts.values() if (value := getattr(part, f.name)) is not None]
            if added and isinstance(added[0], tuple):
                values[f.name] = tuple(entry for entries in added for entry in entries)
            elif added:
                values[f.name] = added[-1]
        return self.kind(**values | {"about": self.about})

    def write_tables(self, tables: Mapping[str, Sequence[Any]]) -> None:
        """Write tables/NAME.csv of the records or rows of each kind; a kind that there is nothing of has no file."""
        folder = make_folder(self.folder / "tables")
        for name, rows in tables.items():
            if rows:
                write_table(folder / f"{name}.csv", rows)

    @contextmanager
    def stage(self, name: str) -> Iterator[dict[str, Any]]:
        """Collect fields of the results in a dictionary; at the end they are saved, with the seconds that it took."""
        found: dict[str, Any] = {}
        began = time.perf_counter()
        yield found
        part = self.kind(**found)
        save_results(_path(self.folder, name), part)
        self.parts[name] = part
        self.about["seconds"][name] = round(time.perf_counter() - began, 2)
        write_json(self.folder / _FILE, self.about)

    def run(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        """Do a stage, unless it is finished."""
        if name not in self.parts:
            with self.stage(name) as found:
                found |= work()


def _path(folder: Path, stage: str) -> Path:
    return make_folder(folder / "results") / f"{stage.replace(' ', '-')}.json"
