"""`holdfast prune`"""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast.app import Holdfast
from holdfast.cli.acting import actor_options
from holdfast.cli.clients import complete_agent, with_app
from holdfast.cli.durations import age
from holdfast.cli.failure import OK
from holdfast.cli.progress import Bar
from holdfast.cli.prompts import confirm
from holdfast.cli.setup import Setup, command, status_option
from holdfast.cli.text import clean, to_json
from holdfast.control.upkeep.retention import PruneResult
from holdfast.history.words import count, size
from holdfast.model import FINAL, Status


@command("prune")
@click.option(
    "--older-than", "older_than", metavar="AGE", required=True, help="Runs that ended longer ago: 30d, 12h, …"
)
@click.option("--agent", metavar="NAME", shell_complete=complete_agent, help="Only runs of this agent.")
@status_option((each for each in Status if each in FINAL), "Only runs that ended so")
@click.option("--dry-run", is_flag=True, help="Only tell what would be removed.")
@click.option("--forget", is_flag=True, help="Also remove what is left of runs that were pruned longer ago.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@actor_options
def prune_command(
    setup: Setup,
    older_than: str,
    agent: str | None,
    statuses: tuple[str, ...],
    dry_run: bool,
    forget: bool,
    yes: bool,
    *,
    note: str,
    by: str,
) -> int:
    """Remove what runs did that ended long ago.

    Journals, results, messages and questions go. What stays of a run is that it was there: its id, agent and input's
    digest, how and when it ended. So nothing is run again under its id. Runs that something alive may need are kept.
    Workers may go on meanwhile. With --forget even that is removed, of runs that were pruned so long ago.

    \b
    holdfast prune --older-than 30d --dry-run
    holdfast prune --older-than 7d --status done --yes
    """
    length = age(older_than, "--older-than")
    status = [Status(each) for each in statuses]

    async def look(app: Holdfast) -> PruneResult:
        return await app.prune(older_than=length, agent=agent, status=status, dry_run=True, forget=forget)

    found = with_app(setup, look)
    if dry_run or not (found.runs or found.forgotten or found.threads):
        return _told(setup, found, None)
    if not yes:
        confirm(f"Remove {_what(found)} for good?")
    bar = Bar(found.runs, "run")

    async def work(app: Holdfast) -> tuple[PruneResult, int | None]:
        try:
            result = await app.prune(
                older_than=length, agent=agent, status=status, forget=forget, progress=bar, by=by, note=note
            )
        finally:
            bar.wipe()
        facts = await app._here.store.statistics()
        free = int(facts["free_pages"]) * int(facts["page_size"]) if "free_pages" in facts else None
        return result, free

    return _told(setup, *with_app(setup, work))


def _what(result: PruneResult) -> str:
    parts = [f"what {count(result.runs, 'run')} did ({count(result.records, 'record')})"] if result.runs else []
    if result.forgotten:
        parts.append(count(result.forgotten, "tombstone"))
    if result.threads:
        parts.append(f"what was said in {count(result.threads, 'thread')}")
    return " and ".join(parts)


def _told(setup: Setup, result: PruneResult, free: int | None) -> int:
    if setup.is_json:
        print(to_json(asdict(result) | ({} if free is None else {"free_bytes": free})))
        return OK
    what = _what(result)
    text = "Nothing to remove." if not what else f"Would remove {what}." if result.dry_run else f"Removed {what}."
    if result.kept:
        text += f" Kept {count(result.kept, 'run')} that others may need."
    if free:
        text += f" {size(free)} of the file is free for new runs."
    print(clean(text, one_line=True))
    return OK
