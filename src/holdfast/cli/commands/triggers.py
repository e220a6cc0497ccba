"""`holdfast triggers`"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.automation.triggers.definitions import TriggerInfo, TriggerNote
from holdfast.automation.triggers.refused import RefusedStart
from holdfast.base.clock import as_time, now_us
from holdfast.cli.acting import actor_options
from holdfast.cli.clients import complete_defined, with_app
from holdfast.cli.defined import act_on, named
from holdfast.cli.groups import group
from holdfast.cli.lists import Listed, ago, show_list, stamp
from holdfast.cli.setup import Setup
from holdfast.cli.text import clean
from holdfast.history.words import clock_time, count

_NOTES = {
    "started": ("✔", "green"),
    "known": ("✔", "dim"),
    "ignored": ("·", "dim"),
    "refused": ("✖", "red"),
    "failed": ("✖", "red"),
}

#: Characters of what came that a terminal shows.
_SHOWN = 80

_trigger_argument = click.argument("name", metavar="NAME", shell_complete=complete_defined("trigger"))


@group("triggers")
def triggers_command(setup: Setup) -> int:
    """List triggers: what starts runs when something happens.

    Piped, lines of: trigger, active|paused, kind, what it listens to, agent, received, matched, started, queue,
    refused.
    """

    async def read(app: Holdfast) -> list[TriggerInfo]:
        return await app.triggers()

    triggers = with_app(setup, read)
    show_list(
        setup,
        [_listed(trigger) for trigger in triggers],
        head=("STATE", "TRIGGER", "LISTENS TO", "STARTS", "SEEN", "FIT", "RUNS", "LAST"),
        flexible=2,
        nothing="No trigger. `app.on(EVENT, agent)` makes one.",
        footer=f"{count(len(triggers), 'trigger')} · holdfast triggers log NAME tells what one did",
    )
    return 0


def _listed(trigger: TriggerInfo) -> Listed:
    state, mark, style = ("paused", "⏸", "yellow") if trigger.paused else ("active", "▶", "green")
    source = source_text(trigger.kind, trigger.config)
    facts = {
        "name": trigger.name,
        "state": state,
        "kind": trigger.kind,
        "config": dict(trigger.config),
        "agent": trigger.agent,
        "where": None if trigger.where is None else dict(trigger.where),
        "queue": trigger.queue,
        "queue_key": trigger.queue_key,
        "created_at": stamp(trigger.created_at),
        "received": trigger.received,
        "matched": trigger.matched,
        "started": trigger.started,
        "refused": trigger.refused,
        "recent": [_note_facts(note) for note in trigger.recent],
    }
    line = (
        trigger.name,
        state,
        trigger.kind,
        source,
        trigger.agent,
        trigger.received,
        trigger.matched,
        trigger.started,
        trigger.queue,
        trigger.refused,
    )
    cells = (
        f"{mark} {state}",
        trigger.name,
        source,
        trigger.agent,
        str(trigger.received),
        str(trigger.matched),
        str(trigger.started),
        f"{ago(trigger.recent[-1].at)} ago" if trigger.recent else "",
    )
    return Listed(facts, line, cells, style)


def source_text(kind: str, config: Mapping[str, Any]) -> str:
    """What a trigger listens to, in a few words."""
    told = [config.get(each) for each in ("event", "path", "pattern", "subject", "stream")]
    return " ".join([kind, *(str(each) for each in told if each)])


def _note_facts(note: TriggerNote) -> dict[str, Any]:
    return {"at": stamp(note.at), "what": note.what, "run": note.run, "detail": note.detail}


@triggers_command.act("pause")
@_trigger_argument
@actor_options
def pause_trigger(setup: Setup, name: str, *, note: str, by: str) -> int:
    """Have a trigger start nothing until it is resumed."""
    return act_on(setup, "trigger", name, becomes="paused", act=lambda app: app.pause_trigger(name, by=by, note=note))


@triggers_command.act("resume")
@_trigger_argument
@actor_options
def resume_trigger(setup: Setup, name: str, *, note: str, by: str) -> int:
    """Have a paused trigger go on."""
    return act_on(setup, "trigger", name, becomes="resumed", act=lambda app: app.resume_trigger(name, by=by, note=note))


@triggers_command.act("rm")
@_trigger_argument
@actor_options
def remove_trigger(setup: Setup, name: str, *, note: str, by: str) -> int:
    """Remove a trigger; the runs it started are not touched."""
    return act_on(setup, "trigger", name, becomes="removed", act=lambda app: app.remove_trigger(name, by=by, note=note))


@triggers_command.act("log")
@_trigger_argument
def trigger_log(setup: Setup, name: str) -> int:
    """Tell what a trigger did last, oldest first.

    Piped, lines of: time, started|known|ignored|refused|failed, run, detail.
    """

    async def read(app: Holdfast) -> TriggerInfo:
        return named(await app.triggers(), "trigger", name)

    trigger = with_app(setup, read)
    now = as_time(now_us())
    items = []
    for note in trigger.recent:
        mark, style = _NOTES.get(note.what, ("·", ""))
        cells = (f"{mark} {note.what}", note.run or "", clock_time(note.at, now=now), note.detail)
        items.append(Listed(_note_facts(note), (stamp(note.at), note.what, note.run, note.detail), cells, style))
    show_list(
        setup,
        items,
        head=("WHAT", "RUN", "AT", "DETAIL"),
        flexible=3,
        nothing=f"Trigger {clean(name, one_line=True)} has done nothing yet.",
        footer=f"{trigger.received} seen · {trigger.matched} fit · {count(trigger.started, 'run')} started"
        + (f" · {trigger.refused} refused" if trigger.refused else ""),
    )
    return 0


@triggers_command.act("refused")
@_trigger_argument
def refused_starts(setup: Setup, name: str) -> int:
    """Show what came for a trigger and can never be a run, oldest first.

    Piped, lines of: time, run that it would have been, where it came from, why not, what came.
    """

    async def read(app: Holdfast) -> list[RefusedStart]:
        named(await app.triggers(), "trigger", name)
        return await app.refused_starts(name)

    now = as_time(now_us())
    items = [_refused(each, now) for each in with_app(setup, read)]
    show_list(
        setup,
        items,
        head=("AT", "FROM", "WHY", "WHAT CAME"),
        flexible=2,
        nothing=f"Nothing that came for trigger {clean(name, one_line=True)} was refused.",
        footer=f"{len(items)} refused; each is kept for 30 days",
    )
    return 0


def _refused(each: RefusedStart, now: datetime) -> Listed:
    data = each.data.decode(errors="backslashreplace")
    facts = {"at": stamp(each.at), "run": each.run, "from": each.what, "why": each.why, "data": data}
    cells = (clock_time(each.at, now=now), each.what, each.why, data[:_SHOWN])
    return Listed(facts, (stamp(each.at), each.run, each.what, each.why, data), cells, "")
