"""The public surface: adding or removing a name is a decision that shows here."""

from __future__ import annotations

import inspect
import subprocess
import sys

import holdfast

NAMES = """
    Agent AlreadyDecided AlreadySettled AmbiguousId Approval Asked Call ConflictingSend ConflictingStart
    CorruptJournal Declined Duration Effect EffectInDoubt EffectUndone FileChange FileEvent Holdfast HoldfastError
    InDoubt LeaseLost MainLine
    NatsMessage NatsQueue NeedsHuman NestedCall NotInRun PruneResult Question QuestionChanged QuestionState QueueInfo
    Receipt ReplayMismatch ResultNotStored RetentionInfo Retry RetryLater Run RunBlocked RunCancelled RunError
    RunFailed RunFinished RunInfo RunMoved RunNotFound RunPruned Saga ScheduleInfo Settings Signal Status Step
    StepError Stop StoreError TriggerInfo Undecodable Unserialisable UsageError Verdict WorkerInfo agent ask connect
    effect emit get landed not_landed now patched progress race receive reducer resume rng run saga sleep start step
    this_run this_step timeout transaction usage uuid4
""".split()

#: A union of types has no docstring of its own.
ALIASES = {"Duration"}


def own_docstring(name: str) -> str:
    thing = getattr(holdfast, name)
    if inspect.isclass(thing):
        text = vars(thing).get("__doc__") or ""
        return "" if text.startswith(f"{thing.__name__}(") else text  # what a dataclass makes up restates the signature
    return inspect.getdoc(thing) or ""


def test_the_public_names_are_these() -> None:
    assert list(holdfast.__all__) == NAMES
    assert sorted(NAMES) == NAMES


def test_every_public_name_exists() -> None:
    assert [name for name in NAMES if not hasattr(holdfast, name)] == []


def test_every_public_name_says_in_a_sentence_what_it_is() -> None:
    documented = [name for name in NAMES if name not in ALIASES]
    first_lines = {name: own_docstring(name).strip().partition("\n")[0] for name in documented}
    assert {name: line for name, line in first_lines.items() if not line.endswith((".", ":"))} == {}


def test_importing_the_package_stays_light() -> None:
    heavy = "apsw asyncpg click cryptography fastapi holdfast.cli holdfast.server holdfast.testing rich uvicorn".split()
    code = f"import sys, holdfast; print(*sorted(set({heavy!r}) & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert loaded == []
