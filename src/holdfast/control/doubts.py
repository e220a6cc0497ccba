"""What people say about effects in doubt."""

from __future__ import annotations

from typing import Any

from holdfast.base.hints import hint, resume_hint
from holdfast.control.acting import act_in, actor, way
from holdfast.control.mail import mail_for, waking
from holdfast.errors import AlreadySettled, CorruptJournal, RunFinished, RunNotFound, UsageError
from holdfast.journal.blocks import source_in
from holdfast.journal.integrity import check_records, check_row
from holdfast.journal.mismatches import is_left_over
from holdfast.journal.replay import Replay
from holdfast.journal.tombstones import refuse_elsewhere, refuse_empty
from holdfast.model import MailKind, RunId, RunRow, Status
from holdfast.store.contract import Store


async def resolve(
    store: Store,
    run_id: RunId,
    key: str,
    verdict: dict[str, Any],
    *,
    attempt: int,
    by: str | None,
    note: str,
    dedup: str | None = None,
) -> None:
    """Store a person's verdict on an effect in doubt. The same one again, known by its `dedup` id, is the first.

    `verdict` is {"verdict": landed|not_landed|failed, "value"|"error": JSON text}.
    The run's owner acts on it, now or when the run is taken up again; a parked run is made claimable.
    """
    said = {**verdict, "attempt": attempt, "actor": actor(by), "note": note, **way(by)}
    while not await _send_verdict(store, run_id, key, said, attempt=attempt, dedup=dedup):
        pass  # somebody sent something in between: look again whether it settled this call


def _not_asked(row: RunRow, key: str, source: str | None) -> str:
    """Why nobody may say what became of a call that has begun: it may be under way, or may not have been looked at."""
    if row.owner is not None and row.status is Status.running:
        state = "is being executed, or the process that did so has died and nobody has taken the run over yet"
    else:
        state = f"was not looked at since it was cut off: `{resume_hint(row.id, source)}` has its rule settle it first"
    return f"Run {row.id}: {key} is not in doubt; it {state}. Nothing was changed."


async def _send_verdict(
    store: Store, run_id: RunId, key: str, said: dict[str, Any], *, attempt: int, dedup: str | None
) -> bool:
    if dedup is not None and any(mail.dedup == dedup for mail in await store.mail(run_id, after=0)):
        return True
    loaded = await store.load(run_id)
    if loaded is None:
        raise RunNotFound(f"There is no run {run_id} in {store.url}.")
    row, records = loaded
    refuse_elsewhere(row)
    refuse_empty(row)
    if row.status is Status.quarantined:
        raise CorruptJournal(f"Run {run_id} is quarantined; nothing can be settled in it.", run_id=run_id)
    check_row(row)
    check_records(row, records)
    replay = Replay(records, turn=row.turn, code="")
    entry = replay.entries.get(key)
    if entry is None:
        raise UsageError(f"Run {run_id} has no call {key!r}. `holdfast in-doubt` lists what is in doubt.")
    if entry.intent is None or row.status.is_final:
        raise AlreadySettled(f"Run {run_id}: {key} is not in doubt (any more); nothing was changed.")
    if entry.intent.attempt != attempt:
        raise AlreadySettled(
            f"Run {run_id}: attempt {attempt} of {key} was settled; in doubt is now attempt {entry.intent.attempt}. "
            "Nothing was changed; look again with `holdfast in-doubt`."
        )
    if not (entry.is_in_doubt or is_left_over(row, entry)):
        raise AlreadySettled(_not_asked(row, key, source_in(records)))
    told = (m for m in await store.mail(run_id, after=0) if m.kind == MailKind.resolve and m.key == key)
    if any(mail.number not in replay.consumed_mail for mail in told):
        raise AlreadySettled(f"Run {run_id}: somebody settled {key} just now; `{hint('show', run_id)}` tells who.")
    if not entry.is_in_doubt:
        said = {**said, "left_over": True}  # nobody was asked: the code does not make the call
    mail = mail_for(run_id, MailKind.resolve, key, said, dedup=dedup)
    try:
        act = act_in(said, "settle", run_id, target=key)
        return (await store.send(mail, wake=waking(MailKind.resolve, key), expected=row.mail, act=act)).number > 0
    except RunFinished:
        return False  # it has ended since it was looked at, so the call is settled
