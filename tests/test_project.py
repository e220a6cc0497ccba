"""What is true of the project as a whole, whatever is in it."""

from __future__ import annotations

import ast
import email
import functools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from email.message import Message
from graphlib import TopologicalSorter
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


@functools.cache
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
    set_up = re.findall(r"--editable '\.\[([\w-]+)\]'", (ROOT / "Makefile").read_text())
    there = set().union(*(extras[name] for name in set_up))
    extras.pop("dev")
    assert there >= set().union(*extras.values()), "what an extra needs is there for the tests"
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


#: Files that import something inside a function, and what for.
LAZY = {
    "app/opening.py": "schedules and triggers: as long as the rest of a worker",
    "automation/triggers/files.py": "watchfiles, an extra",
    "automation/triggers/registry.py": "nats, an extra",
    "base/secrets.py": "pydantic-core, which asks for it",
    "base/system.py": "ctypes, 4 ms",
    "cli/commands/console.py": "the server, an extra",
    "cli/commands/serve.py": "the server, an extra",
    "cli/commands/watch.py": "rich, for a terminal",
    "cli/demo_view.py": "rich, for a terminal",
    "codec/annotations.py": "pydantic, 60 ms",
    "codec/outside.py": "pydantic, 60 ms",
    "codec/schema.py": "pydantic, 60 ms",
    "codec/swift.py": "pydantic-core, 10 ms",
    "plugin.py": "all of it: pytest loads the plugin wherever Holdfast is installed",
    "running/durable.py": "what executes runs: as long as all that declares them",
    "store/__init__.py": "the driver of a backend",
    "verbs/agent.py": "what executes runs, and the model",
    "verbs/step.py": "what executes runs",
}


def test_imports_stand_at_the_top_but_for_those_that_are_named() -> None:
    found = {
        path.relative_to(SRC).as_posix()
        for path in MODULES
        for function in ast.walk(tree(path))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for _ in imported(ast.Module(function.body, []))
    }
    assert found == LAZY.keys()


def test_modules_import_each_other_in_no_circle_for_types_neither() -> None:
    """What is imported for annotations only, import-linter leaves out; a reader has to follow it all the same."""
    names = {".".join(("holdfast", *path.relative_to(SRC).with_suffix("").parts)): path for path in MODULES}
    names = {name.removesuffix(".__init__"): path for name, path in names.items()}
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        needs = graph[name] = set[str]()
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module in names:
                inner = {f"{node.module}.{alias.name}" for alias in node.names} & names.keys()
                needs |= inner or {node.module}
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError


#: What a process has once, by nature. All else is passed to those who need it.
OF_THE_PROCESS = {
    "base/clock.py": "the wall clock, as tests move it",
    "base/faults.py": "the crash point that the environment names",
    "base/secrets.py": "what must not be written, whoever writes",
    "codec/functions.py": "plans of functions: a cache that lets go of them",
    "running/forgotten.py": "whether garbage is collected now",
    "store/forks.py": "what is told when the process is copied",
    "store/sqlite/guard.py": "locks are of the process, and so is the hook",
    "testing/processes.py": "processes that wait for the next test",
}
_CONTAINERS = {"dict", "list", "set", "deque", "OrderedDict", "defaultdict", "WeakSet", "WeakKeyDictionary", "local"}
_CHANGES = {"append", "add", "pop", "popitem", "update", "setdefault", "clear", "discard", "remove", "extend"}


