"""What people decide of questions that runs ask."""

from __future__ import annotations

from holdfast.base.clock import now_us
from holdfast.base.hints import hint
from holdfast.control.acting import act_in, actor, way
from holdfast.control.mail import mail_for, waking
from holdfast.errors import AlreadyDecided, QuestionChanged, RunFinished
from holdfast.model import MailKind, QuestionRow, QuestionState, RunId
from holdfast.store.contract import Store


async def decide(
    store: Store,
    row: QuestionRow,
    state: QuestionState,
    value: str | None,
    *,
    by: str | None,
    note: str,
    dedup: str | None = None,
) -> None:
    """Answer or decline a question, as it was shown. The first decision counts."""
    body = {"value": value, "declined": state is QuestionState.declined, "by": actor(by), "note": note, **way(by)}
    what = "decline" if state is QuestionState.declined else "answer"
    act = act_in(body, what, row.run_id, target=row.id)
    mail = mail_for(row.run_id, MailKind.answer, row.key, body, dedup=dedup)
    try:
        wake = waking(MailKind.answer, row.key)
        if (await store.send(mail, wake=wake, decides=(state, row.shown), act=act)).number:
            return
    except RunFinished:  # then nobody waits for it any more
        await store.close_question(row.run_id, row.key, QuestionState.withdrawn, now_us())
    now = next((q for q in await store.questions(run_id=row.run_id, only_open=False) if q.key == row.key), None)
    if now is None or now.state is QuestionState.open:
        raise QuestionChanged(
            f"Question {row.id} of run {row.run_id} shows something else now; nothing was decided. Look at it again "
            f"with `{hint('questions', row.id)}`."
        )
    who = f" by {now.decided_by}" if now.decided_by else ""
    raise AlreadyDecided(
        f"Question {row.id} of run {row.run_id} was {now.state}{who}; nothing was changed.",
        state=now.state,
        by=now.decided_by,
    )


async def withdraw_questions(store: Store, run_id: RunId) -> None:
    """Nobody waits for the answers any more."""
    for question in await store.questions(run_id=run_id):
        await store.close_question(run_id, question.key, QuestionState.withdrawn, now_us())
