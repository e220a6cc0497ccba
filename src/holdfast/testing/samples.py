"""Runs, records, workers and mail for tests of stores: plausible, linked by hashes, cheap to make."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from holdfast.base import clock, ids
from holdfast.journal.chain import draft, first_hash, linked
from holdfast.model import (
    Append,
    Applied,
    Kind,
    Mail,
    MailKind,
    QuestionRow,
    QuestionState,
    RunId,
    RunRow,
    Status,
    ThreadId,
    Worker,
    WorkerId,
)
from holdfast.store.contract import Store

MakeStore = Callable[[], Store]
#: Something that every store must do.
Case = Callable[[MakeStore], Awaitable[None]]

ALICE, BOB = WorkerId("w_alice"), WorkerId("w_bob")
#: When everything happens.
START = 1_700_000_000_000_000


@contextlib.asynccontextmanager
async def opened(make: MakeStore, *, read_only: bool = False) -> AsyncIterator[Store]:
    store = make()
    await store.open(read_only=read_only)
    try:
        yield store
    finally:
        await store.close()


def new_run(run_id: str | None = None, **changes: Any) -> Append:
    """A run with its `created` record, as `create` takes it."""
    return extend(dataclasses.replace(unborn(run_id), **changes), Kind.created)


def unborn(run_id: str | None = None) -> RunRow:
    """A run that has no records yet."""
    name, nonce = RunId(run_id or ids.new_run_ids()[0]), ids.new_run_ids()[2]
    return RunRow(
        id=name,
        thread_id=ThreadId("t_1"),
        agent="agent",
        nonce=nonce,
        parent_id=None,
        queue="default",
        queue_key="",
        priority=0,
        created_at=START,
        updated_at=START,
        status=Status.running,
        reason=None,
        wake_at=None,
        turn=0,
        epoch=1,
        head_seq=0,
        head_hash=first_hash(name, nonce),
        input_digest="input",
        summary={"steps": 0},
        owner=None,
        claims=0,
        mail=0,
        digest="digest 0",
    )


def extend(row: RunRow, *kinds: str, payload: str | None = '{"a":1}', release: bool = False, **changes: Any) -> Append:
    """The append that adds records of these kinds to a run."""
    drafts = [
        draft(kind, "search", key=f"search#{seq}", at=START + seq, took=100, payload=payload)
        for seq, kind in enumerate(kinds, row.head_seq + 1)
    ]
    records = linked(drafts, epoch=row.epoch, turn=row.turn, head_seq=row.head_seq, head_hash=row.head_hash)
    state: dict[str, Any] = {
        "head_seq": row.head_seq + len(records),
        "head_hash": records[-1].hash if records else row.head_hash,
        "updated_at": row.updated_at + 1,
        "digest": f"digest {row.head_seq + len(records)} {row.epoch}",
    }
    return Append(
        row=dataclasses.replace(row, **state | changes),
        base_seq=row.head_seq,
        base_hash=row.head_hash,
        records=records,
        release=release,
    )


async def append(store: Store, *appends: Append) -> list[Applied | BaseException]:
    """Submit without waiting in between; what became of each, in order."""
    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[Applied | BaseException]] = []
    for one in appends:
        future: asyncio.Future[Applied | BaseException] = loop.create_future()
        store.submit(one, future.set_result, urgent=True)
        futures.append(future)
    return list(await asyncio.gather(*futures))


async def alone(store: Store, one: Append) -> Applied | BaseException | None:
    """What became of an append that shares its commit with no other; None: the store declined it."""
    told: asyncio.Future[Applied | BaseException] = asyncio.get_running_loop().create_future()
    lone = store.commit_alone(one, told.set_result)
    if lone is False:
        return None
    if lone is not True:
        await lone
    return await told


def taken_over(row: RunRow, **changes: Any) -> RunRow:
    """The row that a claim writes."""
    state: dict[str, Any] = {"epoch": row.epoch + 1, "status": Status.running, "digest": f"claim {row.epoch + 1}"}
    return dataclasses.replace(row, **state | changes)


def new_worker(worker_id: WorkerId, *, lease_until_ms: int, boot_id: str | None = None) -> Worker:
    return Worker(
        id=worker_id,
        pid=os.getpid(),
        host="here",
        boot_id=boot_id or clock.boot_id(),
        started_at=START,
        lease_until_ms=lease_until_ms,
    )


def left(row: RunRow) -> None:
    """A wake function that leaves every run as it is."""


def woken(row: RunRow) -> RunRow:
    """A wake function that makes every run claimable."""
    return dataclasses.replace(row, status=Status.queued, wake_at=START, digest=f"woken {row.mail}")


def parked(
    row: RunRow, *kinds: str, status: Status = Status.waiting, mail: int | None = None, **changes: Any
) -> Append:
    """The append with which an owner gives a run up that waits."""
    return dataclasses.replace(extend(row, *kinds, status=status, release=True, **changes), mail=mail)


def amended(row: RunRow, *kinds: str, mail: int | None = None, **changes: Any) -> Append:
    """What somebody who does not own a run appends to it."""
    return dataclasses.replace(extend(dataclasses.replace(row, epoch=row.epoch + 1), *kinds, **changes), mail=mail)


def question_of(run_id: RunId, key: str = "ask#1", **changes: Any) -> QuestionRow:
    question = QuestionRow(
        id=f"q_{run_id}_{key}",
        run_id=run_id,
        key=key,
        body='{"prompt":"Go?"}',
        shown="shown 1",
        asked_at=START,
        due_at=None,
        state=QuestionState.open,
        decided_at=None,
        decided_by=None,
        note="",
        digest="digest",
    )
    return dataclasses.replace(question, **changes)


def mail_for(run_id: RunId, body: str = "{}", **changes: Any) -> Mail:
    mail = Mail(run_id=run_id, number=0, kind=MailKind.resolve, key="pay#1", body=body, at=START, digest="digest")
    return dataclasses.replace(mail, **changes)
