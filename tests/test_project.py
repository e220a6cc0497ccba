"""What is true of the project as a whole, whatever is in it."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import faults

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "holdfast"
MODULES = sorted(SRC.rglob("*.py"))

NOT_OURS = {".git", ".venv", ".holdfast", ".hypothesis", ".import_linter_cache", ".mypy_cache", ".pytest_cache"}
NOT_OURS |= {".ruff_cache", "__pycache__", "build", "dist", "node_modules"}

#: Paths of one machine, or out of the project. Put together here, so that this file does not name them itself.
FORBIDDEN = re.compile(
    r"(?<![\w.-])/(?:{})/|\.\./(?:{})\b".format("|".join(("work", "root")), "|".join(("shared", "main")))
)

STATEMENT = re.compile(
    r"\b(?:SELECT|INSERT|UPDATE|DELETE|REPLACE|CREATE|ALTER|DROP)\s+\S"
    r"|(?i:^\s*(?:select\s.+\sfrom\s|(?:insert|replace)\s.*\binto\s|update\s+\w+\s+set\s|delete\s+from\s))"
)


def files() -> Iterator[Path]:
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = sorted(set(subfolders) - NOT_OURS)
        yield from (Path(folder, name) for name in sorted(names))


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def strings(module: ast.Module) -> Iterator[ast.Constant]:
    """Constants of the code, the fixed parts of f-strings included, docstrings left out."""
    texts = {node.value for node in ast.walk(module) if isinstance(node, ast.Expr)}
    yield from (node for node in ast.walk(module) if isinstance(node, ast.Constant) and node not in texts)


def point_calls(module: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("faults.point", "point"):
            yield node


def imported(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""


def test_the_readme_is_short_and_is_part_of_the_package() -> None:
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("there is no README.md yet")
    assert len(readme.read_text(encoding="utf-8").splitlines()) < 200
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project.get("readme") == "README.md", 'pyproject.toml: add readme = "README.md" to [project]'


def test_no_file_points_out_of_the_project() -> None:
    found = [
        f"{shown(path)}:{number}: {line.strip()[:100]}"
        for path in files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if FORBIDDEN.search(line)
    ]
    assert not found, "\n".join(found)


def test_the_table_of_crash_points_and_the_code_agree() -> None:
    in_calls = {
        call.args[0].value
        for path in MODULES
        for call in point_calls(tree(path))
        if call.args and isinstance(call.args[0], ast.Constant)
    }
    # The store's writer is told the names of the points of each write.
    told = {node.value for path in MODULES if path.name != "faults.py" for node in strings(tree(path))}
    assert in_calls - faults.POINTS.keys() == set(), "in the code, not in faults.POINTS"
    assert faults.POINTS.keys() - told == set(), "in faults.POINTS, nowhere in the code"


def test_sql_is_in_sql_files_only() -> None:
    found = [
        f"{shown(path)}:{node.lineno}: {node.value[:80]!r}"
        for path in MODULES
        if path.name != "conformance_landing.py"  # has statements of a user's
        for node in strings(tree(path))
        if isinstance(node.value, str) and STATEMENT.search(node.value)
    ]
    assert not found, "\n".join(found)


def test_nothing_that_runs_code_from_stored_bytes_is_imported() -> None:
    unsafe = {"pickle", "_pickle", "cPickle", "marshal", "dill", "cloudpickle", "shelve", "joblib", "jsonpickle"}
    found = [
        f"{shown(path)}:{line}: {name}"
        for path in MODULES
        for line, name in imported(tree(path))
        if name.partition(".")[0] in unsafe
    ]
    assert not found, "\n".join(found)


def test_no_file_of_the_package_is_longer_than_600_lines() -> None:
    lengths = {
        shown(path): len(path.read_text(encoding="utf-8", errors="replace").splitlines())
        for path in files()
        if path.is_relative_to(SRC)
    }
    assert {name: length for name, length in lengths.items() if length > 600} == {}


def test_the_makefile_has_the_targets_that_the_texts_name() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    assert targets >= {"demo", "test", "check", "prove", "bench", "fmt", "clean", "help"}
    for text in ROOT.glob("*.md"):
        named = set(re.findall(r"`make ([a-z]+)", text.read_text(encoding="utf-8")))
        assert named <= targets, text.name


def test_the_ci_script_can_be_executed() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_change_fragments_are_named_by_topic_and_kind() -> None:
    names = {path.name for path in (ROOT / "changes").iterdir()} - {"README.md"}
    assert {name for name in names if not re.fullmatch(r"[a-z0-9-]+\.(feature|fix|breaking)\.md", name)} == set()
