"""The public surface: adding or removing a name is a decision that shows here."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from pathlib import Path

import holdfast

NAMES = """
    Agent AlreadyDecided AlreadySettled AmbiguousId Approval Artifact Asked Budget Call CarriedLocal CheckpointInfo
    ConflictingSend ConflictingStart CorruptJournal DamagedFile Declined Duration Effect EffectInDoubt EffectUndone
    FileChange FileEvent Holdfast HoldfastError InDoubt MainLine NatsMessage NatsQueue NeedsHuman NestedCall NotInRun
    Partial Plan PlanItem PruneResult Question QuestionChanged QuestionState QueueInfo Receipt ResultNotStored
    RetentionInfo Retry RetryLater Run RunBlocked RunCancelled RunError RunFailed RunFinished RunInfo RunMoved
    RunNotFound RunPruned Saga ScheduleInfo Secret Settings Signal StateChange Status Step StepError Stop StoreError
    StreamEvent StreamWriter Thread TriggerInfo Undecodable Unserialisable UsageError Verdict WorkerInfo
    Workspace agent artifact arun ask connect effect emit get guard guards landed logger not_landed now patched
    plan progress race receive redact reducer resume rng run saga sleep start step stream this_run this_step
    thread timeout transaction turns usage uuid4 workspace
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


#: What users may use of what they hold; anything else that Holdfast needs of it has an underscore.
HELD = {
    "Agent": "budget coder fn name on_interrupt queue signals version",
    "Call": "agent args close input kwargs send throw",
    "Effect": "undo verify with_options",
    "Holdfast": "backfill_schedule cancel_all emit extension find fire_schedule get in_doubt lifespan on pause_all "
    "pause_queue "
    "pause_schedule pause_trigger prune question questions queue queues refused_starts remove_schedule remove_trigger "
    "resume resume_all resume_queue resume_schedule resume_trigger retain retention runs schedule schedules start "
    "thread triggers url work workers",
    "Retry": "attempts factor first jitter most",
    "Run": "artifacts cancel checkpoints diff fork fork_plan history id in_doubt info interrupt pause question "
    "questions receipts result resume retry send state states status stream thread_id token verify_journal "
    "watch",
    "Step": "with_options",
}


@holdfast.agent
async def some_agent() -> None: ...


@holdfast.step
async def some_step() -> None: ...


@holdfast.effect
async def some_effect() -> None: ...


def test_what_users_hold_has_these_names(tmp_path: Path) -> None:
    async def held() -> dict[str, object]:
        async with holdfast.connect(tmp_path / "names.db") as app:
            call = some_agent()
            run = app.get("r")
            things = [some_agent, call, app, run, holdfast.Retry()]
            names = {type(thing).__name__: dir(thing) for thing in things}
            functions = {"Step": dir(some_step), "Effect": dir(some_effect)}
        return {
            kind: " ".join(sorted(name for name in found if not name.startswith("_")))
            for kind, found in (names | functions).items()
        }

    assert asyncio.run(held()) == {kind: " ".join(names.split()) for kind, names in HELD.items()}


#: What takes long to load, and is needed by whoever connects, if at all.
HEAVY = """
    _hashlib apsw asyncpg click cryptography ctypes decimal fastapi fractions nats pathlib platform pydantic
    pydantic_core random rich sqlite3 typing_extensions urllib.parse uuid uvicorn watchfiles zoneinfo
    holdfast.app.app holdfast.cli holdfast.codec.models holdfast.codec.schema holdfast.handle.run
    holdfast.history holdfast.journal.journal holdfast.running.context holdfast.server holdfast.store holdfast.testing
    holdfast.worker
""".split()
#: What executes runs, and the model: effects need them to be declared, agents and steps do not.
EXECUTION = """
    holdfast.journal holdfast.model holdfast.running.call holdfast.verbs.child holdfast.verbs.start
    holdfast.verbs.step_calls
""".split()

PROGRAM = """
import holdfast as hf

@hf.step(retries=hf.Retry(2))
async def double(n: int) -> int:
    return 2 * n

@hf.agent
async def main(name: str, n: int) -> str:
    return name + str(await double(n))

@hf.effect
async def send(text: str) -> str:
    return text
"""


def loaded_by(code: str, modules: list[str] = HEAVY) -> list[str]:
    """Those of the heavy modules that a process has loaded then, and had not before."""
    code = (
        f"import sys; before = set(sys.modules)\n{code}\nprint(*sorted(set({modules!r}) & set(sys.modules) - before))"
    )
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()


def test_importing_the_package_stays_light() -> None:
    assert loaded_by("import holdfast") == []


def test_a_program_that_only_declares_its_agents_stays_light() -> None:
    assert loaded_by(PROGRAM) == []
    assert loaded_by(PROGRAM.partition("@hf.effect")[0], EXECUTION) == []


def test_whoever_connects_has_what_executes_runs() -> None:
    """Nothing is loaded in the middle of a run: the files may be those of another version by then."""
    assert loaded_by(f"{PROGRAM}\nhf.connect", EXECUTION) == sorted(EXECUTION)


def test_names_that_are_loaded_later_are_those_of_their_modules() -> None:
    code = (
        "import holdfast as hf\n"
        "missing = [name for name in hf.__all__ if name not in dir(hf)]\n"
        "later = [name for name in hf.__all__ if name not in vars(hf)]\n"
        "from holdfast import *\n"
        "wrong = [name for name in later if globals()[name] is not getattr(hf, name) or name not in vars(hf)]\n"
        "print(missing, wrong, {'agent', 'step', 'HoldfastError'} & set(later), 'connect' in later)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[] [] set() True"


def test_no_public_name_is_that_of_a_module_which_would_take_its_place() -> None:
    folder = Path(holdfast.__file__).parent
    modules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert modules & set(NAMES) == set()
