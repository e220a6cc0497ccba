"""Killed at any system call that changes the files, a store keeps everything it acknowledged."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model import RunFilter
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.samples import opened

log = logging.getLogger(__name__)

_CALLS = "pwrite64,write,fdatasync,fsync,ftruncate,unlink"
_SCRIPT = """
import asyncio, os, sys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.model import Claim
from holdfast.testing.samples import ALICE, alone, append, extend, left, mail_for, new_run, opened, parked, taken_over

async def main():
    acks = os.open(sys.argv[2], os.O_WRONLY)  # a pipe: it survives us
    async with opened(lambda: SqliteStore(sys.argv[1], checkpoint_pages=20)) as store:
        rows = [await store.create(new_run(), owner=ALICE) for _ in range(2)]
        for number in range(6):
            steps = [extend(row, "started", "done", payload='"' + "x" * 3000 + '"') for row in rows]
            if number % 2:
                assert set(await append(store, *steps)) == {"committed"}
            else:
                for step in steps:
                    assert await alone(store, step) or (await append(store, step))[0] == "committed"
            rows = [step.row for step in steps]
            if number == 3:
                await asyncio.gather(*(store.send(mail_for(row.id), wake=left) for row in rows))
                parks = [parked(row, "noted", mail=1, wake_at=1) for row in rows]
                assert set(await append(store, *parks)) == {"committed"}
                rows = [taken_over(park.row, wake_at=None) for park in parks]
                assert all(await store.claim_many([Claim(row, 1, None) for row in rows], owner=ALICE))
            os.write(acks, "".join(f"{row.id} {row.head_seq}\\n" for row in rows).encode())

asyncio.run(main())
"""


async def stored(path: Path) -> dict[str, int]:
    async with opened(lambda: SqliteStore(path)) as store:
        assert await store.check() == []
        found = {}
        for row in await store.runs(RunFilter()):
            records = await store.records(row.id)
            assert [record.seq for record in records] == list(range(1, row.head_seq + 1))
            assert records[-1].hash == row.head_hash
            assert len(await store.mail(row.id, after=0)) == row.mail
            assert (row.owner is None) == (row.status == "waiting")
            found[str(row.id)] = row.head_seq
        return found


@pytest.mark.prove
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_kill_at_any_system_call_loses_nothing_acknowledged(tmp_path: Path) -> None:
    for when in range(1, 1000):
        path, acks = tmp_path / f"{when}.db", tmp_path / f"{when}.acks"
        acks.touch()
        kill = ("-e", f"trace={_CALLS}", "-e", f"inject={_CALLS}:signal=KILL:when={when}")
        done = subprocess.run(
            ["strace", "-f", "-o", "/dev/null", *kill, sys.executable, "-c", _SCRIPT, str(path), str(acks)],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        )
        if "ptrace" in done.stderr:
            pytest.skip(f"strace does not work here: {done.stderr}")
        acknowledged = dict(line.split() for line in acks.read_text().splitlines())
        found = asyncio.run(stored(path))
        for run_id, seq in acknowledged.items():
            assert found[run_id] >= int(seq), f"killed at call {when}"
        if when % 20 == 0:
            log.info("killed at each of the first %d calls", when)
        if done.returncode == 0:
            assert when > 30, "too few points: the injection does not work"
            return
    raise AssertionError("never came to its end")
