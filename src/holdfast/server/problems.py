"""What goes wrong, as a client sees it: `application/problem+json`, each kind with a name of its own.

A client's mistake is never a 5xx. Details name what the client named, not paths, urls or settings of this host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import JSONResponse

from holdfast.errors import (
    AlreadyDecided,
    AlreadySettled,
    AmbiguousId,
    ConflictingSend,
    ConflictingStart,
    CorruptJournal,
    HoldfastError,
    QuestionChanged,
    RunFinished,
    RunMoved,
    RunNotFound,
    RunPruned,
    StoreAway,
    StoreError,
    StoreFull,
    Undecodable,
    Unserialisable,
    UsageError,
)

#: kind: (status, title)
KINDS: Final[Mapping[str, tuple[int, str]]] = {
    "unknown_parameter": (400, "There is no such parameter"),
    "invalid_parameter": (400, "A parameter cannot be this"),
    "invalid_json": (400, "The body is not JSON"),
    "cursor_does_not_fit": (400, "The cursor belongs to another list"),
    "sign_in": (401, "Sign in first"),
    "role": (403, "Your role does not allow it"),
    "origin": (403, "The request comes from elsewhere"),
    "link": (403, "The link does not hold"),
    "signature": (401, "The delivery is not signed as it has to be"),
    "read_only": (403, "This server changes nothing"),
    "no_such_page": (404, "There is nothing here"),
    "no_such_run": (404, "There is no such run"),
    "no_such_call": (404, "The run has no such call"),
    "no_such_record": (404, "The run has no such record"),
    "no_such_turn": (404, "The run has no such turn"),
    "no_such_artifact": (404, "The run has put out no such thing"),
    "no_such_stream": (404, "The run has no such stream"),
    "no_such_plan": (404, "The run has no plan"),
    "no_such_thread": (404, "Nothing was said in such a thread"),
    "no_such_question": (404, "There is no such question"),
    "no_such_schedule": (404, "There is no such schedule"),
    "no_such_trigger": (404, "There is no such trigger"),
    "method": (405, "This cannot be done here"),
    "too_slow": (408, "The request took too long to arrive"),
    "already_decided": (409, "Somebody was first"),
    "already_settled": (409, "It is not in doubt any more"),
    "question_changed": (409, "The question shows something else by now"),
    "run_finished": (409, "The run has ended"),
    "conflicting_start": (409, "Another run has this id"),
    "conflicting_send": (409, "Something else was sent under this dedup id"),
    "no_bytes": (409, "It has no bytes to download"),
    "damaged_file": (409, "Its stored bytes are missing or damaged"),
    "quarantined": (409, "The run's stored data failed verification"),
    "store_damaged": (409, "The store itself is damaged"),
    "not_now": (409, "The run is not in a state for this"),
    "key_reused": (409, "The Idempotency-Key was used for something else"),
    "count_changed": (409, "Other runs fit by now"),
    "pruned": (410, "The run was pruned"),
    "moved": (410, "The run lives in another store"),
    "too_large": (413, "The body is too large"),
    "not_bytes": (415, "A file is sent as application/octet-stream"),
    "not_json": (415, "Only application/json is taken"),
    "wrong_host": (421, "This host is not served here"),
    "wrong_digest": (422, "The bytes are not those that were announced"),
    "does_not_fit": (422, "The value does not fit"),
    "rate": (429, "Too many failed attempts"),
    "internal": (500, "Something went wrong here"),
    "store_away": (503, "The store cannot be reached"),
    "store_full": (503, "The store has no space left"),
    "busy": (503, "The store cannot do it now"),
}

MEDIA_TYPE: Final = "application/problem+json"


class Problem(Exception):
    """A refusal, to be told to the client; `more` is added to what it is told."""

    def __init__(
        self, kind: str, detail: str = "", *, headers: Mapping[str, str] | None = None, **more: object
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.status, self.title = KINDS[kind]
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = more

    def response(self, instance: str) -> JSONResponse:
        """The answer; `instance` is the path that was asked for."""
        told: dict[str, Any] = {"type": f"/problems/{self.kind}", "title": self.title, "status": self.status}
        if self.detail:
            told["detail"] = self.detail
        told |= {"instance": instance, **self.more}
        return JSONResponse(told, self.status, headers=self.headers, media_type=MEDIA_TYPE)


def misfit(found: Sequence[str], what: str) -> Problem:
    """A value of the wrong shape: what is wrong with it, place by place."""
    errors = []
    for each in found[:20]:
        path, colon, message = each.partition(": ")
        errors.append({"path": path, "message": message} if colon else {"path": "", "message": each})
    return Problem("does_not_fit", f"The value does not fit {what}.", errors=errors)


def problem_of(error: HoldfastError) -> Problem:
    """What a client is told of an error of ours."""
    match error:
        case RunNotFound() | AmbiguousId():
            return Problem("no_such_run")
        case RunPruned():
            return Problem("pruned", str(error), was=error.status)
        case RunMoved():
            return Problem("moved", "The run lives in another store, or is on its way there.")
        case RunFinished():
            return Problem("run_finished", str(error), was=error.status)
        case AlreadyDecided():
            return Problem("already_decided", str(error), state=error.state, by=error.by)
        case AlreadySettled():
            return Problem("already_settled", str(error))
        case QuestionChanged():
            return Problem("question_changed", str(error))
        case ConflictingStart():
            return Problem("conflicting_start", str(error))
        case ConflictingSend():
            return Problem("conflicting_send", str(error))
        case CorruptJournal():
            return Problem("quarantined", "Its stored data failed verification; nothing can be done to it.")
        case Unserialisable() | Undecodable():
            return Problem("does_not_fit", str(error), errors=[{"path": "", "message": str(error)}])
        case UsageError():
            return Problem("invalid_parameter", str(error))
        case StoreAway():
            return Problem("store_away", headers={"retry-after": "5"})
        case StoreFull():
            return Problem("store_full", headers={"retry-after": "30"})
        case StoreError():
            return Problem("busy", headers={"retry-after": "2"})
        case _:
            return Problem("not_now", str(error))


def of_status(status: int) -> Problem:
    """For what the framework refuses by itself."""
    kinds = {404: "no_such_page", 405: "method", 413: "too_large", 415: "not_json"}
    if status in kinds:
        return Problem(kinds[status])
    return Problem("invalid_parameter" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "internal")
