"""The worker processes that are killed: `python -m tests.programs.worker` forks one for each line it reads.

Everything is imported once, so a worker is at work a few milliseconds after it was asked for; it is a process of its
own all the same. Whoever ends by itself is reported.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import holdfast as hf
from holdfast.store import open_store
from tests.programs.agents import program

CONCURRENCY = 20


def settings(lease_s: float) -> hf.Settings:
    return hf.Settings(lease_s=lease_s, renew_s=lease_s / 5, sweep_s=0.2, crash_limit=200, drain_s=0.3)


async def work(url: str, lease_s: float) -> None:
    async with hf.connect(url, agents=[program], concurrency=CONCURRENCY, settings=settings(lease_s)) as app:
        await app.work()


def be_worker(order: dict[str, Any]) -> None:
    """In the forked process: never return."""
    code = 1
    try:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(order["env"])
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # until `work` has a handler: nothing is under way
        asyncio.run(work(order["url"], order["lease_s"]))
        code = 0
    except BaseException:
        print(f"--- worker {os.getpid()}", file=sys.stderr)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def say(**what: int) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def main() -> None:
    open_store(str(Path("warm.db")), settings=hf.Settings())  # loads the driver and the queries, opens nothing
    unread = b""
    while True:
        if select.select([0], [], [], 0.02)[0]:
            some = os.read(0, 65536)
            if not some:
                return
            *lines, unread = (unread + some).split(b"\n")
            for line in lines:
                pid = os.fork()
                if not pid:
                    be_worker(json.loads(line))
                say(started=pid)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            say(ended=pid, code=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
