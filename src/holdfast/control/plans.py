"""What people do to the plan of a run: mail, which the run takes with its next call of the plan."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.control.acting import act_of
from holdfast.control.mail import send_mail
from holdfast.model import MailKind, RunId
from holdfast.model.plans import Op
from holdfast.store.contract import Store


async def change_plan(
    store: Store, run_id: RunId, ops: Sequence[Op], *, by: str | None, note: str, dedup: str | None = None
) -> int:
    """Change the plan of a run; the number of the mail. RunFinished if it has ended."""
    body = {"ops": list(ops), **act_of(by, note, "")}
    return (await send_mail(store, run_id, MailKind.plan, "", body, dedup=dedup)).number
