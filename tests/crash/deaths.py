"""Which tests die at which crash points. Each file checks its own share; together they are all there are."""

from __future__ import annotations

from typing import Final

#: Died at in `test_waiting_points`: by workers whose runs wait, and by clients.
WAITING: Final = frozenset(
    {
        "park.before",
        "park.after",
        "cancel.accepted",
        "interrupt.before",
        "amend.before_commit",
        "amend.after_commit",
        "question.before_commit",
        "question.after_commit",
        "define.before_commit",
        "define.after_commit",
        "schedule.before_start",
        "schedule.after_start",
        "event.before_delivery",
        "event.after_delivery",
    }
)

#: Died at in tests of their subject; the file names the point.
ELSEWHERE: Final = {
    "migrate.before_commit": "store/test_sqlite_files.py",
    "prune.before_commit": "retention/test_pruning.py",
    "prune.after_commit": "retention/test_pruning.py",
    "copy.after_mark": "retention/test_moving.py",
    "copy.before_commit": "retention/test_moving.py",
    "copy.after_commit": "retention/test_moving.py",
    "copy.before_release": "retention/test_moving.py",
    "copy.after_release": "retention/test_moving.py",
    "event.before_delivery": "worker/test_triggers_events.py",
    "event.after_delivery": "worker/test_triggers_events.py",
    "trigger.after_refusal": "worker/test_triggers_poison.py",
    "land.before_commit": "runs/test_transactions.py",
    "land.after_commit": "runs/test_transactions.py",
}
