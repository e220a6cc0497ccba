"""Tests for agents: kill them everywhere, and see that they come to the same end; have weeks pass in a moment.

`assert_survives` runs an agent, kills it with SIGKILL at every crash point it passes, resumes it, and compares.
`Ledger` is the second opinion on what really happened. `check_history` looks for broken promises in a whole store; the
pytest plugin `holdfast.testing.fixtures` does that after every test.

These are synchronous: they are called by tests, and the agents run in processes of their own. `Clock` moves the time of
an app in the test's own process.
"""

from holdfast.testing.clock import Clock
from holdfast.testing.invariants import check_history
from holdfast.testing.ledger import Ledger, LedgerLine
from holdfast.testing.settling import resolve
from holdfast.testing.survival import Life, Survival, assert_survives

__all__ = ["Clock", "Ledger", "LedgerLine", "Life", "Survival", "assert_survives", "check_history", "resolve"]
