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
    "files.before_commit": "files/test_killed.py",
    "files.after_commit": "files/test_killed.py",
    "artifact.after_data": "files/test_killed.py",
    "workspace.before_body": "files/test_killed.py",
    "workspace.after_data": "files/test_killed.py",
    "prune.before_commit": "retention/test_pruning.py",
    "prune.after_commit": "retention/test_pruning.py",
    "fork.before_messages": "forks/test_threads.py",
    "fork.before_commit": "forks/test_forks.py",
    "fork.after_commit": "forks/test_forks.py",
    "upload.after_data": "server/test_uploads.py",
    "copy.after_mark": "retention/test_moving.py",
    "copy.before_commit": "retention/test_moving.py",
    "copy.after_commit": "retention/test_moving.py",
    "copy.before_release": "retention/test_moving.py",
    "copy.after_release": "retention/test_moving.py",
    "event.before_delivery": "worker/test_triggers_events.py",
    "event.after_delivery": "worker/test_triggers_events.py",
    "trigger.after_refusal": "worker/test_triggers_poison.py",
    "turn.before": "turns/test_killed_loops.py",
    "turn.after": "turns/test_killed_loops.py",
    "land.before_commit": "runs/test_transactions.py",
    "land.after_commit": "runs/test_transactions.py",
    "say.before_commit": "threads/test_killed_speakers.py",
    "say.after_commit": "threads/test_killed_speakers.py",
    "stream.before_append": "streams/test_killed_writers.py",
    "stream.before_reset": "streams/test_killed_writers.py",
    "budget.raised": "limits/test_budgets.py",
    "guard.taken": "limits/test_guards.py",
    "guard.looked": "limits/test_guards.py",
    "plan.before_record": "limits/test_plans.py",
    "plan.after_record": "limits/test_plans.py",
}
