"""Flip a byte anywhere in a store: no agent ever sees a value that differs from the recorded one."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

import holdfast as hf
from holdfast.base.config import Settings
from holdfast.model import OUTCOMES, Kind, Record, RunId
from holdfast.store import open_store
from holdfast.testing.child import REFUSED
from holdfast.testing.processes import Lane, Order
from tests.crash import witness

pytestmark = pytest.mark.corrupts

LENGTH = 8
INPUT = "what the agent is given " * 20
CALL = witness.witness(LENGTH, INPUT)
#: A message of ours that says that stored data is damaged.
CLEAR = ("StoreCorrupt: ", "CorruptJournal: ", "StoreError: ", "ConflictingStart: ", "SchemaTooNew: ")


def seed(name: str) -> random.Random:
    chosen = int(os.environ.get("SEED", "20261115"))
    print(f"to see it again: SEED={chosen} python -m pytest {Path(__file__).name} -k {name}")
    return random.Random(chosen)


@dataclass(frozen=True)
class Template:
    """A store with two runs in the middle of their work, and what these runs have been told."""

    folder: Path
    told: dict[str, list[object]]  #: by run: the values that are in the journal
    firm: dict[str, int]  #: how many of them are there even if the last commit is lost


def process(lane: Lane, folder: Path, run_id: str, *, kill: str = "", timeout_s: float = 60) -> tuple[int, str]:
    log = folder / f"log-{run_id}"
    env = {"SEEN": str(folder / "seen.jsonl"), "HOLDFAST_FAULT": kill}
    order = Order(witness.__file__, "witness", run_id, str(folder / "store.db"), CALL.input.text, env, log, alone=True)
    try:
        code = lane.run(order, timeout_s)
    except TimeoutError as error:
        return 1, str(error)
    return code, log.read_text() if log.exists() else ""


def seen(folder: Path) -> dict[str, list[object]]:
    path = folder / "seen.jsonl"
    found: dict[str, list[object]] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        run_id, value = json.loads(line)
        found.setdefault(run_id, []).append(value)
    return found


def records(folder: Path, run_id: str) -> list[Record]:
    async def load() -> list[Record]:
        store = open_store(str(folder / "store.db"), settings=Settings())
        await store.open(read_only=True)
        try:
            return await store.records(RunId(run_id))
        finally:
            await store.close()

    return asyncio.run(load())


def make_template(lane: Lane, folder: Path, *, closed: bool) -> Template:
    folder.mkdir()
    for run_id, at in (("other", 3), ("r", 6)):
        assert process(lane, folder, run_id, kill=f"effect.after_intent:kill@{at}")[0] == -9
    told: dict[str, list[object]] = {}
    firm: dict[str, int] = {}
    live = seen(folder)
    shutil.copytree(folder, folder.with_name(f"{folder.name}-read"))
    for run_id in ("other", "r"):
        stored = records(folder.with_name(f"{folder.name}-read"), run_id)
        outcomes = [r.seq for r in stored if r.kind in OUTCOMES]
        barrier = [r.seq for r in stored if r.kind == Kind.intent][-2]
        told[run_id] = live[run_id][: 1 + len(outcomes)]
        firm[run_id] = 1 + sum(seq <= barrier for seq in outcomes)
        assert len(told[run_id]) > 4
    if closed:

        async def close() -> None:
            async with hf.connect(str(folder / "store.db")):
                pass

        asyncio.run(close())
    assert (folder / "store.db-wal").exists() is not closed
    for path in folder.glob("log-*"):
        path.unlink()
    (folder / "seen.jsonl").unlink()
    return Template(folder, told, firm)


@pytest.fixture(scope="module")
def lanes() -> Iterator[list[Lane]]:
    with Lane() as first, Lane() as second:
        yield [first, second]


@pytest.fixture(scope="module")
def closed(lanes: list[Lane], tmp_path_factory: pytest.TempPathFactory) -> Template:
    return make_template(lanes[0], tmp_path_factory.mktemp("corruption") / "closed", closed=True)


@pytest.fixture(scope="module")
def killed(lanes: list[Lane], tmp_path_factory: pytest.TempPathFactory) -> Template:
    return make_template(lanes[0], tmp_path_factory.mktemp("corruption") / "killed", closed=False)


def last_commit(wal: bytes) -> int:
    """Where the last commit of a write-ahead log begins."""
    size = 24 + struct.unpack_from(">I", wal, 8)[0]
    salts = wal[16:24]
    starts, begin = [], 32
    for offset in range(32, len(wal) - size + 1, size):
        if wal[offset + 8 : offset + 16] != salts:
            break
        if struct.unpack_from(">I", wal, offset + 4)[0]:
            starts.append(begin)
            begin = offset + size
    return starts[-1]


def content(path: Path) -> list[object] | None:
    """What is stored and checked, read without any of our code; None if SQLite itself cannot read it."""
    connection = apsw.Connection(str(path))
    try:
        runs = "thread_id, agent, nonce, parent_id, created_at, status, turn, epoch, head_seq, head_hash, digest"
        # Without the first part of the key: SQLite reads on over a changed one, and no value is different.
        records = "seq, epoch, turn, key, kind, name, attempt, tick, at, took, args_digest, args, payload, hash"
        queries = [
            f"SELECT {runs} FROM runs",
            f"SELECT {records} FROM records",
            "SELECT digest, chunk, data FROM blobs",
        ]
        return [row for query in queries for row in connection.execute(query)]
    except (apsw.Error, UnicodeDecodeError):
        return None
    finally:
        connection.close()


def resume_both(
    lane: Lane, folder: Path, template: Template, *, firm: dict[str, int] | None = None, timeout_s: float = 60
) -> tuple[list[str], str]:
    """Go on with both runs; (what is wrong, what came of it in a word for each)."""
    wrong, words = [], []
    outputs = {}
    for run_id in ("r", "other"):
        code, output = process(lane, folder, run_id, timeout_s=timeout_s)
        outputs[run_id] = output
        if "Traceback" in output or code not in (0, REFUSED):
            wrong.append(f"{run_id}: code {code}: {output}")
        if code == REFUSED and not any(line.startswith(CLEAR) for line in output.splitlines()):
            wrong.append(f"{run_id}: unclear: {output}")
        words.append(
            "refused" if code else "quarantined" if "CorruptJournal" in output else "blocked" if output else "went on"
        )
    got = seen(folder)
    for run_id, expected in template.told.items():
        sure = expected if firm is None else expected[: firm[run_id]]
        for position, (value, recorded) in enumerate(zip(got.get(run_id, []), sure, strict=False)):
            if value != recorded:
                wrong.append(f"{run_id}: value {position} is {str(value)[:80]}, recorded was {str(recorded)[:80]}")
    if "does not fit its hash" in outputs["r"] and words[1] != "went on":
        wrong.append(f"one damaged record took the other run with it: {outputs['other']}")
    return wrong, "/".join(words)


def flip_many(
    template: Template, lanes: list[Lane], tmp_path: Path, chance: random.Random, *, name: str, times: int
) -> Counter[str]:
    """Flip one byte at a time in one file; what came of it, counted."""
    raw = (template.folder / name).read_bytes()
    size = len(raw)
    # Much of a small database is empty; half of the flips are where something is written.
    written = [offset for offset, byte in enumerate(raw) if byte]
    places = [chance.choice(written) if n % 2 else chance.randrange(size) for n in range(times)]
    flips = [(offset, chance.randrange(1, 256)) for offset in places]
    safe = last_commit(raw) if name.endswith("-wal") else size
    free = list(lanes)
    shutil.copytree(template.folder, tmp_path / "original")
    original = content(tmp_path / "original" / "store.db")
    assert original

    def one(flip: tuple[int, int]) -> tuple[list[str], str]:
        offset, bits = flip
        folder = tmp_path / f"{name}-{offset}-{bits}"
        shutil.copytree(template.folder, folder)
        with (folder / name).open("r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ bits]))
        shutil.copytree(folder, tmp_path / f"{folder.name}-read")
        is_damaged = content(tmp_path / f"{folder.name}-read" / "store.db") != original
        lane = free.pop()
        try:
            wrong, word = resume_both(lane, folder, template, firm=template.firm if offset >= safe else None)
        finally:
            free.append(lane)
        if word == "went on/went on":
            word = "went on, but damaged" if is_damaged else "went on, nothing was damaged"
            if is_damaged and offset < safe:
                wrong.append("what is stored has changed, and nobody noticed")
        shutil.rmtree(folder)
        shutil.rmtree(tmp_path / f"{folder.name}-read")
        return [f"byte {offset} of {name} xor {bits}: {each}" for each in wrong], word

    with ThreadPoolExecutor(len(lanes)) as threads:
        results = list(threads.map(one, flips))
    counted = Counter(word for _, word in results)
    print(f"{name}: {times} flips of {size} bytes: {dict(counted)}")
    wrong = [each for found, _ in results for each in found]
    assert not wrong, f"{len(wrong)} of {times}:\n" + "\n".join(wrong[:10])
    return counted


def test_a_flipped_byte_in_the_closed_file_is_noticed_before_an_agent_sees_it(
    closed: Template, lanes: list[Lane], tmp_path: Path
) -> None:
    counted = flip_many(closed, lanes, tmp_path, seed("closed"), name="store.db", times=30)
    assert sum(times for word, times in counted.items() if "refused" in word or "quarantined" in word) > 5


def test_a_flipped_byte_in_the_log_of_a_killed_process_is_noticed_before_an_agent_sees_it(
    killed: Template, lanes: list[Lane], tmp_path: Path
) -> None:
    flip_many(killed, lanes, tmp_path, seed("log"), name="store.db-wal", times=20)


@pytest.mark.prove
def test_a_thousand_flips_in_the_closed_file(closed: Template, lanes: list[Lane], tmp_path: Path) -> None:
    flip_many(closed, lanes, tmp_path, seed("thousand"), name="store.db", times=1000)


@pytest.mark.prove
def test_a_thousand_flips_in_the_log(killed: Template, lanes: list[Lane], tmp_path: Path) -> None:
    flip_many(killed, lanes, tmp_path, seed("thousand"), name="store.db-wal", times=1000)


# damage outside of what digests cover


@pytest.mark.parametrize("table", ["runs", "migrations"])
def test_text_that_is_not_text_is_reported_as_damage(
    closed: Template, lanes: list[Lane], tmp_path: Path, table: str
) -> None:
    folder = tmp_path / "store"
    shutil.copytree(closed.folder, folder)
    connection = apsw.Connection(str(folder / "store.db"))
    column = {"runs": "owner", "migrations": "name"}[table]
    connection.execute(f"UPDATE {table} SET {column} = CAST(x'61ff62' AS TEXT)")
    connection.close()
    wrong, _ = resume_both(lanes[0], folder, closed)
    assert not wrong, wrong


def test_an_owner_that_never_was_does_not_hold_its_run(closed: Template, lanes: list[Lane], tmp_path: Path) -> None:
    folder = tmp_path / "store"
    shutil.copytree(closed.folder, folder)
    connection = apsw.Connection(str(folder / "store.db"))
    owner = str(connection.execute("SELECT owner FROM runs WHERE id = 'r'").get)
    pages = [number for (number,) in connection.execute("SELECT pageno FROM dbstat WHERE name = 'runs'")]
    connection.close()
    raw = bytearray((folder / "store.db").read_bytes())
    found = [raw.find(owner.encode(), (page - 1) * 4096, page * 4096) for page in pages]
    (at,) = [offset for offset in found if offset >= 0]
    raw[at + 5] = ord("q") if raw[at + 5] != ord("q") else ord("r")
    (folder / "store.db").write_bytes(raw)
    wrong, word = resume_both(lanes[0], folder, closed)
    assert not wrong, wrong
    # SQLite may notice that the row and its index differ; then the run is refused. It must not wait for ever.
    assert word in ("went on/went on", "refused/went on")


def test_a_log_that_is_cut_off_is_refused_and_leaves_a_prefix_of_the_history_to_who_accepts_that(
    killed: Template, lanes: list[Lane], tmp_path: Path
) -> None:
    chance = seed("cut")
    size = (killed.folder / "store.db-wal").stat().st_size
    for cut in [1, 24, 4096, *(chance.randrange(size // 2) for _ in range(7))]:
        folder = tmp_path / str(cut)
        shutil.copytree(killed.folder, folder)
        os.truncate(folder / "store.db-wal", size - cut)
        wrong, word = resume_both(lanes[0], folder, killed)
        assert not wrong, f"cut by {cut}: {wrong}"
        assert word == "refused/refused", f"cut by {cut}"
        assert not seen(folder)
        for gone in (*(folder / "store.db-workers").glob("*.mark"), *folder.glob("log-*")):
            gone.unlink()
        shutil.copytree(folder, tmp_path / f"{cut}-read")
        left = {}
        for run_id in ("r", "other"):
            stored = records(tmp_path / f"{cut}-read", run_id)
            left[run_id] = sum(r.kind in OUTCOMES for r in stored) + bool(stored)
        wrong, word = resume_both(lanes[0], folder, killed, firm=left)
        assert not wrong, f"cut by {cut}: {wrong}"
        assert word == "went on/went on", f"cut by {cut}"
