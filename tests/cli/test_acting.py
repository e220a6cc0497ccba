"""`pause`, `resume`, `cancel`, `retry`, `send`, `emit`, `interrupt`."""

from __future__ import annotations

import pytest

from tests.cli.commands import Commands
from tests.cli.waiting import park, prepare, script, status, wait_status, worker


@pytest.fixture
def hf(hf: Commands) -> Commands:
    return prepare(hf)


def test_a_parked_run_is_paused_resumed_and_cancelled_without_its_code(hf: Commands) -> None:
    park(hf, "publish", "one")
    ended = hf("pause", "one", "--by", "eva", "--note", "the API is down")
    assert (ended.code, ended.out) == (0, "one\tpaused\tpaused\tpublish\n")
    assert hf("runs").out.split("\t")[1:4:2] == ["paused", "by eva: the API is down · signal approved"]
    assert "was paused already" in hf("pause", "one").out
    (hf.folder / "waiting.py").rename(hf.folder / "away.py")
    ended = hf("resume", "one", "--by", "tom")
    assert ended.code == 0, ended.err
    assert ended.out.split("\t")[2] == "resumed"
    assert status(hf, "one") == "waiting"
    item = hf("cancel", "one", "--json").json["items"][0]
    assert (item["was"], item["status"], item["outcome"]) == ("waiting", "cancelled", "cancelled")
    ended = hf("cancel", "one")
    assert ended.code == 5
    assert "already cancelled" in ended.out
    story = hf("show", "one", "--story").out
    assert "eva" in story
    assert "the API is down" in story
    assert "tom" in story


def test_a_run_that_is_done_says_so(hf: Commands) -> None:
    assert hf("run", "agents.py:echo", "--id", "one").code == 0
    for verb in ("pause", "cancel"):
        ended = hf(verb, "one")
        assert (ended.code, ended.out) == (5, "one\tdone\talready done\techo\n")
    assert hf("resume", "one").out == "hello\n"
    ended = hf("send", "one", "approved", "true")
    assert ended.code == 5
    assert "is done" in ended.err


