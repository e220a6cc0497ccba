"""What is true of the project as a whole, whatever is in it."""

from __future__ import annotations

import ast
import email
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from email.message import Message
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from holdfast.base import faults

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "holdfast"
MODULES = sorted(SRC.rglob("*.py"))

NOT_OURS = {".git", ".venv", ".holdfast", ".hypothesis", ".import_linter_cache", ".mypy_cache", ".pytest_cache"}
NOT_OURS |= {".ruff_cache", ".soak", "__pycache__", "build", "dist", "node_modules"}

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
        subfolders[:] = sorted(each for each in set(subfolders) - NOT_OURS if not each.startswith(".bench-"))
        yield from (Path(folder, name) for name in sorted(set(names) - NOT_OURS))


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


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


# the package


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Message:
    """What an index is told of the package: as `pip install .` has it made."""
    folder = tmp_path_factory.mktemp("metadata")
    code = f"import hatchling.build; print(hatchling.build.prepare_metadata_for_build_wheel({str(folder)!r}))"
    made = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    return email.message_from_string((folder / made.stdout.split()[-1] / "METADATA").read_text(encoding="utf-8"))


def test_the_page_on_an_index_is_the_readme_with_links_that_lead_somewhere(metadata: Message) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    page = str(metadata.get_payload())
    assert metadata["Description-Content-Type"] == "text/markdown"
    shown, written = (re.findall(r"\]\(([^)\s]+)\)", text) for text in (page, readme))
    assert len(shown) == len(written) > 20
    base = f"{urls(metadata)['Source']}/blob/v{metadata['Version']}/"
    for there, here in zip(shown, written, strict=True):
        if here.startswith("https://"):
            assert there == here
        else:
            assert there == base + here
            assert (ROOT / here.partition("#")[0]).exists(), here
    assert re.sub(re.escape(base), "", page) == readme


def urls(metadata: Message) -> dict[str, str]:
    found = {}
    for each in metadata.get_all("Project-URL", []):
        name, _, url = str(each).partition(", ")
        found[name] = url
    return found


def test_the_package_says_where_its_source_documentation_changes_and_reports_are(metadata: Message) -> None:
    found = urls(metadata)
    assert found.keys() == {"Source", "Documentation", "Changelog", "Security"}
    for url in found.values():
        assert url.startswith("https://")
        assert url.startswith(found["Source"]), "one place, so that one line changes when the project moves"
        path = url.partition("/blob/HEAD/")[2]
        assert (ROOT / path).exists()


def test_each_extra_is_imported_somewhere(metadata: Message) -> None:
    """One that nothing imports promises what is not there."""
    used = {name.partition(".")[0] for path in MODULES for _, name in imported(tree(path))}
    extras: dict[str, set[str]] = {name: set() for name in map(str, metadata.get_all("Provides-Extra", []))}
    for line in map(str, metadata.get_all("Requires-Dist", [])):
        if found := re.search(r"extra == '([^']+)'", line):
            extras[found[1]].add(re.split(r"[^\w.-]", line)[0].lower().replace("_", "-"))
    assert extras.pop("dev") >= set().union(*extras.values()), "what an extra needs is there for the tests"
    provided = packages_distributions()
    for extra, distributions in extras.items():
        assert distributions, extra
        for distribution in distributions:
            modules = {name for name, by in provided.items() if distribution in {each.lower() for each in by}}
            assert modules & used, f"the extra {extra} brings {distribution}, and nothing imports it"


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
