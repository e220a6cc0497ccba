"""`artifacts`, and what `verify` says of files."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from holdfast.cli.failure import INTEGRITY, NOT_FOUND, USAGE
from tests.cli.commands import Commands

AGENTS = """
import holdfast as hf

@hf.step
def build(repo: hf.Workspace) -> None:
    (repo.path / "a").write_text("built")

@hf.agent
async def maker(text: str) -> None:
    await hf.artifact("reports/one.md", text)
    await hf.artifact("reports/one.md", text + "!")
    await hf.artifact("request", ref="https://example.org/7", kind="draft-pr")
    await build(await hf.workspace("repo"))
"""


@pytest.mark.corrupts
def test_artifacts_are_listed_saved_and_told_to_be_damaged(
    hf: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_WORKSPACES", str(tmp_path / "workspaces"))
    (tmp_path / "maker.py").write_text(AGENTS)
    assert hf("run", "maker.py:maker", "tides", "--id", "made").code == 0
    items = hf("artifacts", "made", "--json").json["items"]
    assert [(item["name"], item["version"], item["kind"]) for item in items if item["kind"] != "record"] == [
        ("reports/one.md", 1, "file"),
        ("reports/one.md", 2, "file"),
        ("request", 1, "draft-pr"),
        ("repo", 1, "workspace"),
    ]
    assert items[0]["kind"] == "record"
    assert items[1]["key"] == "hf.artifact#1"
    lines = [line.split("\t") for line in hf("artifacts", "made", "reports/one.md").out.splitlines()]
    assert [line[1] for line in lines] == ["1", "2"]
    shown = hf.on_terminal("artifacts", "made", columns=80).out
    assert "https://example.org/7" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80

    assert hf("artifacts", "made", "reports/one.md", "--save", "saved.md").code == 0
    assert (tmp_path / "saved.md").read_text() == "tides!"
    (tmp_path / "folder").mkdir()
    saved = hf("artifacts", "made", "reports/one.md", "--save", "folder", "--version", "1", "--json").json
    assert saved["saved"] == "folder/one.md"
    assert (tmp_path / "folder/one.md").read_text() == "tides"
    assert hf("artifacts", "made", "repo", "--save", "repo").code == 0
    assert (tmp_path / "repo/a").read_text() == "built"
    for arguments in (["--save", "x"], ["request", "--save", "x"], ["nothing"], ["request", "--version", "2"]):
        ended = hf("artifacts", "made", *arguments)
        assert ended.code == USAGE, ended
    assert hf("artifacts", "nobody").code == NOT_FOUND
    nowhere = hf("artifacts", "made", "reports/one.md", "--save", "no/folder/one.md")
    assert nowhere.err.endswith("No such file or directory: 'no/folder/one.md'\n"), nowhere

    connection = apsw.Connection(str(tmp_path / ".holdfast/holdfast.db"))
    connection.execute("UPDATE chunks SET data = CAST(data || 'x' AS BLOB) WHERE data = CAST('tides' AS BLOB)")
    assert connection.changes() == 1
    connection.close()
    ended = hf("artifacts", "made", "--json")
    assert [item["state"] for item in ended.json["items"]] == ["stored", "damaged", "stored", "stored", "stored"]
    assert ended.code == INTEGRITY
    assert hf("artifacts", "made", "--no-check").code == 0
    assert hf("artifacts", "made", "reports/one.md", "--version", "1", "--save", "bad").code == INTEGRITY
    assert not (tmp_path / "bad").exists()
    for arguments in (["made"], ["--all"]):
        ended = hf("verify", *arguments, "--json")
        assert ended.code == INTEGRITY
        assert ended.json["files"] == ["run made: reports/one.md version 1 is damaged"]
        assert ended.json["items"][0]["is_ok"], "the run itself is sound"
