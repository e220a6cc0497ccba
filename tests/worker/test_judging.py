"""What becomes of a run that is to be taken up, decided from its row and its records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.errors import RunMoved, RunPruned, UsageError
from holdfast.model import FINAL, Kind, Record, RunRow, Status, WorkerId
from holdfast.model.diagnoses import Cause
from holdfast.model.reasons import HandedOver, Moving, Pruned, Was
from holdfast.testing.samples import extend, new_run
from holdfast.worker.judging import NOBODY, Judgement, Request, judge

ACT = Request(act=("ann", "go on"))
RETRY = Request(reopen=("ann", "mended"))
LIMIT = 5


def run(*kinds: Kind, **changes: Any) -> tuple[RunRow, list[Record]]:
    """A run with records of these kinds after its first one."""
    begun = new_run("r")
    added = extend(begun.row, *kinds, **changes)
    return added.row, [*begun.records, *added.records]


def judged(
    found: tuple[RunRow, list[Record]], asked: Request = NOBODY, *, agents: tuple[str, ...] = ("agent",)
) -> Judgement | None:
    return judge(*found, agents=agents, asked=asked, crash_limit=LIMIT)


@pytest.mark.parametrize("asked", [NOBODY, ACT])
def test_one_that_is_queued_is_begun(asked: Request) -> None:
    assert judged(run(status=Status.queued), asked) == Judgement(None, None, is_woken=False)


@pytest.mark.parametrize("asked", [NOBODY, ACT])
@pytest.mark.parametrize("status", sorted(FINAL))
def test_one_that_has_ended_is_left_alone(status: Status, asked: Request) -> None:
    assert judged(run(Kind.finished, status=status), asked) is None


def test_a_retry_opens_what_failed_or_was_cancelled_and_not_what_is_done() -> None:
    for status in (Status.failed, Status.cancelled):
        assert judged(run(Kind.finished, status=status), RETRY) == Judgement(RETRY.reopen, None, is_woken=False)
    assert judged(run(Kind.finished, status=Status.done), RETRY) is None


@pytest.mark.parametrize("asked", [NOBODY, ACT, RETRY])
def test_one_in_quarantine_stays_there(asked: Request) -> None:
    assert judged(run(status=Status.quarantined), asked) is None


def test_a_retry_that_was_cut_off_before_its_first_record_is_a_retry_still() -> None:
    cut_off = run(Kind.finished, status=Status.queued)
    unknown = judged(cut_off)
    assert unknown is not None
    assert unknown.reopen == ("unknown", "a retry that was cut off")
    assert judged(cut_off, RETRY) == Judgement(RETRY.reopen, None, is_woken=False)
    reopened = judged(run(Kind.finished, Kind.reopened, status=Status.queued), RETRY)
    assert reopened is not None
    assert reopened.reopen is None


def test_one_whose_wait_is_over_is_woken_and_one_that_was_cut_off_or_handed_over_is_not() -> None:
    def is_woken(**changes: Any) -> bool:
        judgement = judged(run(Kind.started, status=Status.queued, **changes))
        return judgement is not None and judgement.is_woken

    assert is_woken()
    assert not is_woken(owner=WorkerId("w_dead"))
    assert not is_woken(reason=HandedOver())
    assert judged(run(status=Status.queued)) == Judgement(None, None, is_woken=False), "it has not begun"


def test_one_whose_processes_keep_dying_is_blocked() -> None:
    def refusal(claims: int, owner: WorkerId | None) -> Any:
        judgement = judged(run(Kind.done, claims=claims, owner=owner))
        return None if judgement is None else judgement.refusal

    dead = WorkerId("w_dead")
    assert refusal(LIMIT - 1, dead) is None
    assert refusal(LIMIT, None) is None, "its last owner gave it back"
    reason = refusal(LIMIT, dead)
    assert reason.found.cause is Cause.crash_loop
    assert "search#2" in reason.found.detail, "the last call recorded"


def test_one_that_lives_elsewhere_or_was_pruned_is_refused() -> None:
    moving = run(status=Status.blocked, reason=Moving("other.db", 0, Was(Status.queued, None, None, 0), 0))
    with pytest.raises(RunMoved):
        judged(moving, ACT)
    pruned = run(status=Status.failed, reason=Pruned(0))
    with pytest.raises(RunPruned):
        judged(pruned, RETRY)
    assert judged(pruned, ACT) is None


def test_one_that_took_back_what_it_did_is_not_opened_again() -> None:
    row, records = run(Kind.intent, Kind.done, Kind.finished, status=Status.failed)
    records[2] = records[2]._replace(key=records[1].key, name="search.undo")
    with pytest.raises(UsageError, match=r"took back what it had done \(search#2\)"):
        judged((row, records), RETRY)


def test_whoever_asks_for_an_agent_that_is_not_known_hears_where_its_code_is() -> None:
    row, records = run(Kind.claimed, status=Status.queued)
    records[1] = records[1]._replace(payload=json.dumps({"source": "shop.py:agent"}))
    with pytest.raises(UsageError, match="which this process does not know"):
        judged((row, records), ACT, agents=("other",))
