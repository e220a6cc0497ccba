"""Code that a command finds by itself: from which `pyproject.toml`, and from nobody else's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.commands import AGENTS, Commands, Ended
from tests.forkserver import ForkServer

SOMEBODY = 65534  #: a user that is neither us nor root
NAMES_AGENTS = '[tool.holdfast]\nagents = ["found.py"]\n'
#: Leaves a trace where it is executed.
FOUND = f"{AGENTS}\nopen('executed', 'w').close()\n"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")


@pytest.fixture(autouse=True)
def files_are_ours() -> Iterator[None]:
    """Whatever the machine's own habit: others may not write what the test makes."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A folder with a project, above the one that commands are given in."""
    top = tmp_path / "top"
    top.mkdir()
    (top / "pyproject.toml").write_text(NAMES_AGENTS)
    (top / "found.py").write_text(FOUND)
    return top


@pytest.fixture
def below(top: Path, forkserver: ForkServer) -> Commands:
    """Commands in a folder below the project; a run was cut off there."""
    folder = top / "middle" / "below"
    folder.mkdir(parents=True)
    hf = Commands(folder, forkserver)
    hf("run", "agents.py:research", "tides", "--id", "one", DIE_IN_EFFECT="1")
    return hf


def resume(hf: Commands, **environment: str) -> tuple[Ended, bool]:
    """How a command ended that has to find the code, and whether it executed what it found."""
    ended = hf("resume", "one", **environment)
    assert "Traceback" not in ended.err
    return ended, (hf.folder / "executed").exists()


def refused(hf: Commands, **environment: str) -> str:
    """Nothing was executed; what was told."""
    ended, was_executed = resume(hf, **environment)
    assert not was_executed
    assert ended.code == 2, ended.err
    assert "holdfast resume one" in ended.err
    return ended.err


def test_the_agents_of_a_project_above_are_found_and_it_is_said_which(top: Path, below: Commands) -> None:
    ended, was_executed = resume(below)
    assert was_executed
    assert ended.code == 8
    assert f"Agents of {top / 'pyproject.toml'}: found.py" in ended.err


def test_a_file_that_is_named_needs_no_project(below: Commands) -> None:
    ended = below("resume", "one", "agents.py")
    assert ended.code == 8
    assert "Agents of" not in ended.err


@pytest.mark.parametrize("place", [".", ".."])
@pytest.mark.parametrize("name", [".git", ".hg", ".jj"])
def test_the_search_ends_at_the_root_of_a_repository(below: Commands, place: str, name: str) -> None:
    (below.folder / place / name).mkdir()
    assert "was not read" not in refused(below)
    (below.folder / place / "pyproject.toml").write_text('[tool.holdfast]\nagents = ["agents.py"]\n')
    (below.folder / place / "agents.py").write_text(AGENTS)
    assert below("resume", "one").code == 8  # in the root itself it is found


@pytest.mark.parametrize("place", [".", ".."])
def test_the_search_ends_at_the_home_directory(below: Commands, place: str) -> None:
    refused(below, HOME=str((below.folder / place).resolve()))
    assert resume(below, HOME=str(below.folder.parent.parent))[1]


def give(path: Path) -> None:
    os.chown(path, SOMEBODY, -1)


def share_with_all(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o002)


def share_with_group(path: Path) -> None:
    os.chown(path, -1, SOMEBODY)
    path.chmod(path.stat().st_mode | 0o020)


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        pytest.param("pyproject.toml", give, "it belongs to nobody", marks=as_root),
        pytest.param("pyproject.toml", share_with_all, "it can be written by everybody"),
        pytest.param("pyproject.toml", share_with_group, "it can be written by the group", marks=as_root),
        pytest.param(".", give, "top belongs to nobody", marks=as_root),
        pytest.param(".", share_with_all, "top can be written by everybody"),
        pytest.param(".", share_with_group, "top can be written by the group", marks=as_root),
    ],
)
def test_a_project_that_others_can_change_is_not_read_and_it_is_said_why(
    top: Path, below: Commands, name: str, change: Callable[[Path], None], why: str
) -> None:
    change(top / name)
    told = refused(below)
    assert f"{top / 'pyproject.toml'} was not read, since " in told
    assert why in told


@as_root
def test_a_folder_of_somebody_else_on_the_way_ends_the_search(below: Commands) -> None:
    give(below.folder.parent)
    refused(below)


@pytest.mark.parametrize(
    ("named", "change"),
    [
        pytest.param("found.py", give, marks=as_root),
        pytest.param("found.py", share_with_all),
        pytest.param("parts", share_with_all),
        pytest.param("parts/inner", share_with_all),
    ],
)
def test_code_that_others_can_change_is_not_executed_though_a_project_names_it(
    top: Path, below: Commands, named: str, change: Callable[[Path], None]
) -> None:
    source = top / "found.py"
    if named.startswith("parts"):
        (top / "parts" / "inner").mkdir(parents=True)
        source = source.rename(top / "parts" / "inner" / "found.py")
        (top / "pyproject.toml").write_text('[tool.holdfast]\nagents = ["parts/inner/found.py:research"]\n')
    change(top / named)
    ended, was_executed = resume(below)
    assert (ended.code, was_executed) == (2, False)
    assert f"names {source}, which is not executed, since {top / named}" in ended.err


@as_root
def test_a_link_to_code_of_somebody_else_is_not_followed(top: Path, below: Commands, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (top / "found.py").rename(elsewhere / "found.py")
    (top / "found.py").symlink_to(elsewhere / "found.py")
    assert resume(below)[0].code == 8
    (below.folder / "executed").unlink()
    give(elsewhere / "found.py")
    ended, was_executed = resume(below)
    assert (ended.code, was_executed) == (2, False)


@pytest.mark.parametrize("text", ["agents = 5", "agents = [5]", 'agents = "found.py"', "\x00", "agents ="])
def test_a_project_that_cannot_be_understood_is_told_of(top: Path, below: Commands, text: str) -> None:
    (top / "pyproject.toml").write_text(f"[tool.holdfast]\n{text}\n")
    ended, was_executed = resume(below)
    assert (ended.code, was_executed) == (2, False)
    assert str(top / "pyproject.toml") in ended.err


@as_root
def test_a_package_begins_below_what_somebody_else_put_into_a_folder_above(hf: Commands) -> None:
    package = hf.folder / "shared" / "mine"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "flow.py").write_text("import holdfast as hf\n@hf.agent\nasync def one() -> str:\n    return __name__\n")
    planted = hf.folder / "shared" / "__init__.py"
    planted.write_text("open('executed', 'w').close()\n")
    give(planted)
    ended = hf("run", "shared/mine/flow.py")
    assert (ended.code, ended.out) == (0, "mine.flow\n"), ended.err
    assert not (hf.folder / "executed").exists()
    os.chown(planted, 0, -1)
    assert hf("run", "shared/mine/flow.py").out == "shared.mine.flow\n"
