"""`holdfast doctor`"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from holdfast.base import faults
from holdfast.cli.failure import FAILED, INTEGRITY, NOT_FOUND, OK, Failure, code_of
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import check_exists, shown_url, with_store
from holdfast.cli.text import clean, paint, to_json
from holdfast.errors import HoldfastError
from holdfast.history.doubts import all_doubts
from holdfast.history.words import count, size
from holdfast.model import Privacy, RunFilter, WorkerId
from holdfast.store.contract import Store
from holdfast.store.extensions import ALL, kind_of
from holdfast.store.problems import Concern, Problem
from holdfast.version import VERSION

_BIG_WAL = 256 * 1024 * 1024
_LITTLE_SPACE = 1024 * 1024 * 1024
_LARGE = 100_000  #: bytes of a run that is named as one of the largest
_NAMED = 3

Facts = Mapping[str, int | str]


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


@command("doctor", here="looks at the files and the database of a store")
def doctor_command(setup: Setup) -> int:
    """Check this installation and its store.

    Changes nothing. Exit code 3: there is no store; 6: it is damaged.
    """
    findings = [
        Finding("holdfast", Grade.ok, VERSION),
        Finding("python", Grade.ok, f"{platform.python_version()} {sys.executable}"),
    ]
    if switches := faults.switched_on():
        told = f"{', '.join(switches)}: for tests only; processes fail, or their clocks go wrong, on purpose. Unset it"
        findings.append(Finding("environment", Grade.warning, told))
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
        print(to_json({"items": [asdict(f) for f in findings], "store": _shown_url(setup), "is_ok": code == OK}))
        return code
    for finding in findings:
        mark, style = _MARKS[finding.grade]
        text = clean(finding.text, one_line=True)
        if setup.is_table:
            print(f"{paint(mark, style, setup.has_color(sys.stdout))} {finding.what:<12} {text}")
        else:
            print(f"{finding.grade}\t{finding.what}\t{text}")
    return code


def _shown_url(setup: Setup) -> str | None:
    try:
        return shown_url(setup)
    except HoldfastError:  # it cannot be read, which is told already
        return None


async def _look(store: Store) -> list[Finding]:
    facts = await store.statistics()
    problems = await store.check()
    is_full = store.durability == "full"
    is_server = "postgres" in facts
    found = _server(store, facts) if is_server else _file(store, facts)
    found.append(Finding("schema", Grade.ok, f"{count(int(facts.get('schema', 0)), 'migration')} applied"))
    found.append(
        Finding(
            "durability",
            Grade.ok if is_full else Grade.warning,
            f"{store.durability} (survives power loss)" if is_full else store.durability,
        )
    )
    found += _settings(facts) if is_server else _surroundings(store, facts)
    found.append(
        Finding(
            "contents",
            Grade.ok,
            f"{count(int(facts.get('runs', 0)), 'run')}, {count(int(facts.get('records', 0)), 'record')}",
        )
    )
    found += await _largest(store)
    if extensions := await store.definitions(kind_of(), limit=ALL):
        spaces = [len(await store.definitions(kind_of(each.name), limit=ALL)) for each in extensions]
        told = (f"{each.name} ({count(number, 'space')})" for each, number in zip(extensions, spaces, strict=True))
        found.append(Finding("extensions", Grade.ok, ", ".join(told)))
    dead = await store.dead_workers()
    workers = await store.workers()
    alive = sum(worker.id not in dead for worker in workers)
    found.append(Finding("workers", Grade.ok, f"{alive} alive, {len(workers) - alive} dead"))
    found += _problems(facts, problems, is_server=is_server)
    found += await _left(store, frozenset(dead))
    if store.trouble:
        found.append(Finding("writer", Grade.bad, store.trouble))
    return found


def _problems(facts: Facts, problems: Sequence[Problem], *, is_server: bool) -> list[Finding]:
    """What is wrong, and what was looked at and is not."""
    if is_server:
        shown = {Concern.loss: "server", Concern.place: "server", Concern.access: "server"}
        sound = {}
    else:  # a file's place is told with what is around it
        shown = {Concern.access: "permissions", Concern.owner: "owners"}
        sound = {
            Concern.access: "readable by its owner only",
            Concern.owner: f"its files are those of {facts.get('owner', 'unknown')}",
        }
    shown[Concern.damage], sound[Concern.damage] = "integrity", "no problem found"
    found = []
    for concern, what in shown.items():
        grade = Grade.bad if concern in (Concern.damage, Concern.loss) else Grade.warning
        found += [Finding(what, grade, each.text) for each in problems if each.concern is concern] or (
            [Finding(what, Grade.ok, sound[concern])] if concern in sound else []
        )
    return found


def _file(store: Store, facts: Facts) -> list[Finding]:
    return [
        Finding("sqlite", Grade.ok, str(facts.get("sqlite", "unknown"))),
        Finding("store", Grade.ok, f"{store.url}, {size(int(facts.get('file_bytes', 0)))}"),
    ]


def _surroundings(store: Store, facts: Facts) -> list[Finding]:
    """What a database file lies on."""
    wal = int(facts.get("wal_bytes", 0))
    free = shutil.disk_usage(os.path.dirname(store.url.removeprefix("sqlite:///")) or ".").free
    network = facts.get("network_file_system")
    return [
        Finding(
            "file system",
            Grade.warning if network else Grade.ok,
            f"{network}: locks are not reliable there" if network else "local",
        ),
        Finding("space", Grade.ok if free > _LITTLE_SPACE else Grade.warning, f"{size(free)} free"),
        Finding("log", Grade.ok if wal < _BIG_WAL else Grade.warning, f"{size(wal)} write-ahead log"),
    ]


def _server(store: Store, facts: Facts) -> list[Finding]:
    sizes = f"{size(int(facts['schema_bytes']))}, of {size(int(facts['database_bytes']))} in the database"
    return [
        Finding("postgres", Grade.ok, str(facts["postgres"])),
        Finding("store", Grade.ok, f"{store.url}, {sizes}"),
    ]


def _settings(facts: Facts) -> list[Finding]:
    """Of a server; what is wrong about them is told with the problems."""
    names = ("fsync", "full_page_writes", "synchronous_commit")
    side = "a standby" if facts["standby"] else "the primary"
    standbys = str(facts["synchronous_standby_names"]) or "no other server"
    return [
        Finding("settings", Grade.ok, ", ".join(f"{name}={facts[name]}" for name in names)),
        Finding("role", Grade.ok, f"{side}; its commits wait for {standbys}"),
        Finding("connections", Grade.ok, f"{facts['connections_left']} more can be made"),
        Finding("clock", Grade.ok, _clock(int(facts["clock_difference_ms"]))),
        _encryption(facts),
    ]


def _encryption(facts: Facts) -> Finding:
    """Whether others can read along on the way to the server, or to the pooler in front of it."""
    cipher = facts["cipher"]
    grade, text = {
        Privacy.verified: (Grade.ok, f"encrypted ({cipher}), and the server's certificate fits its name"),
        Privacy.unverified: (
            Grade.warning,
            f"encrypted ({cipher}), but with whom was not checked: add ?sslmode=verify-full to the url, and "
            "&sslrootcert=FILE if its certificate is signed by your own authority",
        ),
        Privacy.local: (Grade.ok, "not encrypted, and does not leave this machine"),
        Privacy.clear: (
            Grade.warning,
            "not encrypted: whoever is on the way can read and change everything; have the server use TLS, and add "
            "?sslmode=verify-full to the url",
        ),
    }[Privacy(str(facts["privacy"]))]
    return Finding("encryption", grade, text)


async def _largest(store: Store) -> list[Finding]:
    """The runs that take most: of those that are worth a look."""
    large = [(run_id, records, taken) for run_id, records, taken in await store.largest(_NAMED) if taken >= _LARGE]
    told = "; ".join(f"{run_id}: {size(taken)}, {count(records, 'record')}" for run_id, records, taken in large)
    return [Finding("largest", Grade.ok, told)] if told else []


async def _left(store: Store, dead: frozenset[WorkerId]) -> list[Finding]:
    """What somebody has to look at."""
    left = await store.runs(RunFilter(orphaned_from=dead, limit=1000)) if dead else []
    doubts = {row.id for row, _ in await all_doubts(store)}
    found = []
    if left:
        shown = ", ".join(row.id for row in left[:3]) + (" …" if len(left) > 3 else "")
        found.append(
            Finding(
                "left over", Grade.warning, f"{count(len(left), 'run')} cut off: {shown}. `holdfast resume RUN FILE`"
            )
        )
    if doubts:
        found.append(Finding("in doubt", Grade.warning, f"{count(len(doubts), 'run')} in doubt. `holdfast in-doubt`"))
    return found


def _clock(ahead_ms: int) -> str:
    return f"{abs(ahead_ms)} ms {'behind' if ahead_ms < 0 else 'ahead of'} this machine's"
