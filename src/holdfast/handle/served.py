"""The handle of a run that is behind a server: looked at as any other, acted on by the server's API.

Who acts is who the token belongs to: `by` is the server's to say. Each act has a key of its own, so that a request
whose answer was lost is sent again and done once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, BinaryIO, Final, TypeVar, cast
from urllib.parse import quote

from holdfast.base.ids import new_uuid
from holdfast.codec import MISSING, coder_for
from holdfast.errors import (
    AlreadyDecided,
    AlreadySettled,
    ConflictingSend,
    ConflictingStart,
    HoldfastError,
    QuestionChanged,
    RunFinished,
    RunMoved,
    RunNotFound,
    RunPruned,
    Unserialisable,
    UsageError,
)
from holdfast.handle.decisions import Question
from holdfast.handle.forks import Wanted
from holdfast.handle.run import Run
from holdfast.model import QuestionState, RunId, Status, ThreadId
from holdfast.model.budgets import Budget
from holdfast.store.contract import Store
from holdfast.store.served.line import API, Refusal
from holdfast.store.served.store import ServedStore, error_of

R_co = TypeVar("R_co", covariant=True)

_KINDS: Final[Mapping[str, type[HoldfastError]]] = {
    "already_settled": AlreadySettled,
    "question_changed": QuestionChanged,
    "conflicting_start": ConflictingStart,
    "conflicting_send": ConflictingSend,
    "moved": RunMoved,
    "no_such_run": RunNotFound,
    "no_such_question": RunNotFound,
}


async def act(
    store: Store, method: str, path: str, *, body: Mapping[str, Any] | BinaryIO | None = None, timeout_s: float = 0.0
) -> Any:
    """Have the server of a store do something; raises what doing it here would have raised."""
    line = cast("ServedStore", store).line
    key = new_uuid().hex if method == "POST" else ""
    try:
        return await line.ask(method, API + path, body, key=key, timeout_s=timeout_s)
    except Refusal as refused:
        raise _error(refused) from None


async def name_at(store: Store) -> str:
    """Who the token belongs to."""
    try:
        return str((await cast("ServedStore", store).line.ask("GET", "/session"))["name"])
    except Refusal as refused:
        raise _error(refused) from None


def place(*parts: str) -> str:
    """A path of ids and names."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def _error(refused: Refusal) -> Exception:
    more = refused.more
    match refused.kind:
        case "run_finished":
            return RunFinished(refused.detail, status=str(more.get("was", "")))
        case "pruned":
            return RunPruned(refused.detail, status=str(more.get("was", "")))
        case "already_decided":
            return AlreadyDecided(refused.detail, state=str(more.get("state", "")), by=more.get("by"))
        case "not_now" if "state" in more:
            return _NotNow(refused.detail, Status(more["state"]))
        case kind if kind in _KINDS:
            return _KINDS[kind](refused.detail)
        case "does_not_fit" | "invalid_parameter":
            new = [each for each in more.get("errors") or () if each["message"] not in refused.detail]
            told = "; ".join(": ".join(filter(None, (each["path"], each["message"]))) for each in new)
            return UsageError(f"{refused.detail} {told}".rstrip())
        case "no_such_trigger":
            return UsageError(f"{refused.detail.rstrip('.')}; `holdfast triggers` lists them.")
        case _:
            return error_of(refused)


class _NotNow(UsageError):
    """The run is in no state for it."""

    def __init__(self, message: str, status: Status) -> None:
        super().__init__(message)
        self.status = status


class ServedRun(Run[R_co]):
    """A run behind a server."""

    async def _do(self, what: str, **body: Any) -> Any:
        return await act(self._store, "POST", place("runs", self.id) + f"/{what}", body=body)

    async def pause(self, *, by: str | None = None, note: str = "") -> Status:
        try:
            return Status((await self._do("pause", note=note))["status"])
        except _NotNow as refused:
            return refused.status

    async def resume(self, *, budget: Budget | None = None, by: str | None = None, note: str = "") -> None:
        limits = {} if budget is None else {name: value for name, value in asdict(budget).items() if value is not None}
        try:
            await self._do("resume", note=note, **({"budget": limits} if limits else {}))
        except _NotNow as refused:
            if not refused.status.is_final:
                raise

    async def retry(self, *, by: str | None = None, note: str = "") -> None:
        await self._do("retry", note=note)

    async def _cancel(self, *, by: str | None, note: str, kill: bool) -> Status | None:
        try:
            status = Status((await self._do("cancel", note=note, kill=kill))["status"])
        except RunFinished as ended:
            return Status(ended.status)
        return status if status.is_final else None

    async def _send(self, name: str, text: str, *, dedup: str | None, by: str | None) -> bool:
        given = {} if dedup is None else {"dedup": dedup}
        return bool((await self._do("signals", name=name, value=plain(text), **given))["is_new"])

    async def _interrupt(self, text: str, *, by: str | None) -> int:
        return int((await self._do("interrupt", message=plain(text)))["number"])

    async def _fork(self, wanted: Wanted, *, by: str | None, note: str) -> ServedRun[R_co]:
        given = {
            "at": wanted.at,
            "turn": wanted.turn,
            "set": dict(wanted.sets or {}),
            "results": dict(wanted.results or {}),
            "id": wanted.run_id,
            "thread_id": wanted.thread_id,
        }
        if wanted.state is not MISSING:
            given["state"] = wanted.state
        made = await self._do("fork", note=note, **given)
        return ServedRun(self._store, RunId(made["id"]), ThreadId(made["thread_id"]), here=self._here)

    async def questions(self, *, only_open: bool = True) -> list[Question]:
        rows = await self._store.questions(run_id=self.id, only_open=only_open)
        return [ServedQuestion._of(self._store, row) for row in rows]


class ServedQuestion(Question):
    """A question behind a server."""

    async def _decide(self, state: QuestionState, text: str | None, *, by: str | None, note: str) -> None:
        what = "answer" if state is QuestionState.answered else "decline"
        value = {} if text is None else {"value": plain(text)}
        await act(
            self._store, "POST", place("questions", self.id, what), body={"shown": self.shown, "note": note, **value}
        )


def plain(text: str) -> Any:
    """A stored text as the plain JSON that the API takes."""
    value = coder_for(Any).loads(text)
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Unserialisable(f"Only plain JSON can be sent through a server: {error}") from None
    return value
