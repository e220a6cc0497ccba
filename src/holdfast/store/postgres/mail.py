"""Mail in one transaction: the runs are locked in the order of ids, what becomes of them is decided here, then written.

This is the one place where a transaction of the store spans runs on purpose: a child's last append and the mail that
tells its parent of it are committed together, or not at all. Sends share the transaction, but each would do alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import CorruptJournal, HoldfastError
from holdfast.model import Act, Append, Applied, KnownMail, Mail, Outgoing, QuestionState, RunId, RunRow, Sent
from holdfast.store import rows
from holdfast.store.carrier import AcceptedMail
from holdfast.store.mailing import MailBatch, WakeError, decider
from holdfast.store.postgres import apply
from holdfast.store.postgres.connection import STATEMENT_S
from holdfast.store.queries import Queries


@dataclass(frozen=True, slots=True, eq=False)
class MailingAppend:
    """An append, or an amendment, that may send mail to another run."""

    append: Append
    seize: bool | None = None  #: as `append_all` has it
    act: Act | None = None  #: kept with it


#: For mail: what became of it, or why it was refused. For an append: what became of it.
Outcome = Sent | Applied | HoldfastError | WakeError


async def write_all(
    connection: Any, queries: Queries, writes: Sequence[Outgoing | MailingAppend], *, again: bool
) -> tuple[list[Outcome], list[AcceptedMail]]:
    """Apply appends and accept mail, in the transaction of the caller; what became of each, and the mail."""
    appends = [each for each in writes if isinstance(each, MailingAppend)]
    outgoing = [each.append.outgoing if isinstance(each, MailingAppend) else each for each in writes]
    mail = [each for each in outgoing if each is not None]
    ids = {each.mail.run_id for each in mail} | {each.append.row.id for each in appends}
    runs = _read(await connection.fetch(queries["lock_runs"], sorted(ids), timeout=STATEMENT_S))
    applied: dict[MailingAppend, tuple[Applied, bool]] = {}
    if appends:
        found = await apply.append_all(
            connection, queries, [a.append for a in appends], seizes=[a.seize for a in appends], again=again
        )
        applied = dict(zip(appends, found, strict=True))
        changed = {each.append.row.id for each in appends} & {each.mail.run_id for each in mail}
        if changed:
            runs |= _read(await connection.fetch(queries["runs_of_ids"], sorted(changed), timeout=STATEMENT_S))
    sent_before = [each for each in writes if isinstance(each, Outgoing)] if again else []
    batch = await _MailWrites.begin(connection, queries, mail, runs=runs, again=sent_before)
    outcomes: list[Outcome] = []
    for each in writes:
        if isinstance(each, Outgoing):
            outcomes.append(batch.send(each))
            continue
        outcome, is_new = applied[each]
        if is_new and each.act is not None:
            await apply.add_act(connection, queries, each.act)
        sends = each.append.outgoing
        if is_new and sends is not None:
            sent = batch.send(sends)
            if isinstance(sent, WakeError):
                raise sent  # a run that is gone or refuses the mail only misses it; a bug is the append's
        elif outcome is Applied.committed and sends is not None:
            batch.accepted.append(AcceptedMail(sends.mail, None))  # it was sent before, and nobody was rung for
        outcomes.append(outcome)
    await batch.write(connection, queries)
    return outcomes, batch.accepted


def _read(found: Sequence[Any]) -> dict[RunId, RunRow | HoldfastError]:
    """Runs by id; for one that cannot be read, why."""
    runs: dict[RunId, RunRow | HoldfastError] = {}
    for each in found:
        try:
            runs[RunId(each[0])] = rows.read_run(tuple(each))
        except CorruptJournal as error:
            runs[RunId(each[0])] = error
    return runs


class _MailWrites:
    """What is decided here is decided from what was read before: a statement for each would be a trip for each."""

    def __init__(
        self,
        runs: dict[RunId, RunRow | HoldfastError],
        known: dict[tuple[RunId, str], KnownMail],
        stored: dict[int, int],
        shown: dict[tuple[RunId, str], str],
    ) -> None:
        self._batch = MailBatch(runs, known, self._decide)
        self._stored = stored  # numbers of mail that an earlier commit of the same sends stored
        self._shown = shown  # what open questions show
        self._decided: list[rows.Values] = []

    @classmethod
    async def begin(
        cls,
        connection: Any,
        queries: Queries,
        outgoing: Sequence[Outgoing],
        *,
        runs: dict[RunId, RunRow | HoldfastError],
        again: Sequence[Outgoing],
    ) -> _MailWrites:
        """`again`: those that an earlier commit may have stored."""
        known: dict[tuple[RunId, str], KnownMail] = {}
        dedups = [(each.mail.run_id, each.mail.dedup) for each in outgoing if each.mail.dedup is not None]
        if dedups:
            for run_id, dedup, *found in await connection.fetch(
                queries["known_mail"], *zip(*dedups, strict=True), timeout=STATEMENT_S
            ):
                known[RunId(run_id), dedup] = KnownMail(*found)
        stored: dict[int, int] = {}
        if again:
            very = [
                (place, m.run_id, m.kind, m.key, m.body, m.at, m.digest, m.dedup)
                for place, m in enumerate(each.mail for each in again)
            ]
            columns = zip(*very, strict=True)
            for place, number in await connection.fetch(queries["find_mail"], *columns, timeout=STATEMENT_S):
                stored[id(again[place])] = number
        shown: dict[tuple[RunId, str], str] = {}
        asked = [(each.mail.run_id, each.mail.key) for each in outgoing if each.decides is not None]
        if asked:
            for run_id, key, text in await connection.fetch(
                queries["open_shown"], *zip(*asked, strict=True), timeout=STATEMENT_S
            ):
                shown[RunId(run_id), key] = text
        return cls(runs, known, stored, shown)

    @property
    def accepted(self) -> list[AcceptedMail]:
        return self._batch.accepted

    def send(self, outgoing: Outgoing) -> Sent | HoldfastError | WakeError:
        """Accept or refuse mail. What is refused has changed nothing."""
        try:
            number = self._stored.get(id(outgoing))
            if number is None:
                return self._batch.accept(outgoing)
            self.accepted.append(AcceptedMail(outgoing.mail, None))
            return Sent(number, is_new=True)
        except (HoldfastError, WakeError) as refused:
            return refused

    def _decide(self, mail: Mail, state: QuestionState, shown: str) -> bool:
        if self._shown.get((mail.run_id, mail.key)) != shown:
            return False
        del self._shown[mail.run_id, mail.key]
        self._decided.append((mail.run_id, mail.key, state.value, mail.at, *decider(mail)))
        return True

    async def write(self, connection: Any, queries: Queries) -> None:
        batch = self._batch
        if not batch.mail:
            return
        await connection.fetchval(
            queries["deliver"],
            *apply.columns(batch.mail, 8),
            *apply.columns([(row.id, row.mail) for row in batch.counted], 2),
            *apply.columns([rows.wake_parameters(row) for row in batch.woken], 9),
            *apply.columns(self._decided, 6),
            timeout=STATEMENT_S,
        )
        for act in batch.acts:
            await apply.add_act(connection, queries, act)