def test_filters_choose_and_cancel_asks_before_it_ends_many(hf: Commands) -> None:
    for run_id in ("one", "two"):
        park(hf, "publish", run_id)
    park(hf, "sure", "three")
    ended = hf("pause", "--agent", "publish")
    assert sorted(line.split("\t")[0] for line in ended.out.splitlines()) == ["one", "two"]
    assert status(hf, "three") == "waiting"
    ended = hf("resume", "--all")
    assert sorted(line.split("\t")[0] for line in ended.out.splitlines()) == ["one", "two"]
    ended = hf("cancel", "--status", "waiting")
    assert ended.code == 2
    assert "--yes" in ended.err
    assert "3 runs" in ended.err
    assert hf.on_terminal("cancel", "--all", typed="n\n").code == 1
    assert status(hf, "one") == "waiting"
    ended = hf.on_terminal("cancel", "--agent", "publish", typed="y\n")
    assert ended.code == 0
    assert "2 runs: 2 cancelled" in ended.out
    ended = hf("cancel", "--all")
    assert (ended.code, ended.out) == (0, "three\tcancelled\tcancelled\tsure\n"), "one run is not many"
    ended = hf("cancel", "--all")
    assert (ended.code, ended.out) == (0, "")
    assert "No run to cancel" in ended.err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["pause"], "--agent"),
        (["cancel"], "--all"),
        (["resume"], "--status"),
        (["pause", "one", "--all"], "not both"),
        (["resume", "--all", "waiting.py", "one"], "not both"),
        (["resume", "--all", "--app", "waiting.py"], "executed here"),
        (["send", "one", "approved", "unquoted"], "not JSON"),
        (["send", "one", "approved", '"text"'], "true or false"),
        (["send", "one", "nonsense", "1"], "approved"),
        (["interrupt", "one", "hello"], "on_interrupt"),
        (["retry", "one"], "only failed and cancelled"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_says_what_to_do(hf: Commands, arguments: list[str], word: str) -> None:
    park(hf, "publish", "one")
    ended = hf(*arguments)
    assert ended.code == 2, ended.err
    assert word in ended.err
    assert "Traceback" not in ended.err
    assert status(hf, "one") == "waiting"


@pytest.mark.parametrize("command", [["pause"], ["resume"], ["cancel"], ["retry"], ["send"], ["interrupt"]])
def test_an_unknown_run_is_not_found(hf: Commands, command: list[str]) -> None:
    hf("run", "agents.py:echo", "--id", "one")
    rest = {"send": ["approved"], "interrupt": ["hello"]}.get(command[0], [])
    assert hf(*command, "nobody", *rest).code == 3


def test_a_signal_is_sent_once_and_the_run_goes_on_with_it(hf: Commands) -> None:
    park(hf, "publish", "one")
    assert hf("send", "one", "approved", "true", "--dedup", "mail-7").out == "Sent approved to run one.\n"
    ended = hf("send", "one", "approved", "true", "--dedup", "mail-7", "--json")
    assert (ended.code, ended.json["is_new"]) == (0, False)
    other = hf("send", "one", "approved", "false", "--dedup", "mail-7")
    assert (other.code, other.out) == (5, "")
    assert "mail-7" in other.err
    assert hf("resume", "one", "waiting.py").out == "published\n"


def test_a_value_comes_from_stdin_or_from_a_file(hf: Commands) -> None:
    (hf.folder / "no.json").write_text("false")
    for run_id, given, stdin, result in (("one", "-", "true", "published"), ("two", "@no.json", "", "dropped")):
        park(hf, "publish", run_id)
        assert hf("send", run_id, "approved", given, stdin=stdin).code == 0
        assert hf("resume", run_id, "waiting.py").out == f"{result}\n"


def test_an_event_has_an_id_and_a_dedup_id_makes_it_the_first(hf: Commands) -> None:
    hf("run", "agents.py:echo", "--id", "one")
    first = hf("emit", "order.paid", '{"order": 17}', "--dedup", "17")
    assert first.code == 0, first.err
    assert first.out.startswith("e_")
    assert hf("emit", "order.paid", '{"order": 17}', "--dedup", "17").out == first.out
    assert hf("emit", "order.paid", "--json").json["id"] != first.out.strip()


def test_with_a_worker_runs_are_interrupted_paused_resumed_and_cancelled_while_they_execute(hf: Commands) -> None:
    hf("run", "agents.py:echo", "--id", "zero")
    with worker(hf):
        script(hf, "await app.start(talkative('go'), id='one')\nawait app.start(patient('never'), id='two')")
        wait_status(hf, "one", "running")
        ended = hf("interrupt", "one", "hello", "--timeout", "60")
        assert (ended.code, ended.out) == (0, "heard hello\n"), ended.err
        assert hf("interrupt", "one", '"hi"', "--json").json["reply"] == "heard hi"
        assert hf("interrupt", "one", "again", "--no-wait").out == "Sent to run one.\n"
        wait_status(hf, "two", "running")
        ended = hf("pause", "two")
        assert "told to pause; still running" in ended.out, "a call is under way"
        assert hf("resume", "two").out.split("\t")[2] == "goes on"
        ended = hf("cancel", "two", "--by", "eva")
        assert (ended.code, ended.out) == (0, "two\tcancelled\tcancelled\tpatient\n"), ended.err
        (hf.folder / "go").touch()
        wait_status(hf, "one", "done")
        park(hf, "publish", "three")
        assert hf("pause", "three").code == 0
        ended = hf("resume", "three")
        assert "No worker" not in ended.err
        hf("send", "three", "approved", "true")
        wait_status(hf, "three", "done")


def test_where_no_worker_is_alive_resume_says_so(hf: Commands) -> None:
    script(hf, "await app.start(publish(), id='one', paused=True)")
    ended = hf("resume", "one")
    assert ended.code == 0, ended.err
    assert "holdfast worker FILE" in ended.err
    assert status(hf, "one") == "queued"


def test_a_failed_run_is_retried_and_keeps_what_was_done(hf: Commands) -> None:
    assert hf("run", "waiting.py:failing", "--id", "one").code == 1
    (hf.folder / "mended").touch()
    ended = hf("retry", "one")
    assert ended.code == 2
    assert "waiting.py" in ended.err, "the file is named"
    assert hf("retry", "one", "waiting.py", "--note", "mended it").out == "mended\n"
    assert "mended it" in hf("show", "one").out
    assert hf("retry", "one", "waiting.py").code == 2, "it is done"


def test_runs_are_listed_by_queue_with_what_they_wait_for(hf: Commands) -> None:
    park(hf, "publish", "one")
    park(hf, "sure", "two")
    script(hf, "await app.start(publish(), id='three', queue='mail')")
    assert [i["id"] for i in hf("runs", "--queue", "mail", "--json").json["items"]] == ["three"]
    now = {line.split("\t")[0]: line.split("\t")[3] for line in hf("runs").out.splitlines()}
    assert now["one"] == "signal approved"
    assert now["two"] == "asks: Sure?"
    shown = hf.on_terminal("runs").out
    assert "1 needs you (holdfast questions)" in shown
    assert "asks: Sure?" in hf.on_terminal("show", "two").out


TWO = """
import asyncio
import os

import holdfast as hf

@hf.effect(settle=0)
async def mail(to: str) -> str:
    begun.append(to)
    while len(begun) < 2:
        await asyncio.sleep(0.001)
    os.kill(os.getpid(), 9)

begun = []

@hf.agent
async def both() -> list[str]:
    return list(await asyncio.gather(mail("ada"), mail("bo")))
"""


def test_of_two_calls_in_doubt_each_is_settled_though_the_first_has_woken_the_run(hf: Commands) -> None:
    (hf.folder / "two.py").write_text(TWO)
    assert hf("run", "two.py", "--id", "r").code == -9
    assert hf("resume", "r", "two.py").code == 8
    keys = [each["key"] for each in hf("in-doubt", "r", "--json").json["items"]]
    assert len(keys) == 2
    for key in keys:
        ended = hf("resolve", "r", key, "--happened", f'"sent {key[-1]}"', "--yes")
        assert ended.code == 0, ended.err
    ended = hf("resolve", "r", keys[0], "--happened", '"again"', "--yes")
    assert "somebody settled" in ended.err
    assert hf("resume", "r", "two.py").code == 0
