"""`workers`, `queues`, `schedules`, `fire`, `triggers`: what workers share."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from holdfast.cli import COMMANDS, cli
from tests.cli.commands import Commands
from tests.cli.waiting import park, prepare, script, worker
from tests.forkserver import ForkServer


@pytest.fixture
def hf(hf: Commands) -> Commands:
    prepare(hf)
    assert hf("run", "agents.py:echo", "--id", "zero").code == 0
    return hf


def test_a_worker_is_listed_while_it_lives(hf: Commands) -> None:
    assert "No worker" in hf("workers").err
    with worker(hf) as process:
        line = hf("workers").out.rstrip("\n").split("\t")
        assert line[1] == "alive"
        assert int(line[2]) > 0
        shown = hf.on_terminal("workers").out
        assert "▶ alive" in shown
        assert "1 alive" in shown
        process.kill()
        process.wait()
        assert [w["alive"] for w in hf("workers", "--json").json["items"]] in ([False], [])


def test_a_queue_is_limited_paused_and_resumed(hf: Commands) -> None:
    assert hf("queues").out == ""
    ended = hf("queues", "set", "mail", "--concurrency", "4", "--rate", "10/m")
    assert ended.code == 0, ended.err
    assert "runs at once 4, per key –, starts 10 in 60 s" in ended.out
    queue = hf("queues", "set", "mail", "--per-key", "1", "--json").json
    assert (queue["concurrency"], queue["per_key"], queue["rate"]) == (4, 1, [10, 60.0]), "the rest stays"
    assert hf("queues", "set", "mail", "--rate", "none", "--json").json["rate"] is None
    assert hf("queues", "pause", "mail").out == "Queue mail is paused.\n"
    script(hf, "await app.start(publish(), id='one', queue='mail')")
    assert hf("queues").out.split("\t")[:4] == ["mail", "paused", "1", "0"]
    assert hf("queues", "ls", "--json").json["items"][0]["state"] == "paused"
    shown = hf.on_terminal("queues").out
    assert "⏸ paused" in shown
    assert hf("queues", "resume", "mail", "--json").json == {"name": "mail", "state": "resumed"}
    assert hf("--json", "queues").json["items"][0]["state"] == "open"


@pytest.mark.parametrize(
    "arguments",
    [
        ["queues", "set", "mail"],
        ["queues", "set", "mail", "--concurrency", "0"],
        ["queues", "set", "mail", "--concurrency", "many"],
        ["queues", "set", "mail", "--rate", "10"],
        ["queues", "set", "mail", "--rate", "10/0s"],
        ["queues", "set", "mail", "--rate", "ten/m"],
        ["queues", "nonsense"],
        ["queues", "pause"],
        ["schedules", "backfill", "daily"],
        ["schedules", "backfill", "daily", "--from", "yesterday"],
        ["schedules", "backfill", "daily", "--from", "2026-03-02", "--to", "2026-03-01"],
    ],
)
def test_a_mistake_is_named_and_changes_nothing(hf: Commands, arguments: list[str]) -> None:
    if arguments[0] == "schedules":
        script(hf, "await app.schedule('daily', publish(), cron='0 7 * * *')")
    ended = hf(*arguments)
    assert ended.code == 2, (ended.code, ended.err)
    assert "Traceback" not in ended.err
    assert hf("queues").out == ""


def test_a_schedule_is_listed_paused_fired_and_removed(hf: Commands) -> None:
    assert "No schedule" in hf("schedules").err
    script(hf, "await app.schedule('daily', publish(), cron='30 7 * * *', tz='Europe/Vienna')")
    line = hf("schedules").out.rstrip("\n").split("\t")
    assert line[:5] == ["daily", "active", "30 7 * * *", "Europe/Vienna", "publish"]
    assert "07:30" in hf.on_terminal("schedules", columns=120).out
    times = hf("schedules", "next", "daily", "--count", "3").out.splitlines()
    assert len(times) == 3
    assert all("T07:30:00" in each for each in times)
    assert hf("schedules", "pause", "daily").code == 0
    assert hf("schedules", "--json").json["items"][0]["state"] == "paused"
    assert hf("schedules", "resume", "daily").code == 0
    first, second = hf("fire", "daily"), hf("schedules", "run", "daily", "--json")
    assert first.code == 0, first.err
    ids = {item["id"] for item in hf("runs", "--agent", "publish", "--json").json["items"]}
    assert ids == {first.out.strip(), second.json["run"]}
    assert hf("schedules", "rm", "daily").code == 0
    assert hf("schedules").out == ""
    for arguments in (["fire", "daily"], ["schedules", "pause", "daily"], ["schedules", "next", "daily"]):
        assert hf(*arguments).code == 3


def test_a_backfill_asks_and_starts_each_run_once(hf: Commands) -> None:
    script(hf, "await app.schedule('daily', publish(), cron='0 7 * * *')")
    given = ["schedules", "backfill", "daily", "--from", "2026-03-01", "--to", "2026-03-03T12:00"]
    ended = hf(*given)
    assert ended.code == 2
    assert "3 runs" in ended.err
    assert "--yes" in ended.err
    ended = hf(*given, "--yes")
    assert len(ended.out.splitlines()) == 3, ended.err
    assert hf(*given, "--yes").out == "", "they are there"
    assert len(hf("runs", "--agent", "publish", "--json").json["items"]) == 3


def test_a_trigger_is_listed_paused_and_tells_what_it_did(hf: Commands) -> None:
    assert "No trigger" in hf("triggers").err
    script(hf, "await app.on('page.ready', publish, name='pages')")
    line = hf("triggers").out.rstrip("\n").split("\t")
    assert line[:5] == ["pages", "active", "event", "event page.ready", "publish"]
    assert "done nothing yet" in hf("triggers", "log", "pages").err
    with worker(hf):
        assert hf("emit", "page.ready", '"tides"').code == 0
        log = ""
        for _ in range(100):
            log = hf("triggers", "log", "pages").out
            if log:
                break
    _, what, run, _ = log.rstrip("\n").split("\t")
    assert (what, run.startswith("pages:")) == ("started", True)
    assert hf("show", run, "--json").json["run"]["agent"] == "publish"
    assert hf("triggers", "pause", "pages").code == 0
    assert hf("triggers", "--json").json["items"][0]["state"] == "paused"
    assert "⏸ paused" in hf.on_terminal("triggers").out
    assert hf("triggers", "resume", "pages").code == 0
    assert hf("triggers", "rm", "pages").code == 0
    assert hf("triggers").out == ""
    assert hf("triggers", "log", "pages").code == 3


def test_what_can_never_be_a_run_is_shown_without_harm_to_the_terminal(hf: Commands) -> None:
    script(hf, "await app.on('page.ready', publish, name='pages', queue_key='{key}')")
    assert "was refused" in hf("triggers", "refused", "pages").err
    assert hf("emit", "page.ready", '{"key": "\\u001b[2J\\u202e"}').code == 0
    _, run, source, why, came = hf("triggers", "refused", "pages").out.rstrip("\n").split("\t")
    assert run.startswith("pages:e_")
    assert source.startswith("event e_")
    assert "queue_key= takes at most 200 printable characters" in why
    assert came == '{"key":"\\u001b[2J\\u202e"}'
    assert hf("triggers", "refused", "pages", "--json").json["items"][0]["data"] == came
    assert "\x1b[2J" not in hf.on_terminal("triggers", "refused", "pages").out
    assert hf("triggers", "log", "pages").out.split("\t")[1] == "refused"
    assert "1 refused" in hf.on_terminal("triggers", "log", "pages").out
    assert hf("triggers", "--json").json["items"][0]["refused"] == 1
    assert hf("triggers", "refused", "other").code == 3


def test_looking_makes_no_store(tmp_path_factory: pytest.TempPathFactory, forkserver: ForkServer) -> None:
    empty = Commands(tmp_path_factory.mktemp("empty"), forkserver)
    for name in ("workers", "queues", "schedules", "triggers", "questions", "watch"):
        ended = empty(name)
        assert ended.code == 3, name
        assert "There is no store at" in ended.err
        assert not empty.store.parent.exists()


def test_what_only_looks_is_fast_to_load() -> None:
    """rich and pydantic take longer to import than the rest takes altogether."""
    code = (
        "import sys\nfrom importlib import import_module\nfrom holdfast.cli import COMMANDS\n"
        "for name in 'runs questions workers queues pause cancel send emit watch triggers schedules'.split():\n"
        "    import_module(f'holdfast.cli.commands.{COMMANDS[name][0]}')\n"
        "print([m for m in ('rich', 'pydantic', 'asyncpg', 'nats', 'watchfiles') if m in sys.modules])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def groups() -> dict[str, click.Group]:
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in COMMANDS if name != "demo"}
    return {name: command for name, command in found.items() if isinstance(command, click.Group)}


def test_every_command_of_a_group_says_what_it_does() -> None:
    assert sorted(groups()) == ["queues", "schedules", "triggers"]
    for group in groups().values():
        assert "ls" in group.commands
        for command in group.commands.values():
            assert command.help
            assert {"--db", "--url", "--json", "--no-color"} <= {name for each in command.params for name in each.opts}


def test_the_page_on_commands_has_every_command_of_a_group_and_its_options() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text("utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| `")
    ]
    for group_name, group in groups().items():
        for name, command in group.commands.items():
            if name == "ls":
                continue
            row = next(row for row in rows if row[0].startswith(f"`{group_name} {name} "))
            assert row[1] == (command.help or "").splitlines()[0], name
            options = {each.opts[0] for each in command.params if isinstance(each, click.Option)}
            named = set(re.findall(r"`(--[a-z-]+)`", row[2]))
            assert named == options - {"--db", "--url", "--json", "--no-color"}, f"{group_name} {name}"


def test_names_and_ids_are_completed(hf: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    hf("queues", "set", "mail", "--concurrency", "1")
    script(hf, "await app.schedule('daily', publish(), cron='0 7 * * *')\nawait app.on('x', publish, name='pages')")
    park(hf, "sure", "asking")
    question = hf("questions", "--json").json["items"][0]["id"]
    monkeypatch.chdir(hf.folder)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    shell = ShellComplete(cli, {}, "holdfast", "_HOLDFAST_COMPLETE")

    def completed(*words: str) -> list[str]:
        return [each.value for each in shell.get_completions(list(words[:-1]), words[-1])]

    assert completed("queues", "pause", "m") == ["mail"]
    assert completed("runs", "--queue", "") == ["mail"]
    assert completed("schedules", "next", "") == ["daily"]
    assert completed("fire", "da") == ["daily"]
    assert completed("triggers", "log", "") == ["pages"]
    assert completed("answer", "q_") == [question]
    assert completed("questions", "as") == ["asking"]
    assert completed("pause", "as") == ["asking"]
    assert "backfill" in completed("schedules", "")
