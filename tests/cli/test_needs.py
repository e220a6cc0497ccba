"""Commands that execute a run which needs somebody: what they say, whether they stay."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.cli.commands import Commands
from tests.eventually import eventually_now

AGENTS = """
import asyncio

import holdfast as hf

go = hf.Signal("go", bool)


@hf.agent
async def refund(who: str, seconds: float | None = None) -> str:
    return "paid" if await hf.ask(f"Pay {who}?", timeout=seconds) else "refused"


@hf.agent
async def patient(seconds: float) -> str:
    return f"got {await hf.receive(go, timeout=seconds)}"


@hf.agent(timeout=7200)
async def limited() -> str:
    return str(await hf.ask("Sure"))


@hf.agent
async def family() -> str:
    return f"the child: {await refund('eva', 3600)}"


@hf.agent
async def both(seconds: float) -> str:
    answers = await asyncio.gather(hf.ask("First?"), hf.ask("Second?"), hf.sleep(seconds))
    return str(answers[:2])


@hf.agent
async def late() -> str:
    if not await hf.ask("Again?", timeout=3600):
        raise ValueError("no")
    return "yes"


@hf.effect
async def pay() -> int:
    raise ConnectionError("no route")


@hf.agent
async def payer() -> int:
    return await pay()
"""

ASKS = "Run one asks: Pay ada? Answer with `holdfast answer q_ID`.\n"
LATER = "Nothing else is due before TIME. With --wait, this command waits. To go on after that: holdfast resume one"


@pytest.fixture(autouse=True)
def agents(hf: Commands) -> None:
    (hf.folder / "needs.py").write_text(AGENTS)


def told(text: str) -> str:
    """What a person reads, without what differs from time to time."""
    lines = [line.rpartition("\r\x1b[K")[2] for line in text.split("\n")]
    text = "\n".join(lines)
    for pattern, instead in (
        (r"\(thread \w+\)", "(thread)"),
        (r"\bq_[0-9a-f]+", "q_ID"),
        (r"\bone\.[0-9a-f]+", "one.CHILD"),
        (r"(before|until) [^()\n]* \(in [^)]*\)", r"\1 TIME"),
    ):
        text = re.sub(pattern, instead, text)
    return text.removeprefix("Run one  (thread)\n")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (["refund", "ada", "3600"], ASKS + f"{LATER} needs.py:refund\n"),
        (
            ["refund", "ada"],
            ASKS + "With --wait, this command waits. To go on after that: holdfast resume one needs.py:refund\n",
        ),
        (
            ["patient", "90"],
            "Run one waits for signal 'go'; send it with `holdfast send one go JSON`.\n"
            + f"{LATER} needs.py:patient\n",
        ),
        (["limited"], f"Run one asks: Sure. Answer with `holdfast answer q_ID`.\n{LATER} needs.py:limited\n"),
        (
            ["family"],
            "Run one waits for run one.CHILD, which asks: Pay eva? Answer with `holdfast answer q_ID`.\n"
            f"{LATER} needs.py:family\n",
        ),
        (
            ["both", "3600"],
            "Run one asks: First? Answer with `holdfast answer q_ID`.\n"
            "Run one asks: Second? Answer with `holdfast answer q_ID`.\n"
            f"{LATER} needs.py:both\n",
        ),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_a_run_that_needs_somebody_says_what_and_is_left(hf: Commands, call: list[str], says: str) -> None:
    ended = hf("run", f"needs.py:{call[0]}", *call[1:], "--id", "one")
    assert (ended.code, ended.out, told(ended.err)) == (7, "", says)
    again = hf("resume", "one", f"needs.py:{call[0]}")
    assert (again.code, again.out, told(again.err)) == (7, "", says)
    shown = hf.on_terminal("resume", "one", f"needs.py:{call[0]}", columns=500)
    assert (shown.code, told(shown.out)) == (7, says)


def test_whoever_retries_is_told_too(hf: Commands) -> None:
    assert hf("run", "needs.py:late", "--id", "one").code == 7
    assert hf("answer", "one", "no").code == 0
    assert hf("resume", "one", "needs.py").code == 1
    retried = hf("retry", "one", "needs.py")
    assert retried.code == 1, "what was answered is kept"
    (hf.folder / "needs.py").write_text(AGENTS.replace('raise ValueError("no")', 'await hf.ask("Really?", timeout=90)'))
    ended = hf("retry", "one", "needs.py")
    assert (ended.code, told(ended.err)) == (
        7,
        f"Run one asks: Really? Answer with `holdfast answer q_ID`.\n{LATER} needs.py\n",
    )


def test_json_has_the_command(hf: Commands) -> None:
    ended = hf("run", "needs.py:refund", "ada", "3600", "--id", "one", "--json")
    assert ended.code == 7
    error = ended.json["error"]
    assert (error["type"], told(error["message"]), told(error["command"])) == (
        "NeedsHuman",
        ASKS.strip(),
        "holdfast answer q_ID",
    )


def until_waiting(process: subprocess.Popen[str]) -> str:
    """What a command says until it says that it waits."""
    return until(process, "Waiting for it")


def until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stderr is not None
    said = ""
    while words not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return told(said)


@pytest.mark.parametrize(
    ("arguments", "until"),
    [(["ada", "50"], " until TIME"), (["ada", "3600", "--wait"], " until TIME"), (["ada", "--wait"], "")],
    ids=["something is due soon", "--wait with a deadline", "--wait without one"],
)
def test_a_command_that_stays_says_so_and_goes_on_with_the_answer(
    hf: Commands, arguments: list[str], until: str
) -> None:
    process = hf.start("run", "needs.py:refund", *arguments, "--id", "one")
    assert until_waiting(process) == f"{ASKS}Waiting for it{until}; Ctrl-C leaves the run safe.\n"
    assert hf("answer", "one", "yes").code == 0
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "paid\n", "")


def test_a_long_sleep_is_told_once_with_its_end(hf: Commands) -> None:
    (hf.folder / "nap.py").write_text(
        "import holdfast as hf\n\n\n@hf.agent\nasync def nap() -> None:\n    await hf.sleep(days=1)\n"
    )
    process = hf.start("run", "nap.py", "--id", "one")
    said = until(process, "sleeps")
    assert said.splitlines()[-1].startswith("It sleeps until ")
    assert said.endswith("; Ctrl-C leaves the run safe.\n")
    process.terminate()
    assert "sleeps" not in process.communicate(timeout=60)[1]


def test_each_need_is_told_once_and_a_verdict_can_be_waited_for(hf: Commands) -> None:
    process = hf.start("run", "needs.py:payer", "--id", "one", "--wait")
    assert "Run one is in doubt about pay#1" in until_waiting(process)
    assert hf("resolve", "one", "--happened", "7", "--yes").code == 0
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "7\n", "")


def test_a_terminal_shows_the_question_above_the_line_of_progress(hf: Commands) -> None:
    process = hf.start("run", "needs.py:both", "50", "--id", "one")
    first = until_waiting(process)
    assert first.count("asks:") == 2
    process.terminate()
    process.communicate(timeout=60)
    eventually_now(lambda: hf("show", "one", "--json").json["run"]["status"] in ("waiting", "queued"))
    shown = hf.on_terminal("resume", "one", "needs.py", "--timeout", "2")
    said = told(shown.out)
    assert shown.code == 124
    assert said.count("Run one asks: First? Answer with") == 1
    assert "Waiting for it until TIME; Ctrl-C leaves the run safe.\n" in said


def test_a_script_is_told_the_same(hf: Commands) -> None:
    script = "import holdfast as hf\nfrom needs import refund\n"
    ended = hf.execute(f"{script}hf.run(refund('ada', 3600), id='one')\n")
    assert ended.code == 1
    assert told(ended.err).endswith(f"holdfast.errors.NeedsHuman: {ASKS}")
    ended = hf.execute(f"{script}hf.run(refund('eva', 2), id='two')\n")
    assert told(ended.err).startswith("Run two asks: Pay eva? Answer with `holdfast answer q_ID`.\n"), ended.err
