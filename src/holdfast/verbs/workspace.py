"""Workspaces: directories that go with a run."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from holdfast.base.config import workspaces_home
from holdfast.codec import digest
from holdfast.errors import UsageError
from holdfast.model import Kind
from holdfast.running.call import place
from holdfast.running.scopes import in_branch
from holdfast.running.workspaces import Workspace, Workspaces

_CALL = "hf.workspace"
_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"


async def workspace(name: str, *, ignore: Sequence[str] = ()) -> Workspace:
    """A directory that goes with the run, on whatever machine it executes. Hand it to steps and effects.

    A body that is given it finds what the journal says, and what it leaves is the next version, stored before its
    outcome is recorded. After a crash the next body finds the last recorded version, on this machine or another; an
    attempt that fails or is cut off is taken back. One body at a time has it. Modes, links inside the directory,
    deletions and empty directories are kept. `ignore` has patterns (`"*.pyc"`, `"build/out"`) for what is neither
    stored nor taken back.

    Example:
        repo = await hf.workspace("repo", ignore=[".venv", "*.pyc"])
        await clone(repo, url)
    """
    scope = in_branch("hf.workspace()")
    run = scope.run
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
        raise UsageError(
            f"hf.workspace() takes a name of letters, digits, '_', '-' and '.', at most 100, that begins with a letter "
            f"or digit; got {name!r}."
        )
    if isinstance(ignore, str) or not all(isinstance(each, str) and each.strip("/") for each in ignore):
        raise UsageError(f'hf.workspace(ignore=) takes a list of patterns, like [".venv", "*.pyc"]; got {ignore!r}.')
    workspaces = run.outputs.workspaces
    if not isinstance(workspaces, Workspaces):
        row = run.journal.row
        workspaces = Workspaces(
            run, run.host.store, home=workspaces_home(run.host.settings), nonce=f"{row.nonce}/{row.id}"
        )
        run.outputs.use(workspaces)
    named = digest(json.dumps(name))
    key, entry = place(scope, _CALL, named)
    if entry is None or entry.outcome is None:
        kept = json.dumps({"name": name, "ignore": list(ignore)})
        run.journal.add(Kind.done, key, _CALL, digest=named, payload=kept)
    else:
        run.ticks.at_once(entry)
    return workspaces.open(name, tuple(ignore))
