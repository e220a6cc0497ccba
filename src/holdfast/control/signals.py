"""Signals and interrupts: what is sent to a run, refused to its sender if the agent takes no such thing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.codec import is_same
from holdfast.codec.schema import refuse_misfit
from holdfast.control.acting import actor, existing, way
from holdfast.control.mail import OWN_IDS, send_mail
from holdfast.control.outbox import later
from holdfast.errors import ConflictingSend, UsageError
from holdfast.model import KnownMail, MailKind, RunId, RunRow
from holdfast.store.contract import Store


class Takes(NamedTuple):
    """What an agent declares: its signals with their schemas; one that declares none takes any."""

    agent: str
    signals: Mapping[str, Any]


async def send(
    store: Store,
    run_id: RunId,
    name: str,
    value: str,
    *,
    dedup: str | None,
    by: str | None,
    takes: Takes | None = None,
) -> bool:
    """Send a signal; `value` is JSON text. False: it was sent before, under the same dedup id.

    UsageError if the run's agent declares its signals, and this is none of them or has another shape. ConflictingSend
    if something else was sent under that id. `takes`: what it declares, if that is known without asking.
    """
    refuse_dedup(dedup)
    _refuse_signal(run_id, takes or await _takes(store, await existing(store, run_id)), name, value)
    sent = await send_mail(
        store, run_id, MailKind.signal, name, {"value": value, "by": actor(by), **way(by)}, dedup=dedup
    )
    if sent.known is not None and not _is_signal(sent.known, name, value):
        raise ConflictingSend(
            f"Something else was sent to run {run_id} with dedup={dedup!r} before ({sent.known.kind} "
            f"{sent.known.key!r}, number {sent.known.number}); nothing was sent. Use another id for another message.",
            known=str(sent.known.number),
        )
    return sent.is_new


def refuse_dedup(dedup: str | None) -> None:
    """Refuse what cannot be a dedup id that a user gives."""
    if dedup is not None and (not isinstance(dedup, str) or not dedup or dedup.startswith(OWN_IDS)):
        raise UsageError(
            f"dedup= takes text that is the same whenever the message is the same, not beginning with {OWN_IDS!r}; "
            f"got {dedup!r}."
        )


def _is_signal(known: KnownMail, name: str, value: str) -> bool:
    """Is it this signal that was accepted? Of a run that was pruned nobody knows."""
    if not known.body:
        return True
    return (known.kind, known.key) == (MailKind.signal, name) and is_same(json.loads(known.body)["value"], value)


async def send_later(
    store: Store, transaction: Any, run_id: RunId, name: str, value: str, *, dedup: str | None, by: str | None
) -> None:
    """Send a signal once a transaction of the user's own is committed. The run may be started by the same one."""
    refuse_dedup(dedup)
    row = await store.run(run_id)
    if row is not None:
        _refuse_signal(run_id, await _takes(store, row), name, value)
    send = {"run": run_id, "name": name, "value": value, "dedup": dedup, "by": actor(by)}
    await later(store, transaction, {"send": send})


async def _takes(store: Store, row: RunRow) -> Takes:
    return Takes(row.agent, (await definition(store, row.agent)).get("signals") or {})


def _refuse_signal(run_id: RunId, takes: Takes, name: str, value: str) -> None:
    agent, signals = takes
    if signals:
        if name not in signals:
            raise UsageError(f"Run {run_id} ({agent}) takes no signal {name!r}; it takes {', '.join(signals)}.")
        refuse_misfit(signals[name], value, f"signal {name!r} of {agent}")


async def definition(store: Store, agent: str) -> dict[str, Any]:
    """What workers have said of an agent: its signals, whether it handles interrupts, its queue."""
    found = await store.definitions("agent", names=[agent])
    body: dict[str, Any] = json.loads(found[0].body) if found else {}
    return body


async def interrupt(store: Store, run_id: RunId, value: str, *, by: str | None, dedup: str | None = None) -> int:
    """Send an interrupt; the number of its mail."""
    row = await existing(store, run_id)
    if not (await definition(store, row.agent)).get("interrupts"):
        raise UsageError(
            f"{row.agent} does not handle interrupts: declare a handler with @{row.agent}.on_interrupt, and have a "
            "worker with that code take it up."
        )
    said = {"value": value, "by": actor(by), **way(by)}
    return (await send_mail(store, run_id, MailKind.interrupt, "", said, dedup=dedup)).number
