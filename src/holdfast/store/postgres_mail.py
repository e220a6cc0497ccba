"""Mail in one transaction: the runs are locked in the order of ids, what becomes of them is decided here, then written.

This is the one place where a transaction of the store spans runs on purpose: a child's last append and the mail that
tells its parent of it are committed together, or not at all. Sends share the transaction, but each would do alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.errors import CorruptJournal, HoldfastError, RunNotFound
from holdfast.model import Append, Applied, RunId, RunRow, Sent
from holdfast.store import postgres_apply as apply
from holdfast.store import rows
from holdfast.store.mailing import Delivery, WakeError, decider, wake_row
from holdfast.store.postgres_connection import STATEMENT_S
from holdfast.store.queries import Queries


@dataclass(frozen=True, slots=True, eq=False)
class Telling:
    """An append, or an amendment, that tells another run of itself."""

    append: Append
    seize: bool | None = None  #: as `append_all` has it


Post = Delivery | Telling
#: For mail: what became of it, or why it was refused. For an append: what became of it.
Outcome = Sent | Applied | HoldfastError | WakeError


async def post_all(connection: Any, queries: Queries, posts: Sequence[Post], *, again: bool) -> list[Outcome]:
    """Apply appends and deliver mail, in the transaction of the caller."""
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
    mailbag = await Mailbag.open(connection, queries, deliveries, runs=runs, again=again)
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
        outcomes.append(outcome)
    await mailbag.write(connection, queries)
    return outcomes


def _read(found: Sequence[Any]) -> dict[RunId, RunRow | HoldfastError]:
    """Runs by id; for one that cannot be read, why."""
    runs: dict[RunId, RunRow | HoldfastError] = {}
    for each in found:
        try:
            runs[RunId(each[0])] = rows.read_run(tuple(each))
        except CorruptJournal as error:
            runs[RunId(each[0])] = error
    return runs


class Mailbag:
    """The runs that mail comes for, as they are in this transaction, and what of them is to be written."""

    def __init__(
        self,
        runs: dict[RunId, RunRow | HoldfastError],
        known: dict[tuple[RunId, str], int],
        accepted: dict[int, int],
        shown: dict[tuple[RunId, str], str],
    ) -> None:
        self._runs = runs
        self._known = known  # numbers by dedup id
        self._accepted = accepted  # numbers of mail that an earlier commit of the same sends stored
        self._shown = shown  # what open questions show
        self._mail: list[rows.Values] = []
        self._counted: set[RunId] = set()
        self._woken: set[RunId] = set()
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
    ) -> Mailbag:
        known: dict[tuple[RunId, str], int] = {}
        dedups = [(each.mail.run_id, each.mail.dedup) for each in deliveries if each.mail.dedup is not None]
        if dedups:
            for run_id, dedup, number in await connection.fetch(
                queries["known_mail"], *zip(*dedups, strict=True), timeout=STATEMENT_S
            ):
                known[RunId(run_id), dedup] = number
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
            return self._accept(delivery) if number is None else Sent(number, is_new=True)
        except (HoldfastError, WakeError) as refused:
            return refused

    def _accept(self, delivery: Delivery) -> Sent:
        mail = delivery.mail
        row = self._runs.get(mail.run_id)
        if row is None:
            raise RunNotFound(f"There is no run {mail.run_id} in this store.")
        if mail.dedup is not None and (number := self._known.get((mail.run_id, mail.dedup))) is not None:
            return Sent(number, is_new=False)
        if isinstance(row, HoldfastError):
            raise row
        woken = wake_row(delivery.wake, row)
        if delivery.expected is not None and row.mail != delivery.expected:
            return Sent(0, is_new=False)
        if delivery.decides is not None:
            state, shown = delivery.decides
            if self._shown.get((mail.run_id, mail.key)) != shown:
                return Sent(0, is_new=False)
            del self._shown[mail.run_id, mail.key]
            self._decided.append((mail.run_id, mail.key, state.value, mail.at, *decider(mail)))
        number = row.mail + 1
        self._mail.append(rows.mail_parameters(mail, number))
        if mail.dedup is not None:
            self._known[mail.run_id, mail.dedup] = number
        if woken is not None and row.owner is None:
            self._woken.add(row.id)
            row = woken
        self._counted.add(row.id)
        self._runs[row.id] = replace(row, mail=number, owner=None) if row.owner is None else replace(row, mail=number)
        return Sent(number, is_new=True)

    async def write(self, connection: Any, queries: Queries) -> None:
        if not self._mail:
            return
        counted = [row for run_id in self._counted - self._woken if isinstance(row := self._runs[run_id], RunRow)]
        woken = [row for run_id in self._woken if isinstance(row := self._runs[run_id], RunRow)]
        await connection.fetchval(
            queries["deliver"],
            *apply.columns(self._mail, 8),
            *apply.columns([(row.id, row.mail) for row in counted], 2),
            *apply.columns([rows.wake_parameters(row) for row in woken], 9),
            *apply.columns(self._decided, 6),
            timeout=STATEMENT_S,
        )
