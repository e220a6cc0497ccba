"""Whether the code of an agent changed: its module, and what that imports of its project."""

from __future__ import annotations

import ast
import asyncio
import functools
import io
import os
import shutil
import subprocess
import sys
import textwrap
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pytest

import holdfast as hf
from holdfast.base import source_code
from holdfast.base.source_code import code_of

AGENT = """
import holdfast as hf
{imports}

@hf.agent
async def shop() -> str:
    {inside}
    return "done"
"""
ADD = "def add():\n    return 1\n"
TELL = "\nif __name__ == '__main__':\n    print(shop._code)\n"


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def agent(imports: str = "", inside: str = "") -> str:
    return AGENT.format(imports=imports, inside=inside) + TELL


def code(*command: str, cwd: Path, path: Path | None = None) -> str:
    """What a process of its own says the agent's code is."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(path) if path is not None else ""}
    ended = subprocess.run([sys.executable, *command], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def imported(module: str, folder: Path, cwd: Path) -> str:
    return code("-c", f"import {module} as it; print(it.shop._code)", cwd=cwd, path=folder)


def read(path: Path) -> str:
    """The same, of a file that is not executed."""
    made: dict[str, Any] = {}
    exec(compile("async def shop(): ...", str(path), "exec"), made)
    return code_of(made["shop"])


#: The agent's file, what it imports, and a file of the project that this makes part of its code.
PROJECTS = {
    "a module next to a script": ("shop.py", agent("import tools"), "tools.py"),
    "a name of a module": ("shop.py", agent("from tools import add"), "tools.py"),
    "several at once": ("shop.py", agent("import os, tools as t, sys"), "tools.py"),
    "over several lines": ("shop.py", agent("from tools import (\n    add,  # one\n    add as more,\n)"), "tools.py"),
    "inside a function": ("shop.py", agent(inside="from tools import add"), "tools.py"),
    "a module of a package": ("shop.py", agent("from lib import tools"), "lib/tools.py"),
    "a package itself": ("shop.py", agent("import lib.tools"), "lib/__init__.py"),
    "a sibling in a package": ("app/shop.py", agent("from app import tools"), "app/tools.py"),
    "a relative import": ("app/agents/shop.py", agent("from ..lib.tools import add"), "app/lib/tools.py"),
    "a relative sibling": ("app/agents/shop.py", agent("from . import tools"), "app/agents/tools.py"),
    "a package beside the agent's": ("app/shop.py", agent("import lib.tools"), "lib/tools.py"),
}


def project(folder: Path, name: str, *, with_init: bool = True) -> tuple[Path, Path]:
    """The files of a project: its agent's, and the one that the test changes."""
    agent_file, text, helper = PROJECTS[name]
    tools = dict.fromkeys(("tools.py", "lib/tools.py", "app/tools.py", "app/lib/tools.py", "app/agents/tools.py"), ADD)
    packages = ("lib", "app", "app/lib", "app/agents") if with_init else ()
    inits = {f"{package}/__init__.py": "PLACE = 1\n" for package in packages}
    write(folder, {**tools, **inits, agent_file: text})
    return folder / agent_file, folder / helper


@pytest.mark.parametrize("name", PROJECTS)
def test_a_change_of_a_module_that_is_imported_is_a_change_of_the_code(tmp_path: Path, name: str) -> None:
    shop, helper = project(tmp_path, name)
    before = read(shop)
    with helper.open("a") as file:
        file.write("# a comment\n\n\n")
    assert read(shop) == before, "comments do not count"
    with helper.open("a") as file:
        file.write("MORE = 2\n")
    assert read(shop) != before


