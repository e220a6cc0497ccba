"""The project that a command is given in: which `pyproject.toml` names its agents, and whether it may.

What that file names is executed, so it is not looked for everywhere above: the search ends at the root of a repository,
at the home directory, and before anything that others could have put there.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.cli.failure import USAGE, Failure
from holdfast.cli.ownership import foreign_path, foreign_why

_NAME = "pyproject.toml"
_REPOSITORIES = (".git", ".hg", ".jj", ".svn")


@dataclass(frozen=True, slots=True)
class Project:
    """Where agents come from if nobody says so."""

    file: Path | None = None
    agents: tuple[str, ...] = ()  #: FILE[:AGENT] or module[:AGENT], as they stand there
    ignored: str = ""  #: a file that was there and was not read, and why


def find_project(start: Path) -> Project:
    """The nearest project above a folder that may be believed."""
    for folder in _folders(start):
        file = folder / _NAME
        try:
            why = foreign_why(folder.stat())
        except OSError as error:  # a folder above that cannot even be looked at
            why = f"cannot be looked at ({error.strerror})"
        if why:
            return Project(ignored=f"{file} was not read, since {folder} {why}" if os.path.exists(file) else "")
        if os.path.isfile(file):
            return _project_of(file)
    return Project()


def _folders(start: Path) -> Iterator[Path]:
    """The folder and those above it, up to where a project ends."""
    home = os.path.realpath(os.path.expanduser("~"))
    for folder in (start, *start.parents):
        yield folder
        if str(folder) == home or any(os.path.exists(folder / name) for name in _REPOSITORIES):
            return


def _project_of(file: Path) -> Project:
    try:
        with file.open("rb") as stream:
            why = foreign_why(os.fstat(stream.fileno()))  # of what is open: it cannot be exchanged in between
            if why:
                return Project(ignored=f"{file} was not read, since it {why}")
            found = tomllib.load(stream)
    except (OSError, ValueError) as error:
        raise Failure(f"{file} cannot be read: {error}.", USAGE) from error
    return Project(file, tuple(_listed(file, found)))


def _listed(file: Path, found: Any) -> list[str]:
    for name in ("tool", "holdfast"):
        found = found.get(name, {}) if isinstance(found, dict) else None
    listed = found.get("agents", []) if isinstance(found, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise Failure(f'{file}: write `agents = ["FILE"]` under [tool.holdfast], a list of texts.', USAGE)
    return listed


def check_ours(project: Project, path: Path) -> None:
    """A file that a project names is executed only if it is ours, as the project is."""
    assert project.file is not None
    foreign = foreign_path(path, below=project.file.parent)
    if foreign:
        raise Failure(
            f"{project.file} names {path}, which is not executed, since {foreign}. If you trust it, name it yourself: "
            "FILE, --app or HOLDFAST_APP.",
            USAGE,
        )
