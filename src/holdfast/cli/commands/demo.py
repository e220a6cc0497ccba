"""`holdfast demo`"""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import time
from pathlib import Path

import click

from holdfast.base.clock import monotonic_us
from holdfast.base.hints import hint, quoted
from holdfast.cli.demo_view import Lines, Silence, Stage, Terminal
from holdfast.cli.failure import FAILED, OK, USAGE, Failure
from holdfast.cli.setup import Setup, command
from holdfast.cli.text import to_json
from holdfast.demo.findings import Findings, examine, gather_evidence
from holdfast.demo.story import DemoFailed, Places, Story

_TERMINATED = 128 + signal.SIGTERM
_TITLE = "A research agent, killed three times. No network, no key, a scripted model."


@command("demo")
@click.option("--fast", is_flag=True, help="Without the pauses that let you read along.")
@click.option(
    "--keep", is_flag=True, help="Keep the demo's directory: its store, the agent's file, the mail server's log."
)
def demo_command(setup: Setup, fast: bool, keep: bool) -> int:
    """Watch an agent being killed and going on.

    A research agent runs in a process that is killed (SIGKILL) three times: between parallel branches, inside a step,
    and after a mail left but before that was recorded. Each time a new process goes on. Then journal, mail server and a
    tally of what really ran are compared; the exit code is 1 if anything was lost or done twice.
    """
    if setup.db is not None:
        raise Failure("The demo has a store of its own: leave out --db, and look at it with --keep.", USAGE)
    try:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    except OSError as error:
        raise Failure(
            f"The demo needs a directory for its files: {error}. Set TMPDIR to one that can be written."
        ) from error
    view: Stage = Silence() if setup.is_json else Terminal(setup) if setup.is_table else Lines(setup)
    try:
        with view:
            return _play(setup, view, folder, fast=fast, keep=keep)
    except asyncio.CancelledError:
        return _TERMINATED
    finally:
        if not keep:
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove the demo's files; a process that was killed a moment ago may still be leaving some."""
    for _ in range(40):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.05)


def _play(setup: Setup, view: Stage, folder: Path, *, fast: bool, keep: bool) -> int:
    places, began = Places(folder), monotonic_us()
    view.title(_TITLE)
    try:
        findings = asyncio.run(_performed(places, view, is_fast=fast))
    except DemoFailed as error:
        raise Failure(str(error)) from error
    took_s = (monotonic_us() - began) / 1e6
    findings.facts |= {
        "ok": not findings.wrong,
        "seconds": round(took_s, 2),
        "directory": str(folder) if keep else None,
    }
    if setup.is_json:
        print(
            to_json(
                findings.facts | {"checks": [{"what": f.what, "ok": f.is_ok, "detail": f.detail} for f in findings.all]}
            )
        )
    else:
        _tell(view, findings, took_s)
        _look_further(view, places if keep else None)
    if findings.wrong:
        told = "\n".join(f"  {f.section}: {f.what}: {f.detail}" for f in findings.wrong)
        raise Failure(f"{len(findings.wrong)} of {len(findings.all)} checks do not hold:\n{told}", FAILED)
    return OK


async def _performed(places: Places, view: Stage, *, is_fast: bool) -> Findings:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return examine(await gather_evidence(places, await Story(places, view, is_fast=is_fast).play()))


def _tell(view: Stage, findings: Findings, took_s: float) -> None:
    section = ""
    for each in findings.all:
        if each.section != section:
            section = each.section
            view.section(section)
        view.found(each.is_ok, each.what, each.detail)
    count = len(findings.all) - len(findings.wrong)
    view.section(f"{count} of {len(findings.all)} checks hold, {took_s:.1f} s")


def _look_further(view: Stage, kept: Places | None) -> None:
    if kept is None:
        view.command("holdfast demo --keep", "keeps the store and the agent's file, to look further")
        return
    view.command(hint("show", "@last", options=("--db", str(kept.db))), "what happened")
    view.command(hint("verify", "@last", options=("--db", str(kept.db))), "check the chain")
    view.command(f"cat {quoted(str(kept.folder / 'research.py'))}", "the agent")
