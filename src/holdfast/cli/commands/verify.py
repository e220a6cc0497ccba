"""`holdfast verify`"""

from __future__ import annotations

import sys

import click

from holdfast.cli.failure import INTEGRITY, OK, USAGE, Failure
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import run_argument, with_store
from holdfast.cli.text import clean, paint, to_json
from holdfast.history.artifacts import FILES, outputs_of
from holdfast.history.lookup import find
from holdfast.history.words import count
from holdfast.journal.verification import Verification, verify
from holdfast.model import RunId
from holdfast.model.files import FileState
from holdfast.store.contract import Store
from holdfast.store.problems import Concern
from holdfast.store.runs import every_run


@command("verify")
@run_argument(required=False)
@click.option("--all", "every", is_flag=True, help="All runs, and the database file itself. The default without RUN.")
def verify_command(setup: Setup, run: str | None, every: bool) -> int:
    """Check every stored byte of runs against its hashes.

    Changes nothing. Exit code 6: something is damaged. Files that runs have put out are read as well; a damaged one
    keeps no run from going on. Piped, lines of: run, ok|damaged, records, blobs, seq, problem.
    """
    if run is not None and every:
        raise Failure("Give a run or --all, not both.", USAGE)

    files: list[str] = []

    async def check(store: Store, run_id: RunId) -> Verification:
        checked = await verify(store, run_id)
        if checked.is_ok and not checked.is_empty:
            outputs = await outputs_of(store, run_id, only=FILES)
            damaged = [each for each in outputs if each.state is not FileState.stored]
            files.extend(f"run {run_id}: {each.name} version {each.version} is {each.state.value}" for each in damaged)
        return checked

    async def read(store: Store) -> tuple[list[Verification], list[str]]:
        if run is not None:
            return [await check(store, (await find(store, run)).id)], []
        found = []
        async for row in every_run(store):
            found.append(await check(store, row.id))
            if sys.stderr.isatty() and len(found) % 100 == 0:
                print(f"\r\x1b[K{count(len(found), 'run')} …", end="", file=sys.stderr, flush=True)
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        return found, [p.text for p in await store.check() if p.concern is Concern.damage]

    checked, problems = with_store(setup, read)
    broken = [each for each in checked if not each.is_ok]
    if setup.is_json:
        print(
            to_json(
                {
                    "items": [each.as_dict() for each in checked],
                    "files": files,
                    "store": problems,
                    "is_ok": not (broken or files or problems),
                }
            )
        )
    else:
        _print(setup, checked, files=files, problems=problems)
    return INTEGRITY if broken or files or problems else OK


def _print(setup: Setup, checked: list[Verification], *, files: list[str], problems: list[str]) -> None:
    has_color = setup.has_color(sys.stdout)
    for each in checked:
        problem, run_id = clean(each.problem or "", one_line=True), clean(each.run_id, one_line=True)
        if not setup.is_table:
            seq = "" if each.seq is None else str(each.seq)
            print(
                "\t".join((run_id, "ok" if each.is_ok else "damaged", str(each.records), str(each.blobs), seq, problem))
            )
        elif not each.is_ok:
            where = f" seq {each.seq}" if each.seq is not None else ""
            print(paint(f"✖ {run_id}{where}: {problem}", "red", has_color))
    for problem in [*files, *(f"store: {each}" for each in problems)]:
        print(
            paint(f"✖ {clean(problem, one_line=True)}", "red", has_color),
            file=sys.stdout if setup.is_table else sys.stderr,
        )
    good = sum(each.is_ok for each in checked)
    empty = sum(each.is_empty for each in checked)
    parts = [
        count(len(checked), "run"),
        count(sum(each.records for each in checked), "record"),
        count(sum(each.blobs for each in checked), "blob"),
        f"✔ {good} ok",
    ]
    if empty:
        parts.append(f"{empty} pruned or moved")
    if good < len(checked):
        parts.append(f"✖ {len(checked) - good} damaged")
    print(" · ".join(parts), file=sys.stdout if setup.is_table else sys.stderr)
