"""Writes the golden stores: runs in every state, as the version of Holdfast writes them that is here now.

    python -m tests.golden.write

A change that alters a stored byte on purpose writes them anew and says so; any other leaves them as they are. It works
in a folder of its own, so that no path of the machine gets into them.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import holdfast as hf
from holdfast.testing.child import agents_of, load
from holdfast.testing.postgres import PostgresServer, binaries
from holdfast.testing.processes import environment
from tests.eventually import eventually

HERE = Path(__file__).parent
SQLITE, POSTGRES = HERE / "sqlite.db.gz", HERE / "postgres.sql.gz"
FOLDER = Path("/tmp/golden")  # the same on every machine
AGENTS = FOLDER / "agents.py"
DATABASE = "golden"

PARKED = {
    "signal": ("collector", (2,)),
    "half": ("collector", (2,)),
    "heard": ("collector", (1,)),
    "parent": ("boss", (1,)),
    "question": ("asker", (7,)),
    "sleep": ("sleeper", ("ann",)),
    "patient": ("patient", (1,)),
    "racer": ("racer", (1,)),
    "counter": ("counter", (10,)),
    "paused": ("collector", (1,)),
    "moved": ("collector", (1,)),
    "moving": ("collector", (1,)),
}
ENDED = {"failed": ("failing", (1,)), "undone": ("booking", (1,))}


def main() -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(mode=0o700)
    shutil.copy(HERE / "agents.py", AGENTS)
    os.environ["WORLD"] = str(FOLDER / "world.txt")
    os.chdir(FOLDER)
    file = FOLDER / "golden.db"
    write(f"sqlite:///{file}")
    if Path(f"{file}-wal").exists():
        print("the store was not closed: its log is still there", file=sys.stderr)
        return 1
    SQLITE.write_bytes(gzip.compress(file.read_bytes(), mtime=0))
    with PostgresServer(FOLDER / "server") as server:
        url = server.url(server.create_database(DATABASE))
        write(url)
        dump = [str(binaries() / "pg_dump"), "--no-owner", "--no-privileges", "--restrict-key=golden", url]
        POSTGRES.write_bytes(gzip.compress(subprocess.run(dump, check=True, capture_output=True).stdout, mtime=0))
    shutil.rmtree(FOLDER)
    for each in (SQLITE, POSTGRES):
        print(f"{each.name}  {each.stat().st_size:,} bytes")
    return 0


def write(url: str) -> None:
    """Runs in every state, in an empty store."""
    golden = load(str(AGENTS))
    kind = url.partition(":")[0]
    asyncio.run(_live(url, golden))
    cut_off(url, "cut-in-step", golden.ordered(golden.Order("bob", [Decimal(3)])), "step.after_body:kill@3")
    cut_off(url, "doubtful", golden.collector(1), "effect.after_body:kill")
    cut_off(url, "cut-at-start", golden.asker(8), "start.after_commit:kill")
    cut_off(url, "blocked", golden.wavering(1), "finish.before:kill")
    child(url, "blocked", golden.wavering(1), OTHER="1")
    other = f"sqlite:///{FOLDER / f'other-{kind}.db'}"
    holdfast("copy", url, other, "moved", "--move")
    holdfast("copy", url, other, "moving", "--move", HOLDFAST_FAULT="copy.after_mark:kill", code=-9)
    # One more life than those that were killed: it settles what is in doubt as far as nobody has to be asked.
    child(url, "doubtful", golden.collector(1))
    cut_off(url, "cut-in-effect", golden.collector(1), "effect.after_body:kill")
    asyncio.run(_look(url))


async def _live(url: str, golden: ModuleType) -> None:
    agents = agents_of(golden)
    async with hf.connect(url, agents=agents.values()) as app:
        await app.queue("shut", concurrency=1)
        await app.pause_queue("shut")
        await app.schedule("nightly", golden.collector(1), cron="0 2 * * *")
        await app.pause_schedule("nightly")
        await app.on("ordered", golden.collector, name="on-order")
        order = golden.Order("ann", [Decimal("1.50")])
        done = await app.start(golden.ordered(order), id="done", tags={"shop": "north"})
        await done.result()
        await (await app.start(golden.booking(2), id="pruned")).result()
        await app.prune(older_than=timedelta(0), agent="booking")
        for run_id, (name, args) in (PARKED | ENDED).items():
            await app.start(agents[name](*args), id=run_id, thread_id="golden")
        await app.start(golden.collector(1), id="queued", queue="shut", priority=3)
        await app.start(golden.collector(1), id="delayed", delay=timedelta(seconds=1), queue="shut")
        await _until(app, ENDED, "failed", "done")
        await _until(app, PARKED, "waiting", "sleeping")
        await app.get("half").send("number", 1, dedup="first")
        for n in (1, 2, 3):
            await app.get("counter").send("event", n)
        await app.get("heard").interrupt("hello", by="ada")
        await app.get("paused").pause(by="ada", note="wait for bob")
        await app.start(golden.collector(1), id="cancelled")
        await _until(app, ["cancelled"], "waiting")
        await app.get("cancelled").cancel(by="ada")
        await _until(app, ["half", "counter", "heard"], "waiting")


async def _until(app: hf.Holdfast, run_ids: Iterable[str], *statuses: str) -> None:
    async def are_there() -> bool:
        return all([await app.get(run_id).status() in statuses for run_id in run_ids])

    await eventually(are_there)


async def _look(url: str) -> None:
    """Open it and close it in good order: it needs no log any more."""
    async with hf.connect(url) as app:
        print(f"{url.partition(':')[0]}: {len(await app.runs(limit=1000))} runs")


def child(url: str, run_id: str, call: hf.Call[Any], *, code: int = 0, **env: str) -> None:
    command = [sys.executable, "-m", "holdfast.testing.child", str(AGENTS), call.agent.name, run_id, url, "--alone"]
    _expect(code, command, call.input.text, env)


def cut_off(url: str, run_id: str, call: hf.Call[Any], fault: str) -> None:
    child(url, run_id, call, code=-9, HOLDFAST_FAULT=fault)


def holdfast(*arguments: str, code: int = 0, **env: str) -> None:
    _expect(code, [sys.executable, "-m", "holdfast", *arguments], "", env)


def _expect(code: int, command: list[str], text: str, env: dict[str, str]) -> None:
    ended = subprocess.run(command, input=text, env=environment(env), capture_output=True, text=True)
    if ended.returncode != code:
        raise SystemExit(f"{command} ended with {ended.returncode}, not {code}:\n{ended.stdout}{ended.stderr}")


if __name__ == "__main__":
    sys.exit(main())
