"""`holdfast demo`"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
import time
import webbrowser
from pathlib import Path

import click

from holdfast.base.clock import monotonic_us
from holdfast.base.config import Settings
from holdfast.base.hints import hint, quoted
from holdfast.cli.console_beside import console_beside
from holdfast.cli.demo_view import Lines, Silence, Stage, Terminal
from holdfast.cli.failure import FAILED, OK, USAGE, Failure
from holdfast.cli.setup import Setup, command
from holdfast.cli.text import to_json
from holdfast.demo.findings import Findings, examine, gather_evidence
from holdfast.demo.story import RUN_ID, DemoFailed, Places, Story
from holdfast.store import open_store

_TERMINATED = 128 + signal.SIGTERM
_TITLE = "A research agent, killed three times. No network, no key, a scripted model."


@command("demo")
@click.option("--fast", is_flag=True, help="Without the pauses that let you read along.")
@click.option(
    "--keep", is_flag=True, help="Keep the demo's directory: its store, the agent's file, the mail server's log."
)
@click.option("--console", "in_console", is_flag=True, help="Show it in the browser as well, as it happens.")
def demo_command(setup: Setup, fast: bool, keep: bool, in_console: bool) -> int:
    """Watch an agent being killed and going on.

    A research agent runs in a process that is killed (SIGKILL) three times: between parallel branches, inside a step,
    and after a mail left but before that was recorded. Each time a new process goes on. Then journal, mail server and a
    tally of what really ran are compared; the exit code is 1 if anything was lost or done twice.

    --console opens its run in the browser first: the kills and resumes appear there as they happen.
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
            return _play(setup, view, folder, fast=fast, keep=keep, in_console=in_console)
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


def _play(setup: Setup, view: Stage, folder: Path, *, fast: bool, keep: bool, in_console: bool) -> int:
    places, began = Places(folder), monotonic_us()
    view.title(_TITLE)
    try:
        showing = _shown(places, view, is_fast=fast) if in_console else _performed(places, view, is_fast=fast)
        findings = asyncio.run(showing)
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


async def _shown(places: Places, view: Stage, *, is_fast: bool) -> Findings:
    """The same, with its run open in the browser; somebody at a terminal says when it begins and ends."""
    store = open_store(str(places.db), settings=Settings())
    await store.open()  # there is something to look at before the agent starts
    await store.close()
    async with console_beside(str(places.db)) as url:
        address = url.replace("/#", f"/runs/{RUN_ID}#")
        view.command(address, "the run in the browser")
        await asyncio.to_thread(webbrowser.open, address)
        await _wait_for_enter("Enter: begin. ")
        findings = await _performed(places, view, is_fast=is_fast)
        await _wait_for_enter("Enter: end the console. ")
        return findings


async def _wait_for_enter(prompt: str) -> None:
    """Until somebody at a terminal says so; a pipe says nothing, and is not waited for."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    print(prompt, end="", file=sys.stderr, flush=True)
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), heard.set)
    try:
        await heard.wait()
        sys.stdin.readline()
    finally:
        loop.remove_reader(sys.stdin.fileno())


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
