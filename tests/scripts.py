"""Scripts in processes of their own, as `python` runs them, forked from one that has Holdfast imported already."""

from __future__ import annotations

import atexit
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.forkserver import shared_forkserver


class Script:
    """`python ARGUMENTS` under way: a file, `-m` a module or `-c` some code, and what these are given."""

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        self._arguments = arguments
        with open(os.devnull) as nothing:
            self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
            self._process = shared_forkserver().start(
                be_python,
                streams=[each.fileno() for each in (nothing, self._out, self._err)],
                env=dict(os.environ if env is None else env),
                only=True,
                folder=str(cwd or Path.cwd()),
                words=arguments,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        """What it said, once it has ended."""
        code = self._process.wait(timeout_s)
        said = []
        for file in (self._out, self._err):
            with file:
                file.seek(0)
                said.append(file.read().decode())
        return subprocess.CompletedProcess(self._arguments, code, *said)


def python(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS`, from its beginning to its end."""
    return Script(*arguments, env=env, cwd=cwd).ended()


def be_python(folder: str, words: list[str]) -> None:
    """In the forked process: what `python` does with its arguments."""
    os.chdir(folder)
    code = 0
    try:
        match words:
            case ["-c", text, *rest]:
                sys.argv, sys.path[:0] = ["-c", *rest], [""]
                exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})
            case ["-m", name, *rest]:
                sys.argv, sys.path[:0] = [name, *rest], [folder]
                runpy.run_module(name, run_name="__main__", alter_sys=True)
            case [file, *rest]:
                sys.argv, sys.path[:0] = [file, *rest], [os.path.dirname(os.path.abspath(file))]
                runpy.run_path(file, run_name="__main__")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    threading._shutdown()  # type: ignore[attr-defined]  # as it does in the end
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
