"""Mail in one transaction: the runs are locked in the order of ids, what becomes of them is decided here, then written.

This is the one place where a transaction of the store spans runs on purpose: a child's last append and the mail that
tells its parent of it are committed together, or not at all. Sends share the transaction, but each would do alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import CorruptJournal, HoldfastError
from holdfast.model import Append, Applied, Known, Mail, QuestionState, RunId, RunRow, Sent
from holdfast.store import rows
from holdfast.store.carrier import Posted
from holdfast.store.mailing import Delivery, Mailbag, WakeError, decider
from holdfast.store.postgres import apply
from holdfast.store.postgres.connection import STATEMENT_S
from holdfast.store.queries import Queries


@dataclass(frozen=True, slots=True, eq=False)
class Telling:
    """An append, or an amendment, that tells another run of itself."""

    append: Append
    seize: bool | None = None  #: as `append_all` has it


Post = Delivery | Telling
#: For mail: what became of it, or why it was refused. For an append: what became of it.
Outcome = Sent | Applied | HoldfastError | WakeError


async def post_all(
    connection: Any, queries: Queries, posts: Sequence[Post], *, again: bool
) -> tuple[list[Outcome], list[Posted]]:
    """Apply appends and deliver mail, in the transaction of the caller; what became of each, and the mail."""
    deliveries: list[Delivery] = []
    for each in posts:
        if isinstance(each, Delivery):
            deliveries.append(each)
        elif each.append.tell is not None:
            deliveries.append(Delivery(each.append.tell.mail, each.append.tell.wake))
    tellings = [each for each in posts if isinstance(each, Telling)]
    ids = {each.mail.run_id for each in deliveries} | {each.append.row.id for each in tellings}
    runs = _read(await connection.fetch(queries["lock_runs"], sorted(ids), timeout=STATEMENT_S))
    applied: dict[Telling, tuple[Applied, bool]] = {}
    if tellings:
        found = await apply.append_all(
            connection, queries, [t.append for t in tellings], seizes=[t.seize for t in tellings], again=again
        )
        applied = dict(zip(tellings, found, strict=True))
        changed = {each.append.row.id for each in tellings} & {each.mail.run_id for each in deliveries}
        if changed:
            runs |= _read(await connection.fetch(queries["runs_of_ids"], sorted(changed), timeout=STATEMENT_S))
    mailbag = await _Mailbag.open(connection, queries, deliveries, runs=runs, again=again)
    outcomes: list[Outcome] = []
    for each in posts:
        if isinstance(each, Delivery):
            outcomes.append(mailbag.send(each))
            continue
        outcome, is_new = applied[each]
        if is_new and each.append.tell is not None:
            told = mailbag.send(Delivery(each.append.tell.mail, each.append.tell.wake))
            if isinstance(told, WakeError):
                raise told  # a run that is gone or refuses the mail only misses it; a bug is the append's
        elif outcome is Applied.committed and each.append.tell is not None:
            mailbag.posted.append(Posted(each.append.tell.mail, None))  # it was told before, and nobody was rung for
        outcomes.append(outcome)
    await mailbag.write(connection, queries)
    return outcomes, mailbag.posted


def _read(found: Sequence[Any]) -> dict[RunId, RunRow | HoldfastError]:
    """Runs by id; for one that cannot be read, why."""
    runs: dict[RunId, RunRow | HoldfastError] = {}
    for each in found:
        try:
            runs[RunId(each[0])] = rows.read_run(tuple(each))
        except CorruptJournal as error:
            runs[RunId(each[0])] = error
    return runs


class _Mailbag(Mailbag):
    """What is decided here is decided from what was read before: a statement for each would be a trip for each."""

    def __init__(
        self,
        runs: dict[RunId, RunRow | HoldfastError],
        known: dict[tuple[RunId, str], Known],
        accepted: dict[int, int],
        shown: dict[tuple[RunId, str], str],
    ) -> None:
        super().__init__(runs, known)
        self._accepted = accepted  # numbers of mail that an earlier commit of the same sends stored
        self._shown = shown  # what open questions show
        self._decided: list[rows.Values] = []

    @classmethod
    async def open(
        cls,
        connection: Any,
        queries: Queries,
        deliveries: Sequence[Delivery],
        *,
        runs: dict[RunId, RunRow | HoldfastError],
        again: bool,
    ) -> _Mailbag:
        known: dict[tuple[RunId, str], Known] = {}
        dedups = [(each.mail.run_id, each.mail.dedup) for each in deliveries if each.mail.dedup is not None]
        if dedups:
            for run_id, dedup, *found in await connection.fetch(
                queries["known_mail"], *zip(*dedups, strict=True), timeout=STATEMENT_S
            ):
                known[RunId(run_id), dedup] = Known(*found)
        accepted: dict[int, int] = {}
        if again and deliveries:
            very = [
                (id(each), m.run_id, m.kind, m.key, m.body, m.at, m.digest, m.dedup)
                for each in deliveries
                for m in (each.mail,)
            ]
            columns = list(zip(*very, strict=True))
            columns[0] = tuple(range(len(very)))
            for place, number in await connection.fetch(queries["find_mail"], *columns, timeout=STATEMENT_S):
                accepted[very[place][0]] = number
        shown: dict[tuple[RunId, str], str] = {}
        asked = [(each.mail.run_id, each.mail.key) for each in deliveries if each.decides is not None]
        if asked:
            for run_id, key, text in await connection.fetch(
                queries["open_shown"], *zip(*asked, strict=True), timeout=STATEMENT_S
            ):
                shown[RunId(run_id), key] = text
        return cls(runs, known, accepted, shown)

    def send(self, delivery: Delivery) -> Sent | HoldfastError | WakeError:
        """Accept or refuse mail. What is refused has changed nothing."""
        try:
            number = self._accepted.get(id(delivery))
            if number is None:
                return self.accept(delivery)
            self.posted.append(Posted(delivery.mail, None))
            return Sent(number, is_new=True)
        except (HoldfastError, WakeError) as refused:
            return refused

    def decide(self, mail: Mail, state: QuestionState, shown: str) -> bool:
        if self._shown.get((mail.run_id, mail.key)) != shown:
            return False
        del self._shown[mail.run_id, mail.key]
        self._decided.append((mail.run_id, mail.key, state.value, mail.at, *decider(mail)))
        return True

    async def write(self, connection: Any, queries: Queries) -> None:
        if not self.mail:
            return
        await connection.fetchval(
            queries["deliver"],
            *apply.columns(self.mail, 8),
            *apply.columns([(row.id, row.mail) for row in self.counted], 2),
            *apply.columns([rows.wake_parameters(row) for row in self.woken], 9),
            *apply.columns(self._decided, 6),
            timeout=STATEMENT_S,
        )
