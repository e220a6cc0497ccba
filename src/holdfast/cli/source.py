"""The user's code: loading the file that has the agents, and making arguments of what was typed."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
import sys
import traceback
import typing
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from holdfast.cli.failure import FAILED, USAGE, Failure
from holdfast.cli.inputs import parse_json, text_of
from holdfast.cli.project import Project, check_ours, find_project
from holdfast.cli.text import clean
from holdfast.codec import said_by
from holdfast.codec.forms import read_json
from holdfast.verbs.agent import Agent, Call

Found = dict[str, Agent[..., Any]]


# loading


def split_source(given: str) -> tuple[str, str | None]:
    """`FILE.py:AGENT` or `module:AGENT` in its parts; the agent may be missing."""
    place, colon, name = given.rpartition(":")
    is_path = "/" in name or name.endswith(".py")  # a file's name may have a colon in it
    return (place, name) if colon and place and not is_path else (given, None)


def is_source(given: str) -> bool:
    """Does it name code, and not a run?"""
    place, name = split_source(given)
    if place.endswith(".py"):
        return True
    package = place.partition(".")[0]
    return name is not None and package.isidentifier() and importlib.util.find_spec(package) is not None


def load(given: str) -> tuple[ModuleType, str | None]:
    """Import what `FILE.py[:AGENT]` or `module[:AGENT]` names; the module and the agent's name."""
    place, name = split_source(given)
    path: Path | None = None
    if place.endswith(".py") or "/" in place or os.path.exists(place):
        path = Path(place).resolve()
        if not path.exists():
            raise Failure(f"There is no file {place}. Give the path of the file with your agent: FILE.py:AGENT.", USAGE)
        if not path.is_file():
            raise Failure(f"{place} is a directory; give the file with your agent: FILE.py:AGENT.", USAGE)
        module_name, folder = _module_of(path)
    else:
        module_name, folder = place, Path.cwd()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return _import(module_name, given, path, is_alone=path is not None and folder == path.parent), name


def _module_of(path: Path) -> tuple[str, Path]:
    """The name to import a file by, and the folder that must be on `sys.path`: above all packages it is in.

    An `__init__.py` is executed too, so one that is neither ours nor of whom the file belongs to ends the package:
    anybody can put one into a folder that all may write.
    """
    owners = {0, os.geteuid(), path.stat().st_uid}
    parts, folder = [path.stem], path.parent
    while (start := folder / "__init__.py").exists() and start.stat().st_uid in owners:
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts), folder


def _import(name: str, given: str, path: Path | None, *, is_alone: bool) -> ModuleType:
    """`is_alone`: it is a file that is in no package."""
    try:
        known = sys.modules.get(name)
        if path is not None and is_alone and (known is None or getattr(known, "__file__", None) != str(path)):
            # A file may have the name of a module that is loaded already, or no name that can be imported.
            name = name if known is None and name.isidentifier() else f"holdfast_file_{name}"
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None
            assert spec.loader is not None
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
        return importlib.import_module(name)
    except SyntaxError as error:
        raise Failure(f"{given} cannot be loaded: {error.msg} ({error.filename}:{error.lineno}).", FAILED) from error
    except ModuleNotFoundError as error:
        if path is None and (meant := _meant(name)):
            raise Failure(f"There is no module {given!r}. Did you mean `{meant}`?", USAGE) from error
        if error.name == name.partition(".")[0] and path is None:
            raise Failure(
                f"There is no file or module {given!r}. Give FILE.py:AGENT or module:AGENT.", USAGE
            ) from error
        raise Failure(f"{given} cannot be loaded: {error}{_where(error, path)}.", FAILED) from error
    except (Exception, SystemExit) as error:  # whatever the user's code does while it is imported
        raise Failure(f"{given} cannot be loaded: {said_by(error)}{_where(error, path)}.", FAILED) from error


def _meant(name: str) -> str:
    """The agent that was meant by a name with a dot where a colon belongs, if there is one."""
    place, _, last = name.rpartition(".")
    is_file = place.endswith(".py") and Path(place).is_file()
    is_agent = place in sys.modules and isinstance(vars(sys.modules[place]).get(last), Agent)
    return f"{place}:{last}" if is_file or is_agent else ""


def _where(error: BaseException, path: Path | None) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if path is None or Path(f.filename) == path]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own and not own[-1].filename.startswith("<") else ""


def agents_in(module: ModuleType) -> Found:
    """The agents a module has, by name; imported ones included."""
    found: Found = {}
    for value in vars(module).values():
        if isinstance(value, Agent):
            found.setdefault(value.name, value)
    return found


def one_agent(given: str) -> Agent[..., Any]:
    """The agent that `FILE[:AGENT]` names; the name may be left out if there is only one."""
    module, name = load(given)
    found = agents_in(module)
    if name is not None:
        value = vars(module).get(name)
        agent = value if isinstance(value, Agent) else found.get(name)
        if agent is None:
            raise Failure(f"{given}: there is no agent {name!r}; {_listed(found)}.", USAGE)
        return agent
    own = {key: a for key, a in found.items() if a.fn.__module__ == module.__name__} or found
    if len(own) != 1:
        raise Failure(f"{given}: {_listed(own)}. Say which: {split_source(given)[0]}:AGENT.", USAGE)
    return next(iter(own.values()))


