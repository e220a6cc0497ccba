"""What the code of a program says about itself, outside of the store: where it came by, and what it met there.

Each mark is one `write` to a file opened with O_APPEND, which no kill undoes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

from holdfast.base.clock import now_us
from holdfast.testing.ledger import whole_lines
from tests.programs.agents import VARIABLE


@dataclass(frozen=True)
class Mark:
    """Somebody came by a place of a program."""

    what: str
    at: str
    run: str
    time: int
    pid: int
    more: str = ""


def _folder(name: str) -> Path:
    folder = Path(os.environ[VARIABLE]).parent / name
    folder.mkdir(exist_ok=True)
    return folder


def _file(what: str, name: str) -> Path:
    return _folder("seen") / f"{what}-{blake2b(name.encode(), digest_size=12).hexdigest()}"


def mark(what: str, at: str, run: str, more: str = "") -> None:
    line = json.dumps(asdict(Mark(what, at, run, now_us(), os.getpid(), more)))
    descriptor = os.open(_folder("marks") / "all", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, line.encode() + b"\n")
    finally:
        os.close(descriptor)


def is_first(what: str, name: str) -> bool:
    """Is nobody known to have come by here before?"""
    try:
        os.close(os.open(_file(what, name), os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return False
    return True


def was_seen(what: str, places: Iterable[str]) -> bool:
    """Has somebody come by one of these?"""
    return any(_file(what, at).exists() for at in places)


def marks_in(folder: Path) -> list[Mark]:
    return [Mark(**json.loads(line)) for line in whole_lines(folder / "marks" / "all")]
