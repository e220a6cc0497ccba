"""Messages of NATS JetStream that start runs, by `nats-py`.

A message is acknowledged only after its run is durable. Whatever happens before that (a crash, a lost connection, a
restarted server), the message comes again, and the id of its run is the same: it follows from the message's place in
the stream. The time of the message is part of it, because a stream that was deleted and made again counts from one.

A message that can never be a run must not come again: the server gives out no more than so many that are not
acknowledged, and such ones would keep the good ones behind them from coming.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError

from holdfast.automation.triggers.definitions import Tally, Trigger
from holdfast.automation.triggers.filters import matches
from holdfast.automation.triggers.refused import KEPT_US, forget_refused, set_aside
from holdfast.automation.triggers.sources import NatsMessage, resolved, without_secrets
from holdfast.automation.triggers.starting import AT_ONCE, Fate, Occasion, StartAttempt, StartRun, start_all
from holdfast.base import faults
from holdfast.base.clock import monotonic_us, now_us
from holdfast.base.telemetry import warn
from holdfast.codec import digest, plain_json, said_by
from holdfast.errors import StoreError
from holdfast.store.contract import Store

_FETCH_S: Final = 2.0
_FIRST_DELAY_S: Final = 0.5
_MOST_DELAY_S: Final = 60.0
_REPEAT_US: Final = 60_000_000
_PLAIN: Final = re.compile(r"[\w-]{1,60}")


class NatsTrigger:
    """Keeps one NATS trigger going in this process."""

    def __init__(self, store: Store, trigger: Trigger, *, start: StartRun, tally: Tally) -> None:
        self._store = store
        self._trigger = trigger
        self._start = start
        self._tally = tally
        self._complaints: dict[str, int] = {}

    async def run(self) -> None:
        """Take messages until cancelled; whatever breaks, connect again."""
        failures = 0
        while True:
            _heed_cancellation()
            began = monotonic_us()
            try:
                await self._session()
            except (NatsError, OSError, TimeoutError) as error:
                failures = 1 if monotonic_us() - began > _REPEAT_US else failures + 1
                self._complain(error)
                await asyncio.sleep(_backoff_s(failures))

    async def _session(self) -> None:
        config = self._trigger.config
        client = await nats.connect(
            resolved(config["url"]).split(","),
            name=f"holdfast {self._trigger.name}",
            max_reconnect_attempts=-1,
            reconnect_time_wait=1,
            error_cb=self._on_error,
        )
        work: set[asyncio.Task[None]] = set()
        try:
            context = client.jetstream()
            _heed_cancellation()
            source = await self._subscribed(context)
            while True:
                _heed_cancellation()
                if len(work) >= AT_ONCE:
                    await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
                try:
                    # One at a time: a larger fetch waits until it is full, or its time is over.
                    (message,) = await source.fetch(1, timeout=_FETCH_S)
                except TimeoutError:
                    # Nothing came. A consumer or stream that was deleted meanwhile says no more than that.
                    await context.consumer_info(config["stream"], config["durable"])
                    continue
                task = asyncio.create_task(self._handle(message))
                work.add(task)
                task.add_done_callback(work.discard)
        finally:
            for task in work:
                task.cancel()
            if work:
                await asyncio.wait(work)
            await _close(client)

    async def _subscribed(self, context: JetStreamContext) -> JetStreamContext.PullSubscription:
        config = self._trigger.config
        try:
            return await context.pull_subscribe(
                config["subject"],
                durable=config["durable"],
                stream=config["stream"],
                config=ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=config["ack_wait"]),
            )
        except NotFoundError as error:
            raise OSError(f"there is no stream {config['stream']!r} on the server; create it") from error

    async def _handle(self, message: Msg) -> None:
        """Start the run of a message, then acknowledge it. What can never be a run is set aside instead."""
        name, run = self._trigger.name, run_id(self._trigger.name, message)
        detail = f"{message.subject} {message.metadata.sequence.stream}"
        try:
            attempt = await self._attempt(message, run)
            if attempt is not None and attempt.fate is Fate.refused:
                attempt = await self._set_aside(message, run, detail=detail, attempt=attempt)
            if attempt is not None and attempt.why:
                detail = f"{detail}: {attempt.why}"
            if attempt is not None and not attempt.is_over:
                self._tally.note(name, attempt.fate, at=now_us(), run=run, detail=detail)
                await message.nak(_backoff_s(message.metadata.num_delivered))
                return
            await (message.term() if attempt is not None and attempt.fate is Fate.refused else message.ack())
        except asyncio.CancelledError:
            # Stopped in between: another worker need not wait until the time is over.
            with suppress(NatsError, OSError):
                await message.nak()
            raise
        except (NatsError, OSError) as lost:  # not acknowledged: it comes again, and what was done is known
            self._complain(lost)
            return
        self._count(attempt, run, detail)

    def _count(self, attempt: StartAttempt | None, run: str, detail: str) -> None:
        name, fate = self._trigger.name, None if attempt is None else attempt.fate
        self._tally.count(
            name,
            received=1,
            matched=int(fate is not None),
            started=int(fate is Fate.started),
            refused=int(fate is Fate.refused),
        )
        self._tally.note(name, fate or "ignored", at=now_us(), run=None if fate is None else run, detail=detail)

    async def _attempt(self, message: Msg, run: str) -> StartAttempt | None:
        """Try to start the run of a message; None: the filter says no."""
        try:
            value = _read(message)
            if not matches(self._trigger.where, asdict(value)):
                return None
        except Exception as error:  # whatever is wrong with it, will be so when it comes again
            return StartAttempt(Fate.refused, f"it cannot be read: {said_by(error)}")
        return await self._start_run(message, Occasion(self._trigger, run, value))

    async def _set_aside(self, message: Msg, run: str, *, detail: str, attempt: StartAttempt) -> StartAttempt:
        """Store what can never be a run; only then may its server forget it."""
        now = now_us()
        aside = set_aside(self._trigger.name, run, what=detail, why=attempt.why, data=message.data, now=now)
        try:
            await self._store.define([aside])
            await forget_refused(self._store, self._trigger.name, before=now - KEPT_US)
        except StoreError as error:
            return StartAttempt(Fate.failed, said_by(error))
        faults.point("trigger.after_refusal")
        return attempt

    async def _start_run(self, message: Msg, cause: Occasion) -> StartAttempt:
        """Start a run; while that takes, the server is told to wait."""
        work = asyncio.create_task(start_all(self._start, [cause]))
        try:
            while not (await asyncio.wait({work}, timeout=float(self._trigger.config["ack_wait"]) / 3))[0]:
                await message.in_progress()
                _heed_cancellation()
            return work.result()[0]
        finally:
            work.cancel()
            await asyncio.wait({work})

    async def _on_error(self, error: Exception) -> None:
        self._complain(error)

    def _complain(self, error: Exception) -> None:
        """Say what is wrong, but not the same every second."""
        text = said_by(error)
        if monotonic_us() - self._complaints.get(text, -_REPEAT_US) < _REPEAT_US:
            return
        self._complaints = {text: monotonic_us()}
        url = without_secrets(self._trigger.config)["url"]
        warn("trigger.nats_failed", trigger=self._trigger.name, url=url, error=text)
        self._tally.note(self._trigger.name, "failed", at=now_us(), detail=text)


def _heed_cancellation() -> None:
    """Stop if told to: the driver swallows a cancellation here and there, and `wait_for` does before Python 3.12."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _close(client: Client) -> None:
    with suppress(NatsError, OSError, TimeoutError):
        await client.flush(1)
    with suppress(NatsError, OSError, TimeoutError):
        await asyncio.wait_for(client.close(), 2.0)


def run_id(trigger: str, message: Msg) -> str:
    """The id of the run that a message starts, however often it comes."""
    place = message.metadata
    stream = place.stream if _PLAIN.fullmatch(place.stream) else digest(place.stream)
    return f"{trigger}:{stream}:{place.sequence.stream}:{digest(place.timestamp.isoformat())[:8]}"


def _read(message: Msg) -> NatsMessage:
    headers = {str(name): str(value) for name, value in (message.headers or {}).items()}
    return NatsMessage(message.subject, _data(message.data), headers, message.metadata.sequence.stream)


def _data(data: bytes) -> Any:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    try:
        return plain_json(text)
    except ValueError:
        return text


def _backoff_s(failures: int) -> float:
    return float(min(_FIRST_DELAY_S * 2 ** min(failures - 1, 16), _MOST_DELAY_S))