def _listed(found: Iterable[str]) -> str:
    names = ", ".join(found)
    return f"it has the agents {names}" if names else "it has no agent (a function decorated with @hf.agent)"


def known_agents(sources: Iterable[str], app: str | None) -> tuple[Found, Project]:
    """The agents of the sources given, of --app, of HOLDFAST_APP, or of pyproject.toml, whichever is given first.

    And the project, if it was asked for them.
    """
    given = [*sources] or [each for each in (app or os.environ.get("HOLDFAST_APP") or "").split(",") if each]
    project = Project() if given else find_project(Path.cwd())
    if project.agents:
        print(clean(f"Agents of {project.file}: {', '.join(project.agents)}", one_line=True), file=sys.stderr)
    found: Found = {}
    for each in given or [_of_project(project, each) for each in project.agents]:
        module, name = load(each)
        inside = agents_in(module)
        if name is not None and name not in inside and not isinstance(vars(module).get(name), Agent):
            raise Failure(f"{each}: there is no agent {name!r}; {_listed(inside)}.", USAGE)
        found |= inside
    return found, project


def _of_project(project: Project, given: str) -> str:
    """What a project names: a path is relative to its file, and must be as trustworthy."""
    place, name = split_source(given)
    if not place.endswith(".py"):
        return given
    assert project.file is not None
    path = project.file.parent / place
    if path.exists():
        check_ours(project, path)
    return str(path) if name is None else f"{path}:{name}"


# arguments


def call_of(agent: Agent[..., Any], arguments: tuple[str, ...], given_input: str | None) -> Call[Any]:
    """The call that was typed."""
    if arguments and given_input is not None:
        raise Failure("Give the arguments or --input, not both.", USAGE)
    signature = inspect.signature(agent.fn)
    args: list[Any]
    kwargs: dict[str, Any] = {}
    if given_input is None:
        args = _typed(agent, signature, arguments)
    else:
        args, kwargs = _read(agent, signature, given_input)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise Failure(f"{agent.name} {error}. It takes: {_usage(agent, signature)}", USAGE) from error
    return agent(*args, **kwargs)


def _usage(agent: Agent[..., Any], signature: inspect.Signature) -> str:
    return f"{agent.name}{signature.replace(return_annotation=signature.empty)}"


def _hints(agent: Agent[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(agent.fn, include_extras=True)
    except Exception:  # names that exist for type checkers only
        return {}


def _typed(agent: Agent[..., Any], signature: inspect.Signature, arguments: tuple[str, ...]) -> list[Any]:
    """What was typed, as the annotations want it."""
    hints = _hints(agent)
    positional = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = [p for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL]
    if len(arguments) > len(positional) and not rest:
        raise Failure(f"{len(arguments)} arguments are too many. It takes: {_usage(agent, signature)}", USAGE)
    parameters = positional + rest * len(arguments)
    return [_from_text(hints.get(p.name, Any), text, p.name) for p, text in zip(parameters, arguments, strict=False)]


def _from_text(annotation: Any, text: str, name: str) -> Any:
    if annotation in (Any, object):
        try:
            return read_json(text)
        except ValueError:
            return text
    adapter = _adapter(annotation, name)
    with suppress(ValidationError):
        return adapter.validate_python(text, strict=True)
    with suppress(ValidationError):
        return adapter.validate_json(text)
    try:
        return adapter.validate_python(text)
    except ValidationError as error:
        raise _misfit(name, text, error) from error


def _from_json(annotation: Any, value: Any, name: str) -> Any:
    if annotation in (Any, object):
        return value
    text = json.dumps(value)
    try:
        return _adapter(annotation, name).validate_json(text)
    except ValidationError as error:
        raise _misfit(name, text, error) from error


def _adapter(annotation: Any, name: str) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation)
    except Exception as error:  # pydantic runs hooks of foreign classes here
        raise Failure(
            f"Argument {name}: its type {annotation!r} cannot be read from the command line.", USAGE
        ) from error


def _misfit(name: str, text: str, error: ValidationError) -> Failure:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    shown = text if len(text) <= 60 else f"{text[:59]}…"
    return Failure(f"Argument {name}{f' ({where})' if where else ''}: {first['msg']}; got {shown}", USAGE)


def _read(agent: Agent[..., Any], signature: inspect.Signature, given: str) -> tuple[list[Any], dict[str, Any]]:
    """--input: an object with the arguments by name, a list of them, or the value of the only one."""
    value = parse_json(text_of(given, "--input"), "--input")
    hints = _hints(agent)
    parameters = signature.parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if isinstance(value, dict) and (takes_any or value.keys() <= parameters.keys()):
        return [], {key: _from_json(hints.get(key, Any), each, key) for key, each in value.items()}
    if len(parameters) == 1:
        (name,) = parameters
        return [_from_json(hints.get(name, Any), value, name)], {}
    if isinstance(value, list) and len(value) <= len(parameters):
        return [_from_json(hints.get(n, Any), v, n) for n, v in zip(parameters, value, strict=False)], {}
    raise Failure(f"--input takes an object with the arguments by name. It takes: {_usage(agent, signature)}", USAGE)
