"""A run as it was after each of its records: its store is copied, and cut there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw

from holdfast.base.config import Settings
from holdfast.codec.fastjson import encode
from holdfast.control.upkeep.filing import copy_files
from holdfast.journal.chain import revised
from holdfast.journal.checkpoints import Past
from holdfast.journal.trees import WORKSPACES, workspaces_in
from holdfast.model import CUT, Cut, Kind, Record, RunFilter, Status, reasons
from holdfast.store import open_store
from holdfast.testing.reading import read_run
from holdfast.testing.samples import opened
from tests.crash.agents import World


def cut_at(source: Path, target: Path, run_id: str, *, seq: int) -> None:
    """Copy a SQLite store, with a run in it that has these records and no more, and that nobody owns."""
    row, records = read_run(str(source), run_id)
    kept = records[:seq]
    heads = [record for record in kept if record.kind == Kind.checkpoint]
    summary = {name: value for name, value in row.summary.items() if name not in (CUT, WORKSPACES)}
    if found := workspaces_in(kept):
        summary[WORKSPACES] = found
    if heads:
        before, head = records[heads[0].seq - 2], heads[-1]
        cut = Cut(before.seq, before.hash, head.seq, records[head.seq - 2].hash, Past.read(head).mail)
        summary[CUT] = cut.plain()
    changed = revised(
        row,
        status=Status.queued,
        reason=reasons.HandedOver(),
        wake_at=0,
        turn=kept[-1].turn,
        epoch=kept[-1].epoch,
        head_seq=kept[-1].seq,
        head_hash=kept[-1].hash,
        summary=summary,
        owner=None,
    )
    with apsw.Connection(str(source)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    with apsw.Connection(str(target)) as connection:
        connection.execute("DELETE FROM records WHERE run_id = ? AND seq > ?", (run_id, seq))
        connection.execute(
            "UPDATE runs SET status = ?, reason = ?, wake_at = 0, turn = ?, epoch = ?, head_seq = ?, "
            "head_hash = ?, summary = ?, digest = ?, owner = NULL, claims = 0 WHERE id = ?",
            (
                changed.status.value,
                reasons.text(reasons.HandedOver()),
                changed.turn,
                changed.epoch,
                changed.head_seq,
                changed.head_hash,
                encode(changed.summary),
                changed.digest,
                run_id,
            ),
        )
    connection.close()


async def put_elsewhere(source: Path, url: str) -> None:
    """Have the runs of a store in another one, as they are, with their files."""
    settings = Settings()
    async with (
        opened(lambda: open_store(str(source), settings=settings)) as here,
        opened(lambda: open_store(url, settings=settings)) as there,
    ):
        for row in reversed(await here.runs(RunFilter(limit=100))):
            whole = await here.whole(row.id)
            assert whole is not None
            await copy_files(here, row.id, there)
            await there.put(whole)


def worlds_at(folder: Path, records: list[Record], *, seq: int) -> Iterator[list[str]]:
    """What can have happened outside by then: an effect that was under way has, or has not."""
    lines = World(folder).path.read_text().splitlines() if World(folder).path.exists() else []
    keys = {r.key: json.loads(r.payload or "{}")["idempotency_key"] for r in records if r.kind == Kind.intent}
    began = {keys[r.key] for r in records[:seq] if r.kind == Kind.intent}
    others = {json.loads(line)["key"] for line in lines} - set(keys.values())  # of its children
    ended = others | {
        keys[r.key] for r in records[:seq] if r.key in keys and r.kind in (Kind.done, Kind.failed, Kind.settled)
    }
    done = [line for line in lines if json.loads(line)["key"] in ended]
    yield done
    perhaps = [line for line in lines if json.loads(line)["key"] in began | ended]
    if perhaps != done:
        yield perhaps
