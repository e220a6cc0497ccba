"""`runs`, `show`, `in-doubt`, `resolve`, `verify`, `doctor`, and what all commands share."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast.cli import COMMANDS, LazyGroup, cli
from tests.cli.commands import BLOCKED, Commands


def start_two(hf: Commands) -> None:
    hf("run", "agents.py:research", "tides", "--id", "first-1", "--thread", "t1")
    hf("run", "agents.py:echo", "--id", "second-2", "--thread", "t2")


def test_runs_are_lines_when_piped_a_table_on_a_terminal_and_json_when_asked(hf: Commands) -> None:
    start_two(hf)
    lines = [line.split("\t") for line in hf("runs").out.splitlines()]
    assert [line[:3] for line in lines] == [["second-2", "done", "echo"], ["first-1", "done", "research"]]
    shown = hf.on_terminal("runs", columns=80).out
    assert "STATUS" in shown
    assert "✔ done" in shown
    assert "2 runs" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
    items = hf("runs", "--json").json["items"]
    assert [item["id"] for item in items] == ["second-2", "first-1"]
    assert items[1]["cost"] == pytest.approx(0.02)
    assert hf("--json", "runs").json["items"] == items


def test_runs_are_filtered_and_paged(hf: Commands) -> None:
    start_two(hf)
    assert [i["id"] for i in hf("runs", "--agent", "echo", "--json").json["items"]] == ["second-2"]
    assert [i["id"] for i in hf("runs", "--thread", "t1", "--json").json["items"]] == ["first-1"]
    assert hf("runs", "--status", "failed", "--status", "blocked", "--json").json["items"] == []
    assert len(hf("runs", "--status", "done", "--since", "1d", "--json").json["items"]) == 2
    page = hf("runs", "--limit", "1", "--json").json
    assert page["next"] == "second-2"
    page = hf("runs", "--limit", "1", "--cursor", page["next"], "--json").json
    assert [i["id"] for i in page["items"]] == ["first-1"]
    assert page["next"] is None


def test_runs_are_found_by_their_tags(hf: Commands) -> None:
    async def tag() -> None:
        async with holdfast.connect(hf.folder / ".holdfast" / "holdfast.db") as app:
            for number in range(3):
                await app.start(waits(), id=f"r{number}", tags={"customer": str(number % 2), "where": "a=b c"})

    @holdfast.agent
    async def waits() -> None: ...

    asyncio.run(tag())
    assert [i["id"] for i in hf("runs", "--tag", "customer=0", "--json").json["items"]] == ["r2", "r0"]
    assert [i["tags"] for i in hf("runs", "--tag", "customer=1", "--tag", "where=a=b c", "--json").json["items"]] == [
        {"customer": "1", "where": "a=b c"}
    ]
    assert hf("runs", "--tag", "customer=2").out == ""
    ended = hf("runs", "--tag", "customer")
    assert ended.code == 2
    assert "a tag is NAME=VALUE; got 'customer'" in ended.err


def test_colours_are_for_terminals_that_want_them(hf: Commands) -> None:
    start_two(hf)
    assert "\x1b[3" in hf.on_terminal("runs", NO_COLOR="").out
    assert "\x1b[3" not in hf.on_terminal("runs", "--no-color", NO_COLOR="").out
    assert "\x1b[3" not in hf.on_terminal("runs", NO_COLOR="1").out


def test_a_run_is_named_by_prefix_token_or_last(hf: Commands) -> None:
    start_two(hf)
    for given in ("first-1", "fir", "first-1@t1", "fir@t1"):
        assert hf("show", given, "--json").json["run"]["id"] == "first-1"
    assert hf("show", "@last", "--json").json["run"]["id"] == "second-2"


def test_show_tells_the_outage_the_doubt_and_the_receipt(hf: Commands) -> None:
    hf.leave_in_doubt("one")
    shown = hf.on_terminal("show", "one").out
    assert "◈ in doubt: publish#1 (crash)" in shown
    assert "✔ verified" in shown
    assert "process" in shown
    assert "resumed" in shown
    saved = r"saved (\S+ · )?240 tokens · \$0\.02"  # and the time that the calls took, where that is worth telling
    assert re.search(rf"resume 1: 2 calls from the journal, 0 executed, {saved}", shown)
    assert "holdfast resolve one 'publish#1'" in shown
    assert max(len(line) for line in shown.splitlines()) <= 100
    found = hf("show", "one", "--json").json
    assert [i["kind"] for i in found["timeline"]] == ["started", "step", "step", "effect", "outage"]
    assert found["in_doubt"][0]["key"] == "publish#1"
    assert found["receipts"][0]["replayed"] == 2
    assert found["verification"]["is_ok"] is True
    lines = [line.split("\t") for line in hf("show", "one").out.splitlines()]
    assert [line[1:4] for line in lines][1:4] == [
        ["think#1", "step", "done"],
        ["think#2", "step", "done"],
        ["publish#1", "effect", "in doubt"],
    ]


def test_show_tells_of_processes_that_died_before_they_recorded_anything(hf: Commands) -> None:
    def run(fault: str = "") -> int:
        return hf("run", "agents.py:research", "tides", "--id", "one", HOLDFAST_FAULT=fault).code

    assert run("step.after_body:kill@1") == -9
    assert [run("claim.after_commit:kill@1") for _ in range(2)] == [-9, -9]
    assert run() == 0
    told = "2 processes died before recording anything"
    found = hf("show", "one", "--json").json
    assert [receipt["unrecorded"] for receipt in found["receipts"]] == [2]
    assert [item["detail"].endswith(f", {told}") for item in found["timeline"] if item["kind"] == "outage"] == [True]
    assert f"↺ resume 1: 0 calls from the journal, 3 executed, {told}\n" in hf.on_terminal("show", "one").out
    assert f"it went on. In between, {told}. It took 0 results from the journal" in hf("show", "one", "--story").out


def test_show_tells_how_a_doubt_was_settled_also_as_a_story_and_as_records(hf: Commands) -> None:
    hf.leave_in_doubt("one")
    hf("resolve", "one", "publish#1", "--happened", "5", "--by", "eva", "--note", "seen in the log", "--yes")
    assert hf("resume", "one", "agents.py").json["pr"] == 5
    assert "in doubt (crash) → it happened, says eva: seen in the log" in hf("show", "one").out
    assert "◈→✔" in hf.on_terminal("show", "one").out
    story = hf("show", "one", "--story").out
    assert "Its process was lost" in story
    assert "says eva" in story
    records = hf("show", "one", "--journal", "--json").json["records"]
    assert [r["seq"] for r in records] == list(range(1, len(records) + 1))
    assert len(hf("show", "one", "--journal").out.splitlines()) == len(records)


def test_control_characters_of_a_run_never_reach_the_terminal(hf: Commands) -> None:
    evil = "\x1b]0;owned\x07\x9b31m\u202egnp.exe\x00".replace("\x00", "")
    hf("run", "agents.py:echo", evil, "--id", "one")
    hf("run", "agents.py:failing", "--id", "two")
    outputs = [hf("run", "agents.py:echo", evil).out]
    for arguments in (
        ["show", "one"],
        ["show", "two"],
        ["show", "two", "--story"],
        ["show", "one", "--journal"],
        ["runs"],
    ):
        outputs += [hf(*arguments).out, hf(*arguments, "--json").out]
        outputs.append(hf.on_terminal(*arguments).out)
    for out in outputs:
        assert not set("\x1b\x07\x9b\u202e") & set(out), out


def test_in_doubt_lists_what_a_person_must_settle(hf: Commands) -> None:
    hf.leave_in_doubt("one")
    ended = hf("in-doubt")
    assert ended.out.split("\t")[:4] == ["one", "publish#1", "publish", "1"]
    item = hf("in-doubt", "one", "--json").json["items"][0]
    assert (item["run"], item["key"], item["cause"]) == ("one", "publish#1", "crash")
    assert item["args"] == {"text": "tides"}
    assert item["idempotency_key"]
    assert "settle     holdfast resolve one 'publish#1'" in hf.on_terminal("in-doubt").out


def test_what_did_not_happen_is_done_once_when_the_run_goes_on(hf: Commands) -> None:
    hf.leave_in_doubt("one")
    ended = hf("resolve", "one", "--not-happened", "--yes", "--json")
    assert ended.json["verdict"] == "not_landed"
    assert hf("in-doubt").out == ""
    assert hf("resume", "one", "agents.py").json["pr"] == 91
    assert hf.world() == ["tides", "tides"]
    assert hf("resolve", "one", "publish#1", "--not-happened", "--yes").code == 5


def test_a_doubt_can_be_settled_as_a_failure(hf: Commands) -> None:
    hf.leave_in_doubt("one")
    assert hf("resolve", "one", "--fail", "the API lost it", "--yes").code == 0
    ended = hf("resume", "one", "agents.py")
    assert ended.code == 1
    assert "the API lost it" in ended.err


def test_resolve_asks_on_a_terminal_and_refuses_where_nobody_can_be_asked(hf: Commands) -> None:
    hf.leave_in_doubt("one")
    ended = hf("resolve", "one", "--not-happened")
    assert ended.code == 2
    assert "--yes" in ended.err
    assert hf.on_terminal("resolve", "one", "--not-happened", typed="n\n").code == 1
    assert hf("in-doubt").out != ""
    assert hf.on_terminal("resolve", "one", "--not-happened", typed="y\n").code == 0
    assert hf("in-doubt").out == ""


@pytest.mark.corrupts
def test_verify_finds_a_forged_record_and_nothing_runs_on_it(hf: Commands) -> None:
    start_two(hf)
    ended = hf("verify")
    assert ended.code == 0
    assert [line.split("\t")[1] for line in ended.out.splitlines()] == ["ok", "ok"]
    hf.damage("first-1")
    ended = hf("verify", "--all", "--json")
    assert ended.code == 6
    broken = [item for item in ended.json["items"] if not item["is_ok"]]
    assert [(item["run_id"], item["seq"]) for item in broken] == [("first-1", 4)]
    assert hf("verify", "second-2").code == 0
    assert hf("verify", "first-1").code == 6
    assert "✖ first-1 seq 4" in hf.on_terminal("verify").out
    assert hf("show", "first-1").code == 6
    assert "Traceback" not in hf("show", "first-1").err


@pytest.mark.corrupts
def test_a_damaged_run_is_not_resumed(hf: Commands) -> None:
    hf.leave_in_doubt("one")
    hf.damage("one")
    for _ in range(2):
        ended = hf("resume", "one", "agents.py")
        assert ended.code == 6
        assert "Traceback" not in ended.err
    assert hf("runs").out.split("\t")[1] == "quarantined"


def test_doctor_reports_the_store_and_what_was_left_over(hf: Commands) -> None:
    ended = hf("doctor", "--json")
    assert ended.code == 3
    assert not hf.store.exists()
    start_two(hf)
    ended = hf("doctor")
    assert ended.code == 0, ended.out
    report = {line.split("\t")[1]: line.split("\t") for line in ended.out.splitlines()}
    assert {"python", "sqlite", "store", "durability", "file system", "permissions", "workers", "log"} <= report.keys()
    assert "largest" not in report, "nothing is large"
    (hf.folder / "long.json").write_text(json.dumps(os.urandom(150_000).hex()))
    hf("run", "agents.py:echo", "--input", "@long.json", "--id", "long")
    assert "long: " in next(line for line in hf("doctor").out.splitlines() if "\tlargest\t" in line)
    hf("run", "agents.py:research", "x", "--id", "cut", DIE_IN_EFFECT="1")
    assert "cut" in hf("doctor").out
    assert hf("runs").out.split("\t")[1] == "cut_off"
    assert report["owners"][0] == "ok"
    os.chmod(hf.store, 0o644)
    assert "warning\tpermissions" in hf("doctor").out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
def test_doctor_reports_whose_the_files_are(hf: Commands) -> None:
    start_two(hf)
    hf("run", "agents.py:research", "x", "--id", "cut", DIE_IN_EFFECT="1")
    os.chown(hf.store, 47_111, 47_111)
    (lock,) = Path(f"{hf.store}-workers").glob("w_*.lock")
    lock.rename(lock.with_suffix(".old"))
    lock.touch()
    ended = hf("doctor")
    assert ended.code == 0, ended.out
    told = [line.split("\t")[2] for line in ended.out.splitlines() if line.startswith("warning\towners\t")]
    assert f"{hf.store} belongs to uid 47111, not to root (uid 0)" in told
    assert any(f"the lock file of worker {lock.stem}" in each for each in told)
    assert "belongs to uid 47111" in hf("send", "cut", "go", "1").err


@pytest.mark.parametrize("name", ["evil", "what belongs to the file system can be accessed by others"])
def test_a_schema_that_somebody_changed_is_reported_whatever_it_is_called(hf: Commands, name: str) -> None:
    start_two(hf)
    connection = apsw.Connection(str(hf.store))
    connection.execute(f'CREATE TRIGGER "{name}" AFTER INSERT ON records BEGIN DELETE FROM mailbox; END')
    connection.close()
    ended = hf("doctor")
    assert ended.code == 6
    assert f"bad\tintegrity\tthe table records has the trigger {name}" in ended.out
    ended = hf("verify")
    assert ended.code == 6
    assert f"the table records has the trigger {name}" in ended.out + ended.err


@pytest.mark.parametrize("arguments", [["runs"], ["show", "x"], ["in-doubt"], ["verify"], ["doctor"], ["resume", "x"]])
def test_looking_makes_no_store(hf: Commands, arguments: list[str]) -> None:
    ended = hf(*arguments)
    assert ended.code == 3
    assert "There is no store at" in ended.err + ended.out
    assert not hf.store.parent.exists()


def test_looking_works_where_nothing_may_be_written(hf: Commands) -> None:
    start_two(hf)
    before = {path: path.stat().st_mtime_ns for path in hf.store.parent.iterdir() if path.is_file()}
    assert hf("runs").code == 0
    assert hf("verify").code == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_the_store_is_named_by_option_or_environment(hf: Commands) -> None:
    hf("run", "agents.py:echo", "--id", "one", "--db", "elsewhere/a.db")
    assert hf("runs", "--db", "sqlite:///elsewhere/a.db").out.startswith("one\t")
    assert hf("--db", "elsewhere/a.db", "runs").out.startswith("one\t")
    assert hf("runs", HOLDFAST_URL="elsewhere/a.db").out.startswith("one\t")


def test_a_reader_that_stops_early_is_no_error_message(hf: Commands) -> None:
    start_two(hf)
    command = f"{sys.executable} -m holdfast show first-1 --journal | head -c 1"
    ended = subprocess.run(
        command, shell=True, cwd=hf.folder, env=hf.environment, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in ended.stderr


def test_version_and_help(hf: Commands) -> None:
    assert hf("version").out.startswith("holdfast ")
    assert hf("version", "--json").json["holdfast"]
    ended = hf("--help")
    assert ended.code == 0
    assert "Exit codes" in ended.out
    assert hf("-h").out == ended.out
    assert hf().code == 2


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "demo"])
def test_the_list_of_commands_says_what_the_commands_say(name: str) -> None:
    assert isinstance(cli, LazyGroup)
    command = cli.get_command(cli.make_context("holdfast", ["runs"], resilient_parsing=True), name)
    assert command is not None
    assert command.help is not None
    assert command.help.splitlines()[0] == COMMANDS[name][2]


def test_bash_completes_commands_and_runs(hf: Commands) -> None:
    start_two(hf)
    script = hf("completion", "bash").out
    words = (
        "COMPREPLY=(); COMP_WORDS=(holdfast {}); COMP_CWORD={}; _holdfast_completion holdfast; echo ${{COMPREPLY[@]}}"
    )
    program = hf.folder / "holdfast"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
    program.chmod(0o755)
    bash = shutil.which("bash")
    assert bash is not None
    text = f"{script}\n{words.format('ver', 1)}\n{words.format('show fir', 2)}"
    environment = hf.environment | {"PATH": f"{hf.folder}:{hf.environment['PATH']}"}
    ended = subprocess.run(
        [bash, "-c", text], cwd=hf.folder, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout.splitlines() == ["verify version", "first-1"]
    assert "_HOLDFAST_COMPLETE" in hf("completion", "zsh").out
    assert "_HOLDFAST_COMPLETE" in hf("completion", "fish").out


def test_the_app_the_command_and_doctor_agree_about_what_is_in_doubt(hf: Commands) -> None:
    """Also about a run that is blocked with an effect open, one that is paused, and arguments that are kept apart."""
    hf.leave_in_doubt("asked")
    hf.leave_in_doubt("large", "tides" * 5_000)
    hf.leave_in_doubt("stopped")
    assert hf("pause", "stopped").code == 0
    assert hf("run", "agents.py:research", "tides", "--id", "changed", DIE_IN_EFFECT="1").code == -signal.SIGKILL
    (hf.folder / "blocked.py").write_text(BLOCKED)
    hf("resume", "changed", "blocked.py")
    assert hf("show", "changed", "--json").json["run"]["status"] == "blocked"

    async def found() -> list[tuple[str, str, int, str | None, str]]:
        async with holdfast.connect(str(hf.store)) as app:
            return [(d.run_id, d.key, d.attempt, d.args, d.cause) for d in await app.in_doubt()]

    in_app = asyncio.run(found())
    listed = hf("in-doubt", "--json").json["items"]
    read = [(run, key, attempt, json.loads(args or ""), cause) for run, key, attempt, args, cause in in_app]
    assert read == [(d["run"], d["key"], d["attempt"], d["args"], d["cause"]) for d in listed]
    assert {run for run, *_ in in_app} == {"asked", "large", "stopped", "changed"}
    assert json.loads(next(args for run, _, _, args, _ in in_app if run == "large") or "") == {"text": "tides" * 5_000}
    for run, key, *_ in in_app:
        assert [item["key"] for item in hf("in-doubt", run, "--json").json["items"]] == [key]
    told = next(item["text"] for item in hf("doctor", "--json").json["items"] if item["what"] == "in doubt")
    assert told.startswith("4 runs in doubt")
