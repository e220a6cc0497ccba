"""`run` and `resume`: arguments, results, interruptions, exit codes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.cli.commands import BLOCKED, Commands
from tests.cli.test_watch import Screen
from tests.forkserver import ForkServer


def test_a_text_is_printed_as_it_is_and_everything_else_goes_to_stderr(hf: Commands) -> None:
    ended = hf("run", "agents.py:echo", "hello there")
    assert (ended.code, ended.out) == (0, "hello there\n")
    ended = hf("run", "agents.py:research", "tides")
    assert json.loads(ended.out) == {"thoughts": ["thoughts on tides0", "thoughts on tides1"], "pr": 91}
    assert "the agent prints" in ended.err


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        (["echo", "5"], "5"),
        (["echo"], "hello"),
        (["echo", "--input", '{"text": "by name"}'], "by name"),
        (["echo", "--input", '"the only one"'], "the only one"),
        (["typed", '{"topic": "tides", "depth": "3"}'], {"topic": "tides", "depth": 3}),
        (["typed", "--input", '{"topic": "tides"}'], None),
        (["typed", "--input", '{"query": {"topic": "tides"}, "when": 2}'], {"topic": "tides", "depth": 1}),
        (["typed", "--input", '[{"topic": "tides"}]'], {"topic": "tides", "depth": 1}),
    ],
)
def test_arguments_are_read_as_the_annotations_say(hf: Commands, arguments: list[str], result: object) -> None:
    ended = hf("run", f"agents.py:{arguments[0]}", *arguments[1:])
    if result is None:
        assert ended.code == 2
    else:
        assert ended.code == 0, ended.err
        assert (json.loads(ended.out) if isinstance(result, dict) else ended.out.strip()) == result


def test_input_comes_from_a_file_or_from_stdin(hf: Commands) -> None:
    (hf.folder / "input.json").write_text('{"text": "from a file"}')
    assert hf("run", "agents.py:echo", "--input", "@input.json").out == "from a file\n"
    assert hf("run", "agents.py:echo", "--input", "-", stdin='{"text": "from stdin"}').out == "from stdin\n"


def test_a_file_with_one_agent_needs_no_name_and_may_import_its_neighbours(hf: Commands) -> None:
    (hf.folder / "sub").mkdir()
    (hf.folder / "sub" / "neighbour.py").write_text("WORD = 'near'\n")
    (hf.folder / "sub" / "json.py").write_text(
        "import holdfast as hf\nfrom neighbour import WORD\n"
        "@hf.agent\nasync def one() -> str:\n    return WORD + __name__\n"
    )
    ended = hf("run", "sub/json.py")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("near")
    assert "__main__" not in ended.out


def test_a_file_inside_a_package_is_imported_as_part_of_it(hf: Commands) -> None:
    package = hf.folder / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "words.py").write_text("WORD = 'relative'\n")
    (package / "flow.py").write_text(
        "import holdfast as hf\nfrom .words import WORD\n@hf.agent\nasync def one() -> str:\n    return WORD\n"
    )
    assert hf("run", "package/flow.py").out == "relative\n"
    assert hf("run", "package.flow:one").out == "relative\n"


def test_json_describes_the_run(hf: Commands) -> None:
    ended = hf("run", "agents.py:echo", "x", "--id", "one", "--thread", "t1", "--json")
    assert ended.json == {"id": "one", "token": "one@t1", "agent": "echo", "status": "done", "result": "x"}
    assert hf("run", "agents.py:echo", "x", HOLDFAST_OUTPUT="json").json["result"] == "x"


def test_the_same_id_gives_the_same_run_and_other_arguments_are_a_conflict(hf: Commands) -> None:
    first = hf("run", "agents.py:research", "tides", "--id", "one")
    assert hf("run", "agents.py:research", "tides", "--id", "one").out == first.out
    assert hf.world() == ["tides"]
    ended = hf("run", "agents.py:research", "moon", "--id", "one")
    assert ended.code == 5
    assert "other arguments" in ended.err


def test_a_killed_run_goes_on_with_resume(hf: Commands) -> None:
    process = hf.start("run", "agents.py:patient", "go", "--id", "one")
    assert process.stderr is not None
    assert "Run one" in process.stderr.readline()
    process.kill()
    process.communicate()
    (hf.folder / "go").touch()
    ended = hf("resume", "one", "agents.py")
    assert (ended.code, ended.out) == (0, "go\n"), ended.err


@pytest.mark.parametrize(
    "arguments", [["one", "agents.py"], ["agents.py:research", "one"], ["one", "--app", "agents.py"]]
)
def test_an_effect_cut_off_is_in_doubt_until_somebody_settles_it(hf: Commands, arguments: list[str]) -> None:
    assert hf("run", "agents.py:research", "tides", "--id", "one", DIE_IN_EFFECT="1").code == -signal.SIGKILL
    ended = hf("resume", *arguments)
    assert (ended.code, ended.out) == (8, "")
    assert "holdfast in-doubt one" in ended.err
    assert hf("resolve", "one", "--happened", "17", "--yes").code == 0
    ended = hf("resume", *arguments)
    assert ended.code == 0
    assert ended.json["pr"] == 17
    assert hf.world() == ["tides"]


def test_the_agents_of_the_project_need_not_be_given(hf: Commands) -> None:
    (hf.folder / "pyproject.toml").write_text('[tool.holdfast]\nagents = ["agents.py"]\n')
    hf("run", "agents.py:research", "tides", "--id", "one", DIE_IN_EFFECT="1")
    assert hf("resume", "one").code == 8
    (hf.folder / "pyproject.toml").unlink()
    ended = hf("resume", "one")
    assert ended.code == 2
    assert "--app" in ended.err
    assert ended.err.endswith("It was last executed from this one: holdfast resume one agents.py\n")
    assert hf("resume", "one", HOLDFAST_APP="agents.py").code == 8


def test_a_failed_run_shows_its_traceback_and_is_retried_only_when_told(hf: Commands) -> None:
    ended = hf("run", "agents.py:failing", "--id", "one")
    assert (ended.code, ended.out) == (1, "")
    assert "ValueError: evil \\x1b[31m escape" in ended.err
    assert "agents.py" in ended.err
    assert "\x1b" not in ended.err
    (hf.folder / "mended").touch()
    assert hf("resume", "one", "agents.py").code == 1
    ended = hf("resume", "one", "agents.py", "--retry", "--note", "mended it")
    assert (ended.code, ended.out) == (0, "null\n")
    assert "mended it" in hf("show", "one").out


def test_a_run_whose_code_changed_needs_a_person(hf: Commands) -> None:
    hf.leave_in_doubt("one")
    (hf.folder / "blocked.py").write_text(BLOCKED)
    ended = hf("resume", "one", "blocked.py", "--json")
    assert ended.code == 7
    assert ended.json["status"] == "blocked"
    assert ended.json["error"]["type"] == "RunBlocked"


def test_ctrl_c_leaves_the_run_safe(hf: Commands) -> None:
    process = hf.start("run", "agents.py:patient", "go", "--id", "one")
    assert process.stderr is not None
    assert "Run one" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "left safe. Go on with: holdfast resume one agents.py:patient" in err
    (hf.folder / "go").touch()
    assert hf("resume", "agents.py:patient", "one").out == "go\n"


def test_a_timeout_leaves_the_run_safe(hf: Commands) -> None:
    ended = hf("run", "agents.py:patient", "go", "--id", "one", "--timeout", "0.2")
    assert ended.code == 124
    assert "left safe" in ended.err
    assert hf("runs").out.split("\t")[1] == "queued"


def test_progress_is_shown_on_a_terminal_only(hf: Commands) -> None:
    screen = Screen(hf, "run", "agents.py:patient", "go")
    screen.wait_for("▶ running")
    screen.wait_for("1/2 waiting")
    (hf.folder / "go").touch()
    assert screen.end() == 0
    (hf.folder / "go").unlink()
    assert "running" not in hf("run", "agents.py:patient", "go", "--timeout", "0.5").err


MISTAKES = [
    (["run"], 2),
    (["run", "missing.py"], 2),
    (["run", "missing_module:x"], 2),
    (["run", "."], 2),
    (["run", "agents.py"], 2),
    (["run", "agents.py:nobody"], 2),
    (["run", "empty.py"], 2),
    (["run", "syntax.py"], 1),
    (["run", "raises.py"], 1),
    (["run", "leaves.py"], 1),
    (["run", "needs.py"], 1),
    (["run", "agents.py:research"], 2),
    (["run", "agents.py:research", "a", "b"], 2),
    (["run", "agents.py:research", "a", "1", "2"], 2),
    (["run", "agents.py:research", "--input", "{"], 2),
    (["run", "agents.py:research", "--input", "@nowhere.json"], 2),
    (["run", "agents.py:research", "--input", '{"topic": 5}'], 2),
    (["run", "agents.py:research", "a", "--input", "{}"], 2),
    (["run", "agents.py:echo", "--id", "a@b"], 2),
    (["run", "agents.py:echo", "--timeout", "soon"], 2),
    (["run", "agents.py:echo", "--db", "text.db"], 1),
    (["run", "agents.py:echo", "--db", "."], 1),
    (["run", "agents.py:echo", "--db", "mysql://x"], 2),
    (["resume", "nobody", "agents.py"], 3),
    (["resume"], 2),
    (["resume", "a", "b", "agents.py"], 2),
    (["runs", "--db", "text.db"], 1),
    (["runs", "--db", "missing.db"], 3),
    (["runs", "--since", "yesterday"], 2),
    (["runs", "--status", "sad"], 2),
    (["runs", "--limit", "0"], 2),
    (["runs", "--cursor", "nobody"], 3),
    (["show", "nobody"], 3),
    (["show", "a@wrong"], 3),
    (["show", "same"], 2),
    (["show", "@last", "--nonsense"], 2),
    (["in-doubt", "nobody"], 3),
    (["resolve", "same-1", "--yes"], 2),
    (["resolve", "same-1", "--happened", "unquoted", "--yes"], 2),
    (["resolve", "same-1", "--happened", "1", "--not-happened", "--yes"], 2),
    (["resolve", "same-1", "--not-happened", "--yes"], 5),
    (["resolve", "same-1", "nobody#1", "--not-happened", "--yes"], 2),
    (["resolve", "nobody", "--not-happened", "--yes"], 3),
    (["verify", "nobody"], 3),
    (["verify", "same-1", "--all"], 2),
    (["completion", "tcsh"], 2),
    (["nonsense"], 2),
]


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory: pytest.TempPathFactory, forkserver: ForkServer) -> Commands:
    hf = Commands(tmp_path_factory.mktemp("mistakes"), forkserver)
    for name, text in {
        "empty.py": "x = 1\n",
        "syntax.py": "def broken(:\n",
        "raises.py": "raise KeyError('at import')\n",
        "leaves.py": "import sys\nsys.exit('no')\n",
        "needs.py": "import not_installed_anywhere\n",
        "text.db": "this is not a database, but it is long enough to look like a file with something in it\n" * 20,
    }.items():
        (hf.folder / name).write_text(text)
    for run_id in ("same-1", "same-2", "a"):
        assert hf("run", "agents.py:echo", "--id", run_id).code == 0
    return hf


@pytest.mark.parametrize(
    ("arguments", "code"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_mistake_gives_a_short_message_and_its_exit_code(mistaken: Commands, arguments: list[str], code: int) -> None:
    ended = mistaken(*arguments)
    assert ended.code == code, ended.err
    assert ended.out == ""
    assert ended.err.strip()
    assert "Traceback" not in ended.err
    assert len(ended.err.strip().splitlines()) <= 4, ended.err


def test_a_mistake_is_json_on_stderr_when_json_is_asked_for(hf: Commands) -> None:
    ended = hf("runs", "--json")
    assert ended.code == 3
    assert json.loads(ended.err)["error"]["code"] == 3


def test_an_unreadable_store_is_a_short_message(hf: Commands, tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file where a folder should be")
    ended = hf("run", "agents.py:echo", "--db", "folder/x.db")
    assert ended.code == 1
    assert "Traceback" not in ended.err
