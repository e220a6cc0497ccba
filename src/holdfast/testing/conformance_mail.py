"""What every store must do with mail, questions, definitions, and the bell."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable

from holdfast.errors import RunFinished, RunNotFound, StoreError
from holdfast.model import (
    Applied,
    Definition,
    Kind,
    KnownMail,
    Mail,
    MailKind,
    Outgoing,
    QuestionState,
    RunId,
    RunRow,
    Sent,
    Status,
)
from holdfast.testing.samples import (
    ALICE,
    START,
    Case,
    MakeStore,
    alone,
    amended,
    append,
    extend,
    left,
    mail_for,
    new_run,
    new_worker,
    opened,
    parked,
    question_of,
    woken,
)

_ANSWER = '{"value":true,"by":"ann","note":"fine"}'


async def _refused(use: Awaitable[object], why: type[Exception]) -> None:
    try:
        await use
    except why:
        return
    raise AssertionError(f"not refused with {why.__name__}")


# mail


async def mail_is_numbered_in_the_order_of_acceptance(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        row = await store.create(new_run(), owner=ALICE)
        sends = [(store if i % 2 else other).send(mail_for(row.id, f"{i}"), wake=left) for i in range(20)]
        sent = await asyncio.gather(*sends)
        assert all(each.is_new for each in sent)
        numbers = [each.number for each in sent]
        assert sorted(numbers) == list(range(1, 21))
        inbox = await store.mail(row.id, after=0)
        assert [mail.number for mail in inbox] == list(range(1, 21))
        assert {mail.body: mail.number for mail in inbox} == {f"{i}": number for i, number in enumerate(numbers)}
        assert inbox[0] == mail_for(row.id, inbox[0].body, number=1)
        assert await store.mail(row.id, after=18) == inbox[18:]
        stored = await store.run(row.id)
        assert stored is not None
        assert stored.mail == 20


async def mail_for_nobody_is_refused(make: MakeStore) -> None:
    async with opened(make) as store:
        await _refused(store.send(mail_for(RunId("r_nobody")), wake=left), RunNotFound)
        assert await store.mail(RunId("r_nobody"), after=0) == []


async def mail_wakes_a_run_that_nobody_owns(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        assert await store.send(mail_for(row.id), wake=woken) == Sent(1, is_new=True)
        assert await store.run(row.id) == dataclasses.replace(row, mail=1), "it has an owner"
        step = parked(row, status=Status.in_doubt)
        assert await append(store, step) == [Applied.committed]
        unowned = dataclasses.replace(step.row, owner=None, mail=1)
        seen: list[RunRow] = []

        def look(found: RunRow) -> RunRow | None:
            seen.append(found)
            return None

        assert await store.send(mail_for(row.id), wake=look) == Sent(2, is_new=True)
        assert set(map(repr, seen)) == {repr(unowned)}
        assert await store.run(row.id) == dataclasses.replace(unowned, mail=2)
        assert await store.send(mail_for(row.id), wake=woken) == Sent(3, is_new=True)
        assert await store.run(row.id) == dataclasses.replace(
            unowned, status=Status.queued, wake_at=START, digest="woken 2", mail=3
        )


async def refused_mail_changes_nothing_and_takes_no_other_with_it(make: MakeStore) -> None:
    async with opened(make) as store:
        rows = [await store.create(new_run(status=Status.waiting), owner=None) for _ in range(4)]

        def refuse(row: RunRow) -> RunRow | None:
            raise RunFinished(f"{row.id} has ended", status=row.status)

        def stumble(row: RunRow) -> RunRow | None:
            raise ZeroDivisionError

        def advance(row: RunRow) -> RunRow | None:
            return dataclasses.replace(row, epoch=row.epoch + 1)

        results = await asyncio.gather(
            store.send(mail_for(rows[0].id), wake=refuse),
            store.send(mail_for(rows[1].id), wake=woken),
            store.send(mail_for(rows[2].id), wake=stumble),
            store.send(mail_for(rows[3].id), wake=advance),
            store.send(mail_for(rows[0].id, "2"), wake=left),
            return_exceptions=True,
        )
        assert isinstance(results[0], RunFinished)
        assert isinstance(results[2], StoreError)
        assert isinstance(results[3], StoreError)
        assert results[1] == results[4] == Sent(1, is_new=True)
        assert await store.run(rows[0].id) == dataclasses.replace(rows[0], mail=1)
        assert [mail.body for mail in await store.mail(rows[0].id, after=0)] == ["2"]
        assert [await store.run(row.id) for row in rows[2:]] == rows[2:]


async def a_known_dedup_id_changes_nothing(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        row = await store.create(new_run(status=Status.waiting), owner=None)
        other_run = await store.create(new_run(), owner=ALICE)
        mail = mail_for(row.id, "1", dedup="d1")
        sent = await asyncio.gather(*(each.send(mail, wake=woken) for each in (store, other, store, other, store)))
        assert sorted(each.is_new for each in sent) == [False] * 4 + [True]
        assert {each.number for each in sent} == {1}
        before = await store.run(row.id)

        def refuse(row: RunRow) -> RunRow | None:
            raise RunFinished(f"{row.id} has ended", status=row.status)

        again = dataclasses.replace(mail, body="2", at=START + 1)
        known = KnownMail(1, mail.kind, mail.key, "1")
        assert await store.send(again, wake=refuse) == Sent(1, False, known), "it was accepted once, and stays so"
        assert await other.send(again, wake=refuse) == Sent(1, False, known), "whoever asks is told what that was"
        assert await store.run(row.id) == before
        assert await store.mail(row.id, after=0) == [dataclasses.replace(mail, number=1)]
        assert await store.send(mail_for(row.id, dedup="d2"), wake=left) == Sent(2, is_new=True)
        assert await store.send(mail_for(row.id), wake=left) == Sent(3, is_new=True)
        assert await store.send(mail_for(row.id), wake=left) == Sent(4, is_new=True)
        assert await store.send(mail_for(other_run.id, dedup="d1"), wake=left) == Sent(1, is_new=True)
        both = [mail_for(row.id, body, dedup="“d5”") for body in ("{“5”}", "{“6”}")]
        first, second = await asyncio.gather(*(store.send(each, wake=left) for each in both))
        assert first == Sent(5, is_new=True)
        assert second == Sent(5, False, KnownMail(5, mail.kind, mail.key, "{“5”}")), "also in the same commit"


async def mail_can_depend_on_what_its_sender_knows(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        row = await store.create(new_run(status=Status.waiting), owner=None)
        sends = [each.send(mail_for(row.id, str(i)), wake=left, expected=0) for i, each in enumerate((store, other))]
        assert sorted(each.number for each in await asyncio.gather(*sends)) == [0, 1]
        assert await store.send(mail_for(row.id), wake=woken, expected=0) == Sent(0, is_new=False)
        assert await store.run(row.id) == dataclasses.replace(row, mail=1)
        assert await store.send(mail_for(row.id), wake=left, expected=1) == Sent(2, is_new=True)


# questions


async def a_question_is_stored_once_and_follows_what_is_asked(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(), owner=ALICE)
        question = question_of(row.id, due_at=START + 9, body='{"prompt":"“Go”?"}')
        assert await store.open_question(question) == question
        same = dataclasses.replace(question, asked_at=START + 5, digest="later")
        assert await store.open_question(same) == question
        changed = dataclasses.replace(question, id="q_new", body="{}", shown="shown 2", asked_at=START + 6, digest="d2")
        assert await store.open_question(changed) == changed
        closed = await store.close_question(row.id, "ask#1", QuestionState.expired, START + 9)
        assert closed == dataclasses.replace(changed, state=QuestionState.expired, decided_at=START + 9)
        assert await store.open_question(question) == closed, "it is decided"
        assert await store.close_question(row.id, "ask#1", QuestionState.withdrawn, START + 10) == closed
        assert await store.close_question(row.id, "ask#2", QuestionState.withdrawn, START) is None
        assert await store.questions(only_open=False) == [closed]


async def questions_are_listed_oldest_first(make: MakeStore) -> None:
    async with opened(make) as store:
        rows = [await store.create(new_run(), owner=ALICE) for _ in range(3)]
        asked = []
        for number in range(12):
            question = question_of(rows[number % 3].id, f"ask#{number}", id=f"q_{number:02}", asked_at=START - number)
            asked.append(await store.open_question(question))
        for number in (4, 5):
            closed = await store.close_question(rows[number % 3].id, f"ask#{number}", QuestionState.withdrawn, START)
            assert closed is not None
            asked[number] = closed
        asked.reverse()
        still_open = [question for question in asked if question.state is QuestionState.open]
        assert len(still_open) == 10
        assert await store.questions() == still_open
        assert await store.questions(limit=3) == still_open[:3]
        assert await store.questions(only_open=False) == asked
        assert await store.questions(id_prefix="q_0") == [q for q in still_open if q.id.startswith("q_0")]
        assert await store.questions(id_prefix="q_05", only_open=False) == [q for q in asked if q.id == "q_05"]
        for row in rows:
            assert await store.questions(run_id=row.id) == [q for q in still_open if q.run_id == row.id]
            assert await store.questions(run_id=row.id, only_open=False) == [q for q in asked if q.run_id == row.id]
        assert await store.questions(run_id=rows[0].id, id_prefix="q_00") == [q for q in asked if q.id == "q_00"]
        assert await store.questions(id_prefix="q_%") == []


async def of_two_answers_one_wins(make: MakeStore) -> None:
    async with opened(make) as one, opened(make) as two:
        for number in range(10):
            row = await one.create(new_run(status=Status.waiting), owner=None)
            question = await one.open_question(question_of(row.id))
            answer = mail_for(row.id, _ANSWER, kind=MailKind.answer, key="ask#1", at=START + 7)
            decline = dataclasses.replace(answer, body='{"declined":true,"by":"bob"}')
            answering = one.send(answer, wake=woken, decides=(QuestionState.answered, "shown 1"))
            declining = two.send(decline, wake=woken, decides=(QuestionState.declined, "shown 1"))
            if number % 2:
                first, second = await asyncio.gather(answering, declining)
            else:
                second, first = await asyncio.gather(declining, answering)
            assert sorted((first.number, second.number)) == [0, 1]
            stored = (await one.questions(run_id=row.id, only_open=False))[0]
            state, by, note = QuestionState.declined, "bob", ""
            if first.number:
                state, by, note = QuestionState.answered, "ann", "fine"
            assert stored == dataclasses.replace(question, state=state, decided_at=START + 7, decided_by=by, note=note)
            assert len(await one.mail(row.id, after=0)) == 1
            woke = await one.run(row.id)
            assert woke is not None
            assert (woke.status, woke.mail) == (Status.queued, 1)


async def an_answer_is_for_what_was_shown(make: MakeStore) -> None:
    async with opened(make) as store:
        row = await store.create(new_run(status=Status.waiting), owner=None)
        question = await store.open_question(question_of(row.id))
        answer = mail_for(row.id, _ANSWER, kind=MailKind.answer, key="ask#1")
        nothing = Sent(0, is_new=False)
        decides = QuestionState.answered
        assert await store.send(answer, wake=woken, decides=(decides, "shown 0")) == nothing
        elsewhere = dataclasses.replace(answer, key="ask#2")
        assert await store.send(elsewhere, wake=woken, decides=(decides, "shown 1")) == nothing
        assert await store.send(answer, wake=woken, expected=5, decides=(decides, "shown 1")) == nothing
        assert await store.run(row.id) == row
        assert await store.questions() == [question]
        assert await store.mail(row.id, after=0) == []

        def refuse(row: RunRow) -> RunRow | None:
            raise RunFinished(f"{row.id} has ended", status=row.status)

        await _refused(store.send(answer, wake=refuse, decides=(decides, "shown 1")), RunFinished)
        assert await store.questions() == [question]
        assert await store.send(answer, wake=woken, decides=(decides, "shown 1")) == Sent(1, is_new=True)
        assert await store.questions() == []


# definitions


async def a_definition_is_written_over_the_revision_it_was_made_from(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        first = Definition("queue", "a", "{}", 1)
        won = await asyncio.gather(store.define([first]), other.define([dataclasses.replace(first, body="[]")]))
        assert sorted(won) == [[False], [True]]
        second = Definition("queue", "a", '{"n":2}', 2, due_at=START)
        assert await store.define([dataclasses.replace(second, revision=3)]) == [False]
        fresh = Definition("queue", "b", "“b”", 1)
        missing = Definition("queue", "c", "{}", 2)
        assert await store.define([second, first, fresh, missing, Definition("other", "a", "{}", 1)]) == [
            True, False, True, False, True,
        ]  # fmt: skip
        assert await other.definitions("queue") == [second, fresh]
        await store.forget("queue", ["a", "b", "zzz"], bodies=[first.body, "b", "{}"])
        assert await other.definitions("queue") == [second, fresh]
        await store.forget("queue", ["zzz", "a"], bodies=[fresh.body, second.body])
        assert await other.definitions("queue") == [fresh]
        assert await store.define([first, second]) == [True, True]
        await store.forget("queue", ["a", "zzz"])
        assert await other.definitions("queue") == [fresh]
        assert await other.define([first]) == [True]
        assert await store.definitions("other") == [Definition("other", "a", "{}", 1)]


async def definitions_are_written_with_the_first_or_not_at_all(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        head, note = Definition("ext", "head", "1", 1), Definition("note", "a", "{}", 1)
        won = await asyncio.gather(*(each.define([head, note], guarded=True) for each in (store, other)))
        assert sorted(won) == [[False, False], [True, True]]
        later = Definition("note", "b", "{}", 1)
        assert await store.define([dataclasses.replace(head, revision=3), later], guarded=True) == [False, False]
        assert await other.definitions("note") == [note]
        second = dataclasses.replace(head, revision=2)
        assert await other.define([second, note, later], guarded=True) == [True, False, True]
        assert await store.definitions("ext") == [second]
        assert await store.definitions("note") == [note, later]


async def definitions_are_found_by_name_and_by_time(make: MakeStore) -> None:
    async with opened(make) as store:
        made = [
            Definition("schedule", f"s{number:02}", "{}", 1, due_at=None if number % 4 == 0 else START + 100 - number)
            for number in range(20)
        ]
        assert await store.define([*made, Definition("trigger", "s01", "{}", 1, due_at=START)]) == [True] * 21
        assert await store.definitions("schedule") == made
        assert await store.definitions("schedule", limit=3) == made[:3]
        assert await store.definitions("schedule", names=["s07", "s03", "nobody"]) == [made[3], made[7]]
        assert await store.definitions("schedule", names=[]) == []
        due = [definition for definition in reversed(made) if definition.due_at and definition.due_at <= START + 90]
        assert await store.definitions("schedule", due=START + 90) == due
        assert await store.definitions("schedule", due=START + 90, limit=2) == due[:2]
        assert await store.definitions("schedule", names=["s19", "s01", "s00", "s18"], due=START + 90) == due[:2]
        assert await store.definitions("nothing") == []


async def what_waits_becomes_due_by_time_alone(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        later, latest = (Definition("event", f"e{number}", "{}", 1, due_at=START + number) for number in (10, 20))
        assert await store.define([later, latest, Definition("event", "e0", "{}", 1)]) == [True] * 3
        for _ in range(2):  # whoever asks often, and whatever the clock does meanwhile
            assert await store.definitions("event", due=START) == []
            assert await store.definitions("event", due=START + 9) == []
            assert await store.definitions("event", due=START + 10) == [later]
            assert await store.definitions("event", due=START + 30, limit=5) == [later, latest]
        sooner = Definition("event", "e5", "{}", 1, due_at=START + 5)
        assert await other.define([sooner]) == [True]
        assert await store.definitions("event", due=START + 9) == [sooner]
        await other.forget("event", ["e5", "e10"])
        assert await store.definitions("event", due=START + 19) == []
        assert await store.definitions("event", due=START + 20) == [latest]


# the bell


async def a_bell_is_heard_once_by_every_store(make: MakeStore) -> None:
    async with opened(make) as one, opened(make) as two:
        assert not await one.changed(0)
        assert not await two.changed(0.02)
        one.ring()
        assert await two.changed(60)
        assert not await two.changed(0)
        assert await one.changed(0)
        waiting = asyncio.ensure_future(two.changed(60))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        one.ring()
        one.ring()
        assert await waiting
        assert not await two.changed(0)


async def news_ring_the_bell(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        row = await store.create(new_run(), owner=ALICE)
        assert not await other.changed(0), "it has an owner"
        await store.create(new_run(status=Status.queued, wake_at=START), owner=None)
        assert await other.changed(60)
        ready = new_run(status=Status.queued, wake_at=START)
        if await alone(store, ready) is None:
            await store.create(ready, owner=None)
        assert await other.changed(60)
        await store.send(mail_for(row.id, dedup="1"), wake=left)
        assert await other.changed(60)
        await store.send(mail_for(row.id, dedup="1"), wake=left)
        assert not await other.changed(0), "nothing new"
        step = extend(row, Kind.done)
        assert await append(store, step) == [Applied.committed]
        waits = parked(step.row)
        assert await append(store, waits) == [Applied.committed]
        assert not await other.changed(0), "it waits for somebody"
        slept = await store.create(new_run(), owner=ALICE)
        assert await append(store, parked(slept, status=Status.sleeping, wake_at=START)) == [Applied.committed]
        assert await other.changed(60)
        again = amended(waits.row, status=Status.queued, wake_at=START)
        assert await store.amend(again)
        assert await other.changed(60)
        assert not await store.amend(again)
        assert not await other.changed(0), "it did nothing"


async def mail_for_runs_of_this_process_is_handed_over(make: MakeStore) -> None:
    async with opened(make) as store, opened(make) as other:
        await store.add_worker(new_worker(ALICE, lease_until_ms=store.lease_clock_ms() + 60_000))
        mother, child = [await store.create(new_run(), owner=ALICE) for _ in range(2)]
        came: list[Mail] = []
        store.serve(ALICE, came.append)
        await other.changed(0)
        await store.send(mail_for(mother.id, "first"), wake=left)
        end = extend(child, Kind.finished, status=Status.done, release=True)
        told = Outgoing(mail_for(mother.id, kind=MailKind.child, key=child.id), left)
        fenced = dataclasses.replace(end, row=dataclasses.replace(end.row, epoch=9), outgoing=told)
        assert await append(store, fenced) == [Applied.fenced]
        assert await append(store, dataclasses.replace(end, outgoing=told)) == [Applied.committed]
        refused = store.send(mail_for(mother.id, "refused"), wake=_refuse)
        results = await asyncio.gather(
            refused, store.send(mail_for(mother.id, "last"), wake=left), return_exceptions=True
        )
        assert isinstance(results[0], RunFinished)
        await asyncio.sleep(0)
        assert came == await store.mail(mother.id, after=0), "as it is stored, once, in order, and nothing else"
        assert [mail.kind == MailKind.child for mail in came] == [False, True, False]
        assert not await other.changed(0.02), "nobody else has to look"
        await other.send(mail_for(mother.id, "from afar"), wake=left)
        assert await store.changed(60), "what others send is rung for"
        assert await append(store, parked(mother, mail=4)) == [Applied.committed]
        while await store.changed(0):
            pass
        await store.send(mail_for(mother.id, "parked"), wake=woken)
        assert await store.changed(60), "whoever likes may take it up"
        assert len(came) == 3


def _refuse(row: RunRow) -> RunRow | None:
    raise RunFinished("it is over", status=Status.done)


async def closing_ends_the_wait_for_the_bell(make: MakeStore) -> None:
    store = make()
    await store.open()
    waiting = asyncio.ensure_future(store.changed(60))
    await asyncio.sleep(0.01)
    await store.close()
    assert not await asyncio.wait_for(waiting, 60)
    await _refused(store.changed(0), StoreError)


async def a_store_opened_to_read_hears_the_bell(make: MakeStore) -> None:
    async with opened(make) as store, opened(make, read_only=True) as reader:
        store.ring()
        assert await reader.changed(60)
        reader.ring()
        assert await store.changed(0)
        assert not await store.changed(0)


CASES: tuple[Case, ...] = (
    mail_is_numbered_in_the_order_of_acceptance,
    mail_for_nobody_is_refused,
    mail_wakes_a_run_that_nobody_owns,
    refused_mail_changes_nothing_and_takes_no_other_with_it,
    a_known_dedup_id_changes_nothing,
    mail_can_depend_on_what_its_sender_knows,
    a_question_is_stored_once_and_follows_what_is_asked,
    questions_are_listed_oldest_first,
    of_two_answers_one_wins,
    an_answer_is_for_what_was_shown,
    a_definition_is_written_over_the_revision_it_was_made_from,
    definitions_are_written_with_the_first_or_not_at_all,
    definitions_are_found_by_name_and_by_time,
    what_waits_becomes_due_by_time_alone,
    a_bell_is_heard_once_by_every_store,
    news_ring_the_bell,
    mail_for_runs_of_this_process_is_handed_over,
    closing_ends_the_wait_for_the_bell,
    a_store_opened_to_read_hears_the_bell,
)