@pytest.mark.parametrize("name", [name for name in PROJECTS if "itself" not in name])
def test_packages_without_an_init_file_count_too(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    shop, helper = project(tmp_path, name, with_init=False)
    before = read(shop)
    helper.write_text("def add():\n    return 2\n")
    assert read(shop) != before


def test_what_is_imported_by_what_is_imported_counts_in_circles_too(tmp_path: Path) -> None:
    write(tmp_path, {"shop.py": agent("import a"), "a.py": "import b", "b.py": "import c, a", "c.py": "X = 1"})
    before = read(tmp_path / "shop.py")
    (tmp_path / "c.py").write_text("X = 222")
    assert read(tmp_path / "shop.py") != before


def test_it_is_the_same_in_every_folder_and_however_it_is_started(tmp_path: Path) -> None:
    codes = set()
    for place, with_init in (("here", True), ("elsewhere/deep", False)):
        folder = tmp_path / place
        project(folder, "a package beside the agent's", with_init=with_init)
        codes.add((with_init, imported("app.shop", folder, folder)))
        codes.add((with_init, imported("app.shop", folder, tmp_path)))
        codes.add((with_init, code("-m", "app.shop", cwd=folder)))
        codes.add((with_init, code("app/shop.py", cwd=folder, path=folder)))
        codes.add((with_init, code(str(folder / "app" / "shop.py"), cwd=tmp_path, path=folder)))
    assert len(codes) == 2, codes
    shutil.copytree(tmp_path / "here", tmp_path / "another" / "host")
    assert (True, imported("app.shop", tmp_path / "another" / "host", tmp_path)) in codes


def test_what_is_not_of_the_project_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere, site = tmp_path / "elsewhere", tmp_path / "project" / "site-packages"
    shop = tmp_path / "project" / "shop.py"
    write(tmp_path / "project", {"shop.py": agent("import json, other, installed, holdfast"), "unused.py": "X = 1"})
    write(elsewhere, {"other.py": "X = 1"})
    write(site, {"installed.py": "X = 1"})
    for each in (tmp_path / "project", elsewhere, site):
        monkeypatch.syspath_prepend(str(each))
    before = read(shop)
    for path in (elsewhere / "other.py", site / "installed.py", tmp_path / "project" / "unused.py"):
        path.write_text("X = 222")
    assert read(shop) == before


def test_an_agent_that_was_installed_is_its_package_and_nothing_beside_it(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    write(site, {"app/__init__.py": "", "app/shop.py": agent("import app.own, beside"), "app/own.py": "X = 1"})
    write(site, {"beside.py": "X = 1"})
    before = read(site / "app" / "shop.py")
    (site / "beside.py").write_text("X = 222")
    assert read(site / "app" / "shop.py") == before
    (site / "app" / "own.py").write_text("X = 222")
    assert read(site / "app" / "shop.py") != before


def test_a_module_that_cannot_be_read_counts_by_its_name(tmp_path: Path) -> None:
    write(tmp_path, {"shop.py": agent("import broken")})
    without = read(tmp_path / "shop.py")
    (tmp_path / "broken.py").write_bytes(b"# -*- coding: nonsense -*-\n\xff\xfe")
    unreadable = read(tmp_path / "shop.py")
    assert unreadable != without
    (tmp_path / "broken.py").write_bytes(b"# -*- coding: nonsense -*-\n\xff\xff\xff")
    assert read(tmp_path / "shop.py") == unreadable


def test_a_decorated_agent_is_the_module_that_it_is_in(tmp_path: Path) -> None:
    def decorated(fn: Callable[[], None]) -> Callable[[], None]:
        @functools.wraps(fn)
        def wrapped() -> None:
            fn()

        return wrapped

    made: dict[str, Any] = {}
    write(tmp_path, {"shop.py": "X = 1"})
    exec(compile("async def shop(): ...", str(tmp_path / "shop.py"), "exec"), made)
    before = code_of(decorated(made["shop"]))
    (tmp_path / "shop.py").write_text("X = 222")
    assert code_of(decorated(made["shop"])) != before


@pytest.mark.parametrize(
    ("text", "is_same"),
    [
        ("def f(a,b):\n\n    # one\n    return (a +\n        b)  # two\n", True),
        ("# first\ndef f(a, b):\n    return (a + b)", True),
        ("def f(a, b):\n    return (a - b)\n", False),
        ("def f(a, b):\n  return (a + b)\n", False),
        ("def f(a, b):\n    return (a + b)\n'# no comment'\n", False),
    ],
)
def test_layout_and_comments_do_not_count(tmp_path: Path, text: str, is_same: bool) -> None:
    write(tmp_path, {"one/shop.py": "def f(a, b):\n    return (a + b)\n", "two/shop.py": text})
    assert (read(tmp_path / "one" / "shop.py") == read(tmp_path / "two" / "shop.py")) is is_same


def test_tokens_and_imports_are_those_that_python_sees() -> None:
    folders = [Path(hf.__file__).parent / "verbs", Path(hf.__file__).parent / "journal", Path(asyncio.__file__).parent]
    for path in [path for folder in folders for path in folder.glob("*.py")]:
        text = path.read_text()
        words = source_code._words(text)
        if sys.version_info < (3, 12):  # later ones take strings apart
            tokens = tokenize.generate_tokens(io.StringIO(text).readline)
            seen = "".join(t.string for t in tokens if t.type != tokenize.COMMENT)
            assert "".join("".join(words).split()) == "".join(seen.split()), path
        wanted: set[tuple[int, tuple[str, ...], tuple[str, ...]]] = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                wanted |= {(0, tuple(each.name.split(".")), ()) for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                module = tuple(node.module.split(".")) if node.module else ()
                wanted.add((node.level, module, tuple(each.name for each in node.names if each.name != "*")))
        assert set(map(tuple, source_code._imports(words))) == wanted, path


def test_a_project_of_two_hundred_modules_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"part{n}" for n in range(200)]
    write(tmp_path, dict.fromkeys((f"{name}.py" for name in names), f"import {', '.join(names)}"))
    write(tmp_path, {"shop.py": agent(f"import {', '.join(names)}"), "other.py": agent("import part7")})
    opened: list[str] = []
    really = tokenize.open

    def open_counted(path: str) -> TextIO:
        opened.append(path)
        return really(path)

    monkeypatch.setattr(tokenize, "open", open_counted)
    assert read(tmp_path / "shop.py") == read(tmp_path / "shop.py")
    read(tmp_path / "other.py")
    assert len(opened) == len(set(opened)) == 202
