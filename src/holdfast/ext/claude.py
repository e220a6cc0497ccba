"""A session store of the Claude Agent SDK in the store of the runs: what was said in a session, for whoever resumes it.

    options = ClaudeAgentOptions(session_store=SessionStore(), resume=session_id)     # in the body of a step or effect
    options = ClaudeAgentOptions(session_store=SessionStore(app), resume=session_id)  # outside of a run

The SDK hands on what its process writes, in batches. A batch is there whole or not at all, and once: entries are known
by their uuid, those without one by what came with them. Each transcript of a session, its own and those of subagents,
has a number and numbered entries. The head of the session says which there are, and advances with them in one
transaction, so that those who write at the same time do so one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from claude_agent_sdk import fold_session_summary

import holdfast as hf
from holdfast import ext
from holdfast.errors import StoreCorrupt, UsageError

if TYPE_CHECKING:
    from claude_agent_sdk import types as sdk

    from holdfast.app.app import Holdfast

_MAIN: Final = ""  # the transcript of the session itself, among those of its subagents


@dataclass
class _Head:
    """Of each transcript its number and how many entries it has; the numbers of those that are to be removed."""

    next: int = 0
    mtime: int = 0
    transcripts: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    removed: list[int] = field(default_factory=list[int])
    summary: dict[str, Any] | None = None


class _Session(NamedTuple):
    project: str
    id: str

    def entries(self, number: int) -> str:
        return f"{number}:{json.dumps(self)}"

    def uuids(self, number: int) -> str:
        return f"uuids:{self.entries(number)}"


class SessionStore:
    """Keeps sessions next to the runs, for `session_store=` of the SDK. What a call stores is on disk when it returns.

    Sessions belong to a project: the directory that the SDK works in. `project` names one for all directories, for
    workers that do not share theirs. In the code of an agent its calls raise: `query` belongs into a step or effect.

    Example: `query(prompt="Go on.", options=ClaudeAgentOptions(session_store=SessionStore(app), resume=session_id))`
    """

    def __init__(self, app: Holdfast | None = None, *, name: str = "claude", project: str | None = None) -> None:
        self._documents = app.extension(name) if app is not None else ext.documents(name)
        self._project = project

    async def append(self, key: sdk.SessionKey, entries: list[sdk.SessionStoreEntry]) -> None:
        """Add what was said, all of it or nothing; what is there already is not added again."""
        session, path = self._place(key)
        texts, uuids = [json.dumps(each) for each in entries], [each.get("uuid") or None for each in entries]
        first = {uuid: at for at, uuid in reversed([*enumerate(uuids)])}
        while True:
            head, revision = await self._head(session)
            number, count = head.transcripts.get(path, (head.next, 0))
            known = await self._known(session.uuids(number), uuids) if count else {}
            if await self._has_batch(session.entries(number), texts, [known.get(each or "") for each in uuids]):
                return
            new = {
                at: uuid for at, uuid in enumerate(uuids) if uuid is None or (uuid not in known and first[uuid] == at)
            }
            if not new:
                return
            await self._remove(session, head.removed)
            head.removed, head.next = [], max(head.next, number + 1)
            head.transcripts[path] = [number, count + len(new)]
            head.mtime = max(head.mtime + 1, int(hf.now().timestamp() * 1000))
            if path == _MAIN:
                head.summary = _folded(head, key, [entries[at] for at in new])
            places = dict(zip(new, range(count, count + len(new)), strict=True))
            others = {
                session.entries(number): {_key(places[at]): (texts[at], 0) for at in new},
                session.uuids(number): {json.dumps(uuid): (str(places[at]), 0) for at, uuid in new.items() if uuid},
            }
            if await self._advance(session, head, revision, others=others):
                return

    async def load(self, key: sdk.SessionKey) -> list[sdk.SessionStoreEntry] | None:
        """What was said, in order; None if nothing was."""
        session, path = self._place(key)
        while True:
            head, revision = await self._head(session)
            if path not in head.transcripts:
                return None
            number, count = head.transcripts[path]
            found = await self._documents.read(session.entries(number))
            if len(found) >= count:  # those behind were added meanwhile
                return [json.loads(each.text) for each in found[:count]]
            if (await self._head(session))[1] == revision:
                raise StoreCorrupt(f"Session {session.id} of Claude: {count - len(found)} of {count} entries are lost.")

    async def list_sessions(self, project_key: str) -> list[sdk.SessionStoreListEntry]:
        """The sessions of a project, and when they changed last."""
        return [{"session_id": name, "mtime": head.mtime} for name, head in await self._heads(project_key)]

    async def list_session_summaries(self, project_key: str) -> list[sdk.SessionSummaryEntry]:
        """What the SDK has noted of each session of a project."""
        heads = await self._heads(project_key)
        return [{"session_id": name, "mtime": head.mtime, "data": head.summary or {}} for name, head in heads]

    async def delete(self, key: sdk.SessionKey) -> None:
        """Forget a session with its subagents, or the one subagent that the key names."""
        session, path = self._place(key)
        while True:
            head, revision = await self._head(session)
            gone = [each for each in head.transcripts if path in (_MAIN, each)]
            head.removed += [head.transcripts.pop(each)[0] for each in gone]
            head.summary = None if path == _MAIN else head.summary
            if not gone or await self._advance(session, head, revision, others={}):
                break
        await self._remove(session, head.removed)  # if it is killed here, the next change of the session does that

    async def list_subkeys(self, key: sdk.SessionListSubkeysKey) -> list[str]:
        """The subagents of a session."""
        head, _ = await self._head(self._place(key)[0])
        return [each for each in head.transcripts if each != _MAIN]

    def _place(self, key: sdk.SessionKey | sdk.SessionListSubkeysKey) -> tuple[_Session, str]:
        _check_where()
        if key.get("subpath") == _MAIN:
            raise UsageError("A subagent of a session of Claude has a name: for the session itself leave subpath out.")
        return _Session(self._project or key["project_key"], key["session_id"]), str(key.get("subpath", _MAIN))

    async def _head(self, session: _Session) -> tuple[_Head, int]:
        found = await self._documents.get(_heads_of(session.project), json.dumps(session.id))
        return (_Head(), 0) if found is None else (_Head(**json.loads(found.text)), found.revision)

    async def _heads(self, project_key: str) -> list[tuple[str, _Head]]:
        _check_where()
        found = await self._documents.read(_heads_of(self._project or project_key))
        heads = [(json.loads(each.key), _Head(**json.loads(each.text))) for each in found]
        return [(name, head) for name, head in heads if _MAIN in head.transcripts]

    async def _advance(
        self, session: _Session, head: _Head, revision: int, *, others: Mapping[str, Mapping[str, tuple[str, int]]]
    ) -> bool:
        space, name, text = _heads_of(session.project), json.dumps(session.id), json.dumps(asdict(head))
        return await self._documents.advance(space, name, text, revision=revision, others=others)

    async def _remove(self, session: _Session, numbers: Sequence[int]) -> None:
        """No number is given twice, so that nobody writes where somebody removes."""
        for number in numbers:
            await self._documents.remove(session.entries(number))
            await self._documents.remove(session.uuids(number))

    async def _known(self, space: str, uuids: Sequence[str | None]) -> dict[str, int]:
        """Where the entries are that are there already."""
        names = sorted({json.dumps(uuid) for uuid in uuids if uuid})
        return {json.loads(each.key): int(each.text) for each in await self._documents.read(space, names)}

    async def _has_batch(self, space: str, texts: Sequence[str], places: Sequence[int | None]) -> bool:
        """Is all of it there, in one piece? Then it is told again, entries without a uuid too."""
        start = next((place - at for at, place in enumerate(places) if place is not None), None)
        if start is None:
            return not texts
        found = await self._documents.read(space, [_key(start + at) for at in range(len(texts))])
        return [each.text for each in found] == texts


def _check_where() -> None:
    if ext.active():
        raise UsageError(
            "The session store of Claude was used in the code of an agent, where a replay would read something else. "
            "Call `query`, and whatever else uses the store, in a step or an effect."
        )


def _folded(head: _Head, key: sdk.SessionKey, entries: list[sdk.SessionStoreEntry]) -> dict[str, Any]:
    before: sdk.SessionSummaryEntry | None = None
    if head.summary is not None:
        before = {"session_id": key["session_id"], "mtime": head.mtime, "data": head.summary}
    return fold_session_summary(before, key, entries)["data"]


def _heads_of(project: str) -> str:
    return f"sessions:{json.dumps(project)}"


def _key(number: int) -> str:
    return f"{number:012}"
