"""No act is half done: what a person changed, and that they did, are committed together or not at all."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import holdfast as hf
from holdfast.model import ActFilter
from tests.server.agents import dozing

#: A command, its target, and the point at which its process is killed.
DEATHS = [
    (("pause", "before"), "before", "amend.before_commit"),
    (("pause", "after"), "after", "amend.after_commit"),
    (("queues", "pause", "left"), "left", "define.before_commit"),
    (("queues", "pause", "right"), "right", "define.after_commit"),
]


def done(url: str, *args: str, fault: str = "") -> int:
    environment = {**os.environ, "HOLDFAST_URL": url, **({"HOLDFAST_FAULT": f"{fault}:kill"} if fault else {})}
    command = [sys.executable, "-m", "holdfast", *args, "--by", "ana", "--note", "why"]
    return subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False).returncode


async def found(url: str) -> tuple[set[str], list[str]]:
    """What has been changed, and what was done by whom."""
    async with hf.connect(url) as app:
        changed = {run.id for run in await app.runs(status="paused")}
        changed |= {queue.name for queue in await app.queues() if queue.paused}
        acts = await app._store.surveys.acts(ActFilter(by="ana"))
        assert {(act.via.value, act.note) for _, act in acts} <= {("cli", "why")}
        return changed, sorted(act.target for _, act in acts)


async def fill(url: str) -> None:
    async with hf.connect(url, agents=[dozing]) as app:
        runs = [await app.start(dozing(), id=name) for name in ("before", "after")]
        for run in runs:
            async for info in run.watch():
                if info.status is hf.Status.sleeping:
                    break


def check(url: str) -> None:
    asyncio.run(fill(url))
    for args, _, point in DEATHS:
        assert done(url, *args, fault=point) == -signal.SIGKILL, (args, point)
    after = {target for _, target, point in DEATHS if point.endswith("after_commit")}
    assert asyncio.run(found(url)) == (after, sorted(after))
    for args, _, _ in DEATHS[1:3]:
        assert done(url, *args) == 0
    assert asyncio.run(found(url)) == (after | {"left"}, sorted({*after, "left"})), "what was done is not done again"


def test_an_act_and_its_change_survive_together(tmp_path: Path) -> None:
    check(str(tmp_path / "store.db"))


def test_an_act_and_its_change_survive_together_in_postgres(postgres_url: str) -> None:
    check(postgres_url)
