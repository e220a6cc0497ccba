"""Digests notice a change of anything that they cover."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast.errors import CorruptJournal
from holdfast.journal.chain import row_digest, seal_row
from holdfast.journal.integrity import check_question, check_row, seal_question
from holdfast.model import QuestionState, RunId
from holdfast.testing.samples import START, new_run, question_of


@pytest.mark.parametrize("change", [{"queue": "other"}, {"queue_key": "k"}, {"priority": 1}, {"wake_at": START}])
def test_a_row_that_was_changed_is_noticed(change: dict[str, object]) -> None:
    row = seal_row(new_run().row)
    check_row(row)
    changed = dataclasses.replace(row, **change)  # type: ignore[arg-type]
    assert row_digest(changed) != row.digest
    with pytest.raises(CorruptJournal, match=row.id):
        check_row(changed)


def test_what_others_write_into_a_row_is_outside_its_digest() -> None:
    row = seal_row(new_run().row)
    check_row(dataclasses.replace(row, mail=5, claims=3, owner=None))


@pytest.mark.parametrize(
    "change",
    [
        {"id": "q_other"},
        {"run_id": RunId("r_other")},
        {"key": "ask#2"},
        {"body": "{}"},
        {"shown": "shown 2"},
        {"asked_at": START + 1},
        {"due_at": START},
        {"key": "ask#", "body": '1{"prompt":"Go?"}'},
    ],
)
def test_a_question_that_was_changed_is_noticed(change: dict[str, object]) -> None:
    question = seal_question(question_of(RunId("r_1")))
    check_question(question)
    with pytest.raises(CorruptJournal, match="was changed"):
        check_question(dataclasses.replace(question, **change))  # type: ignore[arg-type]


def test_a_decided_question_still_fits_its_digest() -> None:
    question = seal_question(question_of(RunId("r_1")))
    check_question(
        dataclasses.replace(question, state=QuestionState.answered, decided_at=START, decided_by="ann", note="ok")
    )
