"""/runs/{run}/…: acting on one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import Field

from holdfast.model.budgets import Budget
from holdfast.server.acts import Outcome
from holdfast.server.answers import Answer
from holdfast.server.api.run import RunPath
from holdfast.server.security.people import Role
from holdfast.server.service import Body, Key, Noted, Parts, Who, act_of, needs
from holdfast.server.shapes import Checked, Replied, Signalled, Told

router = APIRouter(tags=["acting on a run"])
_USUAL = ("no_such_run", "pruned", "moved", "quarantined", "key_reused", "store_full")


@router.post("/runs/{run:id}/pause", response_model=Told, summary="Stop it", **needs(Role.operator, *_USUAL, "not_now"))
async def pause(parts: Parts, person: Who, run: RunPath, body: Noted, key: Key = None) -> Response:
    return _told(await parts.acts.pause(run, act_of(person, body, key)))


class BudgetBody(Body):
    """Limits; those that are not given stay."""

    tokens: Annotated[int, Field(ge=0, lt=2**62)] | None = None
    cost: Annotated[float, Field(ge=0, lt=1e12)] | None = None
    steps: Annotated[int, Field(ge=0, lt=2**62)] | None = None


class ResumeBody(Noted):
    """With what."""

    budget: BudgetBody | None = Field(None, description="What it may use from now on, with all that came of it.")


@router.post(
    "/runs/{run:id}/resume", response_model=Told, summary="Have it go on", **needs(Role.operator, *_USUAL, "not_now")
)
async def resume(parts: Parts, person: Who, run: RunPath, body: ResumeBody, key: Key = None) -> Response:
    budget = None if body.budget is None else Budget(**body.budget.model_dump()).checked("budget")
    return _told(await parts.acts.resume(run, act_of(person, body, key), budget))


@router.post(
    "/runs/{run:id}/retry",
    response_model=Told,
    summary="Open it again, if it failed or was cancelled",
    **needs(Role.operator, *_USUAL, "not_now"),
)
async def retry(parts: Parts, person: Who, run: RunPath, body: Noted, key: Key = None) -> Response:
    return _told(await parts.acts.retry(run, act_of(person, body, key)))


class CancelBody(Noted):
    """How it is cancelled."""

    kill: bool = Field(False, description="Without asking its code, which then cleans up nothing.")


@router.post(
    "/runs/{run:id}/cancel", response_model=Told, summary="End it", **needs(Role.operator, *_USUAL, "run_finished")
)
async def cancel(parts: Parts, person: Who, run: RunPath, body: CancelBody, key: Key = None) -> Response:
    return _told(await parts.acts.cancel(run, act_of(person, body, key), kill=body.kill))


class InterruptBody(Noted):
    """What its handler is told."""

    message: Any = Field(examples=["how far are you?"])
    wait_s: Annotated[float, Field(ge=0, le=25)] = Field(0.0, description="How long to wait for what it replies.")


@router.post(
    "/runs/{run:id}/interrupt",
    response_model=Replied,
    summary="Interrupt it with a message",
    **needs(Role.operator, *_USUAL, "run_finished"),
)
async def interrupt(parts: Parts, person: Who, run: RunPath, body: InterruptBody, key: Key = None) -> Response:
    act = act_of(person, body, key)
    return Answer(await parts.acts.interrupt(run, act, message=body.message, wait_s=body.wait_s))


class SignalBody(Noted):
    """A signal."""

    name: Annotated[str, Field(min_length=1, max_length=200)] = Field(examples=["approved"])
    value: Any = None
    dedup: Annotated[str, Field(min_length=1, max_length=200)] | None = None


@router.post(
    "/runs/{run:id}/signals",
    response_model=Signalled,
    status_code=202,
    summary="Send it a signal",
    **needs(Role.operator, *_USUAL, "run_finished", "conflicting_send", "does_not_fit"),
)
async def send(parts: Parts, person: Who, run: RunPath, body: SignalBody, key: Key = None) -> Response:
    act = act_of(person, body, key)
    is_new = await parts.acts.send(run, act, name=body.name, value=body.value, dedup=body.dedup)
    return Answer({"is_new": is_new}, 202)


@router.post(
    "/runs/{run:id}/verify",
    response_model=Checked,
    summary="Check every stored byte of it",
    **needs(Role.viewer, "no_such_run", "origin", "not_json"),
)
async def verify(parts: Parts, run: RunPath, body: Noted) -> Response:
    async with parts.verifying:
        return Answer(await parts.reads.verify(run))


def _told(outcome: Outcome) -> Response:
    status, what = outcome
    return Answer({"status": status.value, "what": what})
