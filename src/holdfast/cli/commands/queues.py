"""`holdfast queues`"""

from __future__ import annotations

import re

import click

from holdfast.app import Holdfast
from holdfast.base.clock import as_time, now_us
from holdfast.cli.acting import actor_options
from holdfast.cli.clients import complete_defined, with_app
from holdfast.cli.defined import act_on
from holdfast.cli.failure import USAGE, Failure
from holdfast.cli.groups import group
from holdfast.cli.lists import Listed, show_list, stamp
from holdfast.cli.setup import Setup
from holdfast.cli.text import clean, to_json
from holdfast.history.words import count, due_text
from holdfast.worker.queues import QueueInfo

_RATE = re.compile(r"(\d+)\s*/\s*(\d+(?:\.\d+)?)?\s*([smhd]?)")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NONE = ("none", "-", "no")

_queue_argument = click.argument("name", metavar="NAME", shell_complete=complete_defined("queue"))


@group("queues")
def queues_command(setup: Setup) -> int:
    """List queues, how full they are, and their limits.

    Piped, lines of: queue, open|paused|held, queued, running, limit, limit per key, starts, in seconds.
    """

    async def read(app: Holdfast) -> list[QueueInfo]:
        return await app.queues()

    queues = with_app(setup, read)
    show_list(
        setup,
        [_listed(queue) for queue in queues],
        head=("STATE", "QUEUE", "QUEUED", "RUNNING", "LIMIT", "PER KEY", "STARTS", ""),
        flexible=7,
        nothing="No queue has limits. `holdfast queues set NAME --concurrency N` gives it some.",
        footer=count(len(queues), "queue"),
    )
    return 0


def _listed(queue: QueueInfo) -> Listed:
    state = "paused" if queue.paused else "held" if queue.held_until is not None else "open"
    mark, style = {"paused": ("⏸", "yellow"), "held": ("◷", "cyan"), "open": ("▶", "green")}[state]
    starts, seconds = queue.rate or (None, None)
    facts = {
        "name": queue.name,
        "state": state,
        "queued": queue.queued,
        "running": queue.running,
        "concurrency": queue.concurrency,
        "per_key": queue.per_key,
        "rate": list(queue.rate) if queue.rate else None,
        "paused": queue.paused,
        "held_until": stamp(queue.held_until),
    }
    line = (queue.name, state, queue.queued, queue.running, queue.concurrency, queue.per_key, starts, seconds)
    held = "" if queue.held_until is None else f"until {due_text(queue.held_until, now=as_time(now_us()))}"
    cells = (
        f"{mark} {state}",
        queue.name,
        str(queue.queued),
        str(queue.running),
        _shown(queue.concurrency),
        _shown(queue.per_key),
        rate_text(queue.rate),
        held,
    )
    return Listed(facts, line, cells, style)


def _shown(limit: int | None) -> str:
    return "–" if limit is None else str(limit)


def rate_text(rate: tuple[int, float] | None) -> str:
    """`10 in 60 s`"""
    return "–" if rate is None else f"{rate[0]} in {rate[1]:g} s"


@queues_command.act("pause")
@_queue_argument
@actor_options
def pause_queue(setup: Setup, name: str, *, note: str, by: str) -> int:
    """Start no more runs of a queue; those under way go on until they wait or end."""
    return act_on(setup, "queue", name, becomes="paused", act=lambda app: app.pause_queue(name, by=by, note=note))


@queues_command.act("resume")
@_queue_argument
@actor_options
def resume_queue(setup: Setup, name: str, *, note: str, by: str) -> int:
    """Let a queue go on that is paused or held."""
    return act_on(setup, "queue", name, becomes="resumed", act=lambda app: app.resume_queue(name, by=by, note=note))


@queues_command.act("set")
@_queue_argument
@click.option("--concurrency", metavar="N|none", help="Runs at once, by all workers together.")
@click.option("--per-key", metavar="N|none", help="Runs at once of each key.")
@click.option("--rate", metavar="N/TIME|none", help="Starts in a time: 10/60s, 100/m, 5/2h.")
@actor_options
def set_queue(
    setup: Setup, name: str, concurrency: str | None, per_key: str | None, rate: str | None, *, note: str, by: str
) -> int:
    """Change the limits of a queue; what is not given stays as it is.

    \b
    holdfast queues set mail --concurrency 4 --rate 10/m
    holdfast queues set mail --rate none
    """
    if concurrency is None and per_key is None and rate is None:
        raise Failure("Give --concurrency, --per-key or --rate; `none` takes a limit away.", USAGE)
    limit, limit_per_key, starts = _limit(concurrency, "--concurrency"), _limit(per_key, "--per-key"), _rate(rate)

    async def work(app: Holdfast) -> QueueInfo:
        before = next((queue for queue in await app.queues() if queue.name == name), None)
        await app.queue(
            name,
            by=by,
            note=note,
            concurrency=limit if concurrency is not None or before is None else before.concurrency,
            per_key=limit_per_key if per_key is not None or before is None else before.per_key,
            rate=starts if rate is not None or before is None else before.rate,
        )
        return next(queue for queue in await app.queues() if queue.name == name)

    queue = with_app(setup, work)
    if setup.is_json:
        print(to_json(_listed(queue).facts))
        return 0
    print(
        clean(
            f"Queue {name}: runs at once {_shown(queue.concurrency)}, per key {_shown(queue.per_key)}, "
            f"starts {rate_text(queue.rate)}.",
            one_line=True,
        )
    )
    return 0


def _limit(given: str | None, option: str) -> int | None:
    if given is None or given.lower() in _NONE:
        return None
    if not given.isdecimal() or int(given) < 1:
        raise Failure(f"{option} takes a whole number from 1, or none; got {given!r}.", USAGE)
    return int(given)


def _rate(given: str | None) -> tuple[int, float] | None:
    if given is None or given.lower() in _NONE:
        return None
    found = _RATE.fullmatch(given.strip().lower())
    seconds = float(found[2] or 1) * _UNITS[found[3]] if found is not None else 0.0
    if found is None or int(found[1]) < 1 or seconds <= 0 or not (found[2] or found[3]):
        raise Failure(
            f"--rate takes a number of starts and a time, like 10/60s or 100/m, or none; got {given!r}.", USAGE
        )
    return int(found[1]), seconds
