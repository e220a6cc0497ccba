"""`holdfast doctor`"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from enum import StrEnum

from holdfast.cli.failure import FAILED, INTEGRITY, NOT_FOUND, OK, Failure, code_of
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import check_exists, path_of, with_store
from holdfast.cli.text import clean, count, paint, size, to_json
from holdfast.cli.verify import is_damage
from holdfast.errors import HoldfastError
from holdfast.model import RunFilter, Status
from holdfast.store.base import Store
from holdfast.version import VERSION

_BIG_WAL = 256 * 1024 * 1024
_LITTLE_SPACE = 1024 * 1024 * 1024


class Grade(StrEnum):
    """How a finding is meant."""

    ok = "ok"
    warning = "warning"
    bad = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    what: str
    grade: Grade
    text: str


_MARKS = {Grade.ok: ("✔", "green"), Grade.warning: ("⚠", "yellow"), Grade.bad: ("✖", "red")}


@command("doctor")
def doctor_command(setup: Setup) -> int:
    """Check this installation and its store.

    Changes nothing. Exit code 3: there is no store; 6: it is damaged.
    """
    findings = [
        Finding("holdfast", Grade.ok, VERSION),
        Finding("python", Grade.ok, f"{platform.python_version()} {sys.executable}"),
    ]
    code = OK
    try:
        check_exists(setup)
        findings += with_store(setup, _look)
    except Failure as error:
        findings.append(Finding("store", Grade.warning, error.message))
        code = NOT_FOUND
    except (HoldfastError, OSError) as error:
        findings.append(Finding("store", Grade.bad, str(error)))
        code = code_of(error)
    if code == OK and any(f.grade is Grade.bad for f in findings):
        code = INTEGRITY if any(f.what == "integrity" and f.grade is Grade.bad for f in findings) else FAILED
    if setup.is_json:
        print(to_json({"items": [asdict(f) for f in findings], "store": path_of(setup), "is_ok": code == OK}))
        return code
    for finding in findings:
        mark, style = _MARKS[finding.grade]
        text = clean(finding.text, one_line=True)
        if setup.is_table:
            print(f"{paint(mark, style, setup.has_color(sys.stdout))} {finding.what:<12} {text}")
        else:
            print(f"{finding.grade}\t{finding.what}\t{text}")
    return code


async def _look(store: Store) -> list[Finding]:
    facts = await store.statistics()
    path = store.url.removeprefix("sqlite:///")
    wal = int(facts.get("wal_bytes", 0))
    free = shutil.disk_usage(os.path.dirname(path) or ".").free
    network = facts.get("network_file_system")
    problems = await store.check()
    dead = await store.dead_workers()
    workers = await store.workers()
    left = await store.runs(RunFilter(orphaned_from=frozenset(dead), limit=1000)) if dead else []
    doubts = await store.runs(RunFilter(status=frozenset({Status.in_doubt}), limit=1000))
    damaged = [p for p in problems if is_damage(p)]
    exposed = [p for p in problems if "can be accessed by others" in p]
    is_full = store.durability == "full"
    alive = sum(worker.id not in dead for worker in workers)
    found = [
        Finding("sqlite", Grade.ok, str(facts.get("sqlite", "unknown"))),
        Finding("store", Grade.ok, f"{store.url}, {size(int(facts.get('file_bytes', 0)))}"),
        Finding("schema", Grade.ok, f"{count(int(facts.get('schema', 0)), 'migration')} applied"),
        Finding(
            "durability",
            Grade.ok if is_full else Grade.warning,
            f"{store.durability} (survives power loss)" if is_full else store.durability,
        ),
        Finding(
            "file system",
            Grade.warning if network else Grade.ok,
            f"{network}: locks are not reliable there" if network else "local",
        ),
        Finding("space", Grade.ok if free > _LITTLE_SPACE else Grade.warning, f"{size(free)} free"),
        Finding("log", Grade.ok if wal < _BIG_WAL else Grade.warning, f"{size(wal)} write-ahead log"),
        Finding(
            "contents",
            Grade.ok,
            f"{count(int(facts.get('runs', 0)), 'run')}, {count(int(facts.get('records', 0)), 'record')}",
        ),
        Finding("workers", Grade.ok, f"{alive} alive, {len(workers) - alive} dead"),
    ]
    found += [Finding("permissions", Grade.warning, problem) for problem in exposed] or [
        Finding("permissions", Grade.ok, "readable by its owner only")
    ]
    found += [Finding("integrity", Grade.bad, problem) for problem in damaged] or [
        Finding("integrity", Grade.ok, "no problem found")
    ]
    if left:
        shown = ", ".join(row.id for row in left[:3]) + (" …" if len(left) > 3 else "")
        found.append(
            Finding(
                "left over", Grade.warning, f"{count(len(left), 'run')} cut off: {shown}. `holdfast resume RUN FILE`"
            )
        )
    if doubts:
        found.append(Finding("in doubt", Grade.warning, f"{count(len(doubts), 'run')} in doubt. `holdfast in-doubt`"))
    if store.trouble:
        found.append(Finding("writer", Grade.bad, store.trouble))
    return found