def state_of_module(module: ast.Module) -> set[str]:
    """The names of a module that change while the process runs; what `functools` caches is left out."""
    found = {name for node in ast.walk(module) if isinstance(node, ast.Global) for name in node.names}
    mutable = {
        each.name
        for each in module.body
        if isinstance(each, ast.ClassDef)
        and any(getattr(part, "name", "") != "__init__" and any(stored(part)) for part in each.body)
    }
    changed = {
        ast.unparse(node.func.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES
    } | {
        ast.unparse(node.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load)
    }
    for node in module.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        name = ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
        match node.value:
            case ast.Call(func=func, args=args):
                made = ast.unparse(func).rpartition(".")[2]
                if made in mutable or (made in _CONTAINERS and not args):
                    found.add(name)
            case ast.Dict() | ast.List() | ast.Set() if name in changed:
                found.add(name)
    return found


def test_state_of_modules_is_the_processs_by_nature() -> None:
    found = {path.relative_to(SRC).as_posix(): state_of_module(tree(path)) for path in MODULES}
    assert {file for file, names in found.items() if names} == OF_THE_PROCESS.keys(), found


#: What asks the system for the time or for chance by itself, and why.
BY_ITSELF = {
    "running/options.py": {"os.urandom"},  # what the pause before a retry varies by: `base.ids` takes 5 ms to load
    "verbs/values.py": {"random.Random"},  # one that is seeded; outside of a run there is nothing to seed it with
}


def test_time_and_chance_come_from_base() -> None:
    sources = re.compile(
        r"(time\.(time|monotonic|perf_counter)(_ns)?|(datetime|date)\.(now|utcnow|today)|(uuid\.)?uuid[14]|os\.urandom"
        r"|(random|secrets)\.\w+)"
    )
    found: dict[str, set[str]] = {}
    for path in MODULES:
        place = path.relative_to(SRC).as_posix()
        for node in ast.walk(tree(path)) if not place.startswith(("base/", "testing/")) else ():
            if isinstance(node, ast.Call) and sources.fullmatch(ast.unparse(node.func)):
                found.setdefault(place, set()).add(ast.unparse(node.func))
    assert found == BY_ITSELF


#: Rows that are stored under a status that nobody is asked about: no run becomes what it was not.
STORED_ANEW = {
    "control/forking.py": "a fork is a new run",
    "control/mail.py": "it has asked",
    "control/upkeep/copying.py": "a frozen copy in another store",
    "control/upkeep/repairing.py": "what is left of a damaged run, quarantined",
    "journal/signing.py": "a repaired run in another store",
    "store/rows.py": "a row as it is read",
    "worker/starting.py": "a new run",
}


def test_whoever_writes_a_new_status_asks_what_may_follow() -> None:
    found = {
        path.relative_to(SRC).as_posix()
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("revised", "replace", "RunRow")
        for given in node.keywords
        if given.arg == "status" and "following(" not in ast.unparse(given.value)
    }
    assert {each for each in found if not each.startswith("testing/")} == STORED_ANEW.keys()


#: Exceptions that are no errors of `holdfast.errors`: who raises them for whom. Adapters, tools for tests and the demo
#: have their own.
OF_ONE_PART = {
    "cli/failure.py": "click shows it",
    "codec/proofs.py": "the proof of a value is given up",
    "codec/refusal.py": "a value is refused; whoever encodes says where it stood",
    "control/mail.py": "the run was given up meanwhile: look again",
    "control/upkeep/transfers.py": "becomes a line of what was not copied",
    "handle/served.py": "the status that a server has refused an act with",
    "running/bodies.py": "ends an attempt whose thread lives on",
    "server/problems.py": "becomes an answer",
    "store/mailing.py": "what mail does to a run could not be decided",
    "store/served/line.py": "the answer of a server, before it is known what it means",
    "store/sqlite/batches.py": "the commits of a batch are made one by one",
}


def test_errors_that_users_meet_are_in_one_file() -> None:
    found = {
        path.relative_to(SRC).as_posix()
        for path in MODULES
        for node in classes(tree(path))
        if any(ast.unparse(base).endswith(("Error", "Exception")) for base in node.bases)
    }
    found -= {"errors.py"}
    assert {each for each in found if not each.startswith(("ext/", "testing/", "demo/"))} == OF_ONE_PART.keys()


def test_data_has_slots() -> None:
    found = {
        f"{path.relative_to(SRC).as_posix()} {node.name}"
        for path in MODULES
        for node in classes(tree(path))
        for mark in map(ast.unparse, node.decorator_list)
        if "dataclass" in mark and "slots=True" not in mark
    }
    assert {each for each in found if not each.startswith("ext/")} == {"running/artifacts.py Artifact"}  # of its base


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


def test_no_file_of_the_core_is_longer_than_500_lines_and_no_other_than_600() -> None:
    lengths = {
        path.relative_to(SRC).as_posix(): len(path.read_text(encoding="utf-8", errors="replace").splitlines())
        for path in files()
        if path.is_relative_to(SRC)
    }
    most = {name: 600 if name.startswith(("testing/", "store/sql/")) else 500 for name in lengths}
    assert {name: length for name, length in lengths.items() if length > most[name]} == {}


def test_the_heart_has_as_many_lines_as_the_page_on_architecture_says() -> None:
    """They are there to tell how long reading takes."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    heart, _, more = page.partition("## The heart")[2].partition("###")[0].partition("| then read |")
    (said,) = re.findall(r"about ([\d,]+) are the heart", heart)
    named: list[Path] = []
    for part, limit in ((heart, said), (more, re.findall(r"Some ([\d,]+) more", heart)[0])):
        counts = [
            reading(*row, named=named) for row in re.findall(r"^\| (`.+?) \| ([\d,]+) \|", part, flags=re.MULTILINE)
        ]
        assert len(counts) > 5
        assert 0.95 < sum(counts) / int(limit.replace(",", "")) < 1.1, sum(counts)
    assert len(set(named)) == len(named), "nothing is read twice"


def reading(listed: str, said: str, *, named: list[Path]) -> int:
    """How many lines the files of a row have, which says so within a tenth."""
    count, folder = 0, SRC
    for name in re.findall("`([^`]+)`", listed):
        path = SRC / name if "/" in name else folder / name
        folder = path.parent
        named.append(path)
        count += len(path.read_text(encoding="utf-8").splitlines())
    assert 0.9 < count / int(said.replace(",", "")) < 1.1, f"{listed}: {count}"
    return count


#: How many functions of a folder take more than three arguments by position. They may only become fewer.
MORE_BY_POSITION = {
    "cli": 9,
    "codec": 4,
    "control": 9,
    "handle": 2,
    "history": 3,
    "journal": 3,
    "running": 10,
    "server": 5,
    "store": 24,
    "verbs": 20,
    "worker": 1,
}
#: Those whose shape others have given them.
FIXED_SHAPES = {
    "app/starts.py Starts.signal",  # SendSignal
    "base/system.py lock_open_file",  # fcntl.lockf
    "codec/functions.py with_defaults_of",  # a call: the function, its args, its kwargs; and the text
    "ext/langgraph_saver.py Saver.aput",  # BaseCheckpointSaver
    "ext/langgraph_saver.py Saver.aput_writes",
}


def functions(node: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef, bool]]:
    """(its qualified name, the function, whether it is a method) for all functions, nested ones too."""
    for child in ast.iter_child_nodes(node):
        inside = within
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{within}{child.name}", child, isinstance(node, ast.ClassDef)
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inside = f"{within}{child.name}."
        yield from functions(child, inside)


def positional(function: ast.FunctionDef | ast.AsyncFunctionDef, *, is_method: bool) -> int:
    """How many arguments can be given by position, self aside. Commands and the API get theirs by name."""
    marks = [ast.unparse(each) for each in function.decorator_list]
    is_command = any(each in mark for mark in marks for each in ("click.", ".command(", "router."))
    is_command = is_command or function.name.endswith("_command")
    is_special = function.name.startswith("__") and function.name != "__init__"
    if is_command or is_special or "overload" in marks:
        return 0
    count = len(function.args.posonlyargs) + len(function.args.args)
    return count - (is_method and "staticmethod" not in marks)


def test_no_more_than_three_arguments_are_given_by_position() -> None:
    found = [
        f"{path.relative_to(SRC).as_posix()} {name}"
        for path in MODULES
        for name, function, is_method in functions(tree(path))
        if positional(function, is_method=is_method) > 3
    ]
    assert set(found) >= FIXED_SHAPES
    counts = Counter(each.partition("/")[0] for each in found if each not in FIXED_SHAPES)
    more = {folder: count for folder, count in counts.items() if count > MORE_BY_POSITION.get(folder, 0)}
    assert more == {}, "\n".join(each for each in found if each.partition("/")[0] in more)


#: Classes whose methods are what they are for, however many there are.
LISTS = {
    "Holdfast": "what an app can do: each method hands on to a part",
    "Run": "what can be done with a run",
    "Store": "the contract of a store",
    "SqliteStore": "the contract",
    "PostgresStore": "the contract",
}
#: Others with more than thirty methods. They may only become fewer, and smaller.
MORE_METHODS: dict[str, int] = {}


def test_no_class_has_more_than_thirty_methods() -> None:
    methods = {
        node.name: len({each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)})
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
    }
    found = {name: count for name, count in methods.items() if name not in LISTS}
    assert {name: count for name, count in found.items() if count > MORE_METHODS.get(name, 30)} == {}


def classes(module: ast.Module) -> Iterator[ast.ClassDef]:
    yield from (node for node in ast.walk(module) if isinstance(node, ast.ClassDef))


def methods(node: ast.ClassDef) -> list[str]:
    return [each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


#: Folders with vocabularies of their own: the API's schemas, what is drawn, what is imitated.
APART = ("cli/", "demo/", "ext/", "plugin.py", "server/", "testing/")


def test_a_name_of_the_core_means_one_class() -> None:
    """What each backend has of its own apart, and the public `Plan` of a run, which holds the plan as it is stored."""
    found: dict[str, set[str]] = {}
    for path in MODULES:
        place = path.relative_to(SRC).as_posix()
        for node in classes(tree(path)):
            if not place.startswith(APART) and not node.name.startswith("_"):
                found.setdefault(node.name, set()).add(re.sub("^store/(sqlite|postgres)/", "store/*/", place))
    assert found.pop("Plan") == {"model/plans.py", "verbs/plan.py"}
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def stored(node: ast.AST) -> Iterator[ast.Attribute]:
    """The attributes that something assigns to."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            yield each


def owners(attribute: ast.Attribute) -> Iterator[str]:
    """Through whom an attribute is reached: `scope.run.life.dead` is reached through life, run and scope."""
    value = attribute.value
    while isinstance(value, ast.Attribute):
        yield value.attr
        value = value.value
    if isinstance(value, ast.Name):
        yield value.id


def test_the_context_of_a_run_is_its_parts() -> None:
    [context] = [node for node in classes(tree(SRC / "running" / "context.py")) if node.name == "RunContext"]
    attributes = {each.attr for each in stored(context) if list(owners(each)) == ["self"]}
    assert {"life", "gate", "activity", "waits", "inbox", "journal", "replay", "ticks"} <= attributes
    assert len(attributes) <= 20
    assert len(methods(context)) <= 30


def test_nobody_writes_into_a_run_or_a_branch_but_itself() -> None:
    """They have methods, named after what happens."""
    found = [
        f"{shown(path)}:{each.lineno}: {ast.unparse(each)}"
        for path in MODULES
        for each in stored(tree(path))
        if {"run", "_run", "scope", "_scope", "_root"} & set(owners(each)) and not each.attr.startswith("__")
    ]
    assert not found, "\n".join(found)


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
