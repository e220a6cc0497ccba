"""What the code of an agent is: a digest of its module and of what that imports of the same project.

Only files are looked at, so the digest is the same on every host, in every working directory, and whether the agent's
file was imported or started as a script. Imports are found in the text, those inside functions too, and looked for
where the file lies: in the folder that holds its topmost package (for a script: its own folder), and in the folders
above that Python looks into. What is not found there is not part of the project: the standard library, what was
installed. What is imported by a name that is made up at run time is not seen.

Tokens count, not bytes: comments and blank lines change nothing.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from holdfast.base.data import brisk
from holdfast.base.system import blake2b

# The standard library's tokenizer takes seven times as long, and a project may have hundreds of files.
_WORD = r"""
      \\\n | \#[^\n]* | [^\S\n]+ | \n\s*(?:\#|\Z)(?:[^\n]*)   # layout: not captured
    | (
        \"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*\""" | '''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''
      | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*'
      | \w+ | \n\s* | .
      )
    """
_BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_OURS = "holdfast"
_MANY = 4096


def code_of(fn: Callable[..., Any]) -> str:
    """A text that changes when the code of the function's module, or of what that imports of its project, changes."""
    fn = inspect.unwrap(fn)
    try:
        path = os.path.abspath(inspect.getfile(fn))
    except TypeError:
        return _bare(fn)
    if not os.path.isfile(path):  # typed in, or made up by `exec`
        return _bare(fn)
    project = _Project(path)
    own = [f"{os.path.relpath(each, project.folder)} {_read(each).digest}" for each in sorted(project.files - {path})]
    return "\n".join([_read(path).digest, *own]).replace(os.sep, "/")


def _bare(fn: Callable[..., Any]) -> str:
    return fn.__code__.co_code.hex() if hasattr(fn, "__code__") else repr(type(fn))


class _Import(NamedTuple):
    """`from ..a.b import c`: two levels up, then a, b, and c, which may be a module."""

    level: int
    module: tuple[str, ...]
    names: tuple[str, ...]


@brisk
class _Source:
    digest: str
    imports: tuple[_Import, ...]


class _Project:
    """The files of a project that one of them needs."""

    def __init__(self, path: str) -> None:
        self.folder = folder = os.path.dirname(path)
        while os.path.isfile(os.path.join(folder, "__init__.py")):
            folder = os.path.dirname(folder)
        self._top = folder
        self._package = os.path.relpath(path, folder).split(os.sep)[0].removesuffix(".py")
        self.files: set[str] = set()
        followed: set[tuple[_Import, str]] = set()
        todo = [path]
        while todo:
            each = todo.pop()
            if each not in self.files:
                self.files.add(each)
                here = os.path.dirname(each)
                new = {(one, here if one.level else "") for one in _read(each).imports} - followed
                followed |= new
                for one, place in new:
                    todo += self._found(one, place)

    def _found(self, one: _Import, folder: str) -> Iterator[str]:
        """The files that an import reads: the module, the packages that it is in, and the modules taken from it.

        Which of several Python would take depends on how it was started; all of them count.
        """
        if one.level:
            for _ in range(one.level - 1):
                folder = os.path.dirname(folder)
        for base in [folder] if one.level else self._bases(one.module[0]):
            place = base
            if one.level:
                yield from _files(base)
            for part in one.module:
                place = os.path.join(place, part)
                yield from _files(place)
            for name in one.names:
                yield from _files(os.path.join(place, name))

    def _bases(self, first: str) -> Iterator[str]:
        """The folders in which a module of this name may be one of the project."""
        if first == _OURS:
            return
        if os.path.basename(self._top) not in _INSTALLED or first == self._package:
            yield self._top
        # A package without `__init__.py` is known by its name alone, and what lies beside it by where Python looks.
        roots = {os.path.abspath(each) for each in sys.path if os.path.basename(each) not in _INSTALLED}
        folder = self._top
        while (above := os.path.dirname(folder)) != folder:
            if os.path.basename(folder) == first or above in roots:
                yield above
            folder = above


def _files(place: str) -> list[str]:
    """The file of a module or package, if it is there."""
    return [path for path in (f"{place}.py", os.path.join(place, "__init__.py")) if os.path.isfile(path)]


def _read(path: str) -> _Source:
    try:
        stat = os.stat(path)
        return _read_once(path, stat.st_mtime_ns, stat.st_size)
    except OSError:
        return _Source("", ())


@functools.lru_cache(_MANY)
def _read_once(path: str, changed_ns: int, size: int) -> _Source:
    """What a file says; one that cannot be read counts by its name."""
    try:
        with tokenize.open(path) as file:
            words = _words(file.read())
    except (OSError, SyntaxError, ValueError):
        return _Source("", ())
    digest = blake2b("\n".join(words).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return _Source(digest, tuple(_imports(words)))


def _words(text: str) -> list[str]:
    """The tokens of a source text. A new line outside of brackets is one, with its indentation; layout is none."""
    words = []
    depth = 0
    for word in filter(None, re.findall(_WORD, "\n" + text, re.VERBOSE | re.DOTALL)):
        if word in _BRACKETS:
            depth += _BRACKETS[word]
        elif word[0] == "\n":
            if depth > 0:
                continue
            word = word[word.rindex("\n") :]  # without the blank lines
        words.append(word)
    return words


def _imports(words: list[str]) -> Iterator[_Import]:
    at = -1
    while True:
        try:
            at = words.index("import", at + 1)
        except ValueError:
            return
        end = next((i for i in range(at, len(words)) if words[i][0] in "\n;"), len(words))
        given = [part.split() for part in " ".join(words[at + 1 : end]).strip("() ").split(",")]
        begin = at
        while begin > 0 and (words[begin - 1] == "." or words[begin - 1].isidentifier()):
            begin -= 1
            if words[begin] == "from":
                break
        if words[begin] == "from":
            source = words[begin + 1 : at]
            level = next((i for i, word in enumerate(source) if word != "."), len(source))
            names = tuple(part[0] for part in given if part and part[0].isidentifier())
            yield _Import(level, tuple(word for word in source if word != "."), names)
        else:
            for part in given:
                module = part[: part.index("as")] if "as" in part else part
                if module:
                    yield _Import(0, tuple(word for word in module if word != "."), ())
