"""`holdfast resolve`"""

from __future__ import annotations

import sys
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.base.hints import resume_hint
from holdfast.cli.acting import by_option
from holdfast.cli.clients import with_app
from holdfast.cli.commands.in_doubt import find_doubts
from holdfast.cli.failure import USAGE, Failure
from holdfast.cli.inputs import parse_json
from holdfast.cli.prompts import confirm
from holdfast.cli.setup import Setup, command
from holdfast.cli.stores import run_argument, with_store
from holdfast.cli.text import clean, folded, to_json
from holdfast.codec import coder_for, encode_error
from holdfast.errors import AlreadySettled, StepError
from holdfast.history.doubts import doubts_of
from holdfast.history.lookup import find, row_of
from holdfast.journal.pages import source_of
from holdfast.model import RunId
from holdfast.store.contract import Store


@command("resolve")
@run_argument()
@click.argument("key", required=False)
@click.option("--happened", metavar="JSON", help="It happened, with this result; a text needs quotes: '\"msg-17\"'.")
@click.option(
    "--not-happened", "not_happened", is_flag=True, help="It did not happen; it is done when the run goes on."
)
@click.option("--fail", "message", metavar="MESSAGE", help="The agent gets an error with this message.")
@click.option("--note", default="", metavar="TEXT", help="How you know; kept in the journal.")
@by_option("Who says so")
@click.option("--yes", is_flag=True, help="Do not ask.")
def resolve_command(
    setup: Setup,
    run: str,
    key: str | None,
    happened: str | None,
    not_happened: bool,
    message: str | None,
    note: str,
    by: str | None,
    yes: bool,
) -> int:
    """Say what became of an effect in doubt.

    KEY is the call, as `holdfast in-doubt` shows it; it may be left out if the run has one effect in doubt.

    \b
    holdfast resolve issue-7 publish#1 --happened 91
    holdfast resolve issue-7 --not-happened
    """
    verdict, words = _verdict(happened, not_happened, message)

    async def choose(store: Store) -> tuple[RunId, str, int]:
        row = await find(store, run)
        return row.id, *await _choose(store, row.id, key)

    run_id, chosen, attempt = with_store(setup, choose)
    if not yes:
        confirm(f"{chosen} of run {run_id}: {words}. This is final.")

    async def settle(app: Holdfast) -> tuple[str | None, str]:
        await app._commanded.settle(run_id, chosen, verdict, attempt=attempt, by=by, note=note)
        return await source_of(app._store, await row_of(app._store, run_id)), await app._commanded.actor(by)

    source, who = with_app(setup, settle)
    if setup.is_json:
        print(to_json({"run": run_id, "key": chosen, "verdict": verdict["verdict"], "by": who, "note": note}))
    else:
        print(clean(f"{chosen} of run {run_id}: {words}."))
        now = "" if setup.served else f", or now: {resume_hint(run_id, source)}"
        print(folded(f"The run goes on when a worker takes it up{now}", sys.stderr), file=sys.stderr)
    return 0


def _verdict(happened: str | None, not_happened: bool, message: str | None) -> tuple[dict[str, Any], str]:
    if (happened is not None) + not_happened + (message is not None) != 1:
        raise Failure("Say one of --happened RESULT, --not-happened and --fail MESSAGE.", USAGE)
    if happened is not None:
        value = parse_json(happened, "--happened")
        text = coder_for(Any).dumps(value, what="--happened")
        return {"verdict": "landed", "value": text}, f"it happened, with the result {happened}"
    if not_happened:
        return {"verdict": "not_landed"}, "it did not happen, and is done when the run goes on"
    error = StepError(str(message), error_type="StepError", error_message=str(message))
    return {"verdict": "failed", "error": encode_error(error)}, f"it failed: {message}"


async def _choose(store: Store, run_id: str, key: str | None) -> tuple[str, int]:
    """The call that is meant, and which attempt of it is in doubt."""
    if key is not None:  # the run may be awake already, since another of its calls was settled
        known = await doubts_of(store, RunId(run_id), is_woken=True)
        return key, next((info.attempt for info in known if info.key == key), 0)
    doubts, more = await find_doubts(store, run_id)
    if not doubts:
        raise AlreadySettled(f"Run {run_id} has nothing in doubt (any more); nothing was changed.{more}")
    if len(doubts) > 1:
        keys = ", ".join(doubt.info.key for doubt in doubts)
        raise Failure(f"Run {run_id} has several effects in doubt: {keys}. Say which.", USAGE)
    return doubts[0].info.key, doubts[0].info.attempt
