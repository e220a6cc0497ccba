"""The agent that executes programs with hazards: bodies that raise what is no Exception, and code that is cancelled."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import holdfast as hf
from holdfast.base.clock import now_us
from tests.programs.agents import QUICKLY, Interpreter, aimed, change_world, deeds_of, ledger, own, takes_a_while
from tests.programs.hazards import How
from tests.programs.marks import is_first, mark, was_seen
from tests.programs.trees import FOREVER_S, Node, mix

_LOOK_S = 0.002
#: How long a sibling waits for what it wants to disturb, at most.
_MOST_S = 0.5


class Weird(BaseException):
    """What a framework uses for its own ends."""


#: The types of what is raised, by word.
RAISED: dict[str, type[BaseException]] = {
    "Weird": Weird,
    "Cancelled": asyncio.CancelledError,
    "bare": asyncio.CancelledError,
    "Exit": SystemExit,
    "Keyboard": KeyboardInterrupt,
    "Group": BaseExceptionGroup,
    "Generator": GeneratorExit,
    "Value": ValueError,
}


def throw(word: str) -> NoReturn:
    match word:
        case "Exit":
            raise SystemExit(3)
        case "Group":
            raise BaseExceptionGroup(word, [Weird(word)])
        case _:
            raise RAISED[word](word)


async def erupt(word: str) -> NoReturn:
    if word == "Cancelled":  # what a library of the user does: nobody cancelled this task
        inner = asyncio.ensure_future(asyncio.sleep(FOREVER_S))
        inner.cancel()
        await inner
    throw(word)


def _step(what: str, at: str, word: str) -> None:
    mark(what, at, hf.this_step().run_id, word)


# steps


@hf.step
async def breaking(at: str, word: str) -> None:
    with ledger.step():
        await takes_a_while()
        _step("step raises", at, word)
        await erupt(word)


@hf.step
def breaking_thread(at: str, word: str) -> None:
    with ledger.step():
        time.sleep(random.random() * 0.004)
        _step("step raises", at, word)
        throw(word)


@hf.step
async def sees(at: str, what: str, places: list[str]) -> str:
    """Wait until something happens at one of these places."""
    with ledger.step():
        for _ in range(int(_MOST_S / _LOOK_S)):
            if was_seen(what, places):
                break
            await asyncio.sleep(_LOOK_S)
        await asyncio.sleep(random.choice([0, 0, 0.01, 0.03]))
        return at


# effects


async def act(at: str, x: int, word: str) -> list[Any]:
    with ledger.effect():
        how, step, began = How.of(word), hf.this_step(), now_us()
        await takes_a_while()
        if step.attempt > 1:
            await asyncio.sleep(0.15)  # long enough for people to see it
        if how.early and is_first("early", step.idempotency_key):
            _step("effect raises", at, how.early)
            await erupt(how.early)
        aimed("before")
        change_world("act", at, x, began=began)
        is_first("act", at)
        aimed("after")
        if how.late and is_first("late", step.idempotency_key):
            _step("effect raises", at, how.late)
            await erupt(how.late)
        await takes_a_while()
        return [at, mix(x, at)]


async def look(at: str, x: int, word: str) -> hf.Verdict[list[Any]]:
    how, key = How.of(word), hf.this_step().idempotency_key
    await takes_a_while()
    aimed("verify")
    if how.verify and is_first("verify", key):
        _step("verify raises", at, how.verify)
        await erupt(how.verify)
    return hf.landed([at, mix(x, at)]) if any(deed.what == "act" for deed in deeds_of(key)) else hf.not_landed()


async def take_back(result: list[Any] | None, at: str, x: int, word: str) -> None:
    how, step, began = How.of(word), hf.this_step(), now_us()
    is_first("undo", at)
    _step("undo begins", at, "")
    await asyncio.sleep(0.01 + random.random() * 0.05)
    aimed("undo")
    if how.never:
        _step("undo raises", at, how.never)
        await erupt(how.never)
    if how.undo and is_first("undo raises", str(step.undoes)):
        _step("undo raises", at, how.undo)
        await erupt(how.undo)
    change_world("undo", at, x, began=began)
    aimed("undone")
    await takes_a_while()


@hf.effect(settle=0)
async def plainly(at: str, x: int, word: str) -> list[Any]:
    return await act(at, x, word)


@hf.effect(settle=0, retries=QUICKLY)
async def checked(at: str, x: int, word: str) -> list[Any]:
    return await act(at, x, word)


@hf.effect(settle=0)
async def once(at: str, x: int, word: str) -> list[Any]:
    return await act(at, x, word)


@hf.effect(on_doubt="retry", retries=QUICKLY)
async def retried(at: str, x: int, word: str) -> list[Any]:
    return await act(at, x, word)


@hf.effect
async def asked(at: str, x: int, word: str) -> list[Any]:
    return await act(at, x, word)


@hf.effect(on_doubt="fail")
async def failing(at: str, x: int, word: str) -> list[Any]:
    return await act(at, x, word)


EFFECTS: dict[str, Callable[[str, int, str], Coroutine[Any, Any, list[Any]]]] = {
    "plainly": plainly,
    "checked": checked,
    "once": once,
    "retried": retried,
    "asked": asked,
    "failing": failing,
}
for each in (plainly, checked, once):
    each.verify(look)
for each in (plainly, checked, once, retried, asked, failing):
    each.undo(take_back)


# the interpreter


def is_of_the_plan(error: BaseException) -> bool:
    """Is it something that a part of a program may be left with when it is cut?"""
    if isinstance(error, BaseExceptionGroup):
        return all(is_of_the_plan(each) for each in error.exceptions)
    return isinstance(error, TimeoutError | ValueError | hf.StepError | hf.RunFailed)


def is_leaving(error: BaseException | None) -> bool:
    """Is the code left because the run leaves this process?"""
    return isinstance(error, GeneratorExit) or hf.this_run().parking


class Hazardous(Interpreter):
    """Executes a tree with hazards."""

    def call(self, tree: Node, x: int) -> hf.Call[int]:
        return program(tree, x)

    def note(self, what: str, node: Node, more: str = "") -> None:
        run = hf.this_run()
        if not run.parking:  # what the code does while its run leaves the process means nothing
            mark(what, node.at, run.id, more)

    async def do_deed(self, node: Node, x: int) -> int:
        how = How.of(node.word)
        try:
            return own(node, await EFFECTS[how.sort](node.at, x, node.word))
        except hf.EffectInDoubt:
            if how.sort != "failing":
                raise
        except hf.StepError as error:
            if how.sort != "once" or error.error_type != RAISED[how.early].__name__:
                raise
        return mix(x, node.at)

    async def do_breaks(self, node: Node, x: int) -> int:
        try:
            await (breaking_thread if node.n else breaking)(node.at, node.word)
        except hf.StepError as error:
            if error.error_type != RAISED[node.word].__name__:
                raise AssertionError(f"{node.at} is said to have raised {error.error_type}") from error
            return mix(x, node.at, "broke")
        raise AssertionError(f"{node.at}: did not break")

    async def do_erupts(self, node: Node, x: int) -> int:
        self.note("agent raises", node, f"{node.word}{' in a branch' if node.n else ''}")
        if node.n:
            await asyncio.gather(hf.sleep(FOREVER_S), erupt(node.word))
        await erupt(node.word)

    async def do_survives(self, node: Node, x: int) -> int:
        try:
            await self.do_child(node, x)
        except hf.RunFailed:
            return mix(x, node.at, "RunFailed")
        raise AssertionError(f"{node.at}: did not fail")

    async def do_catch(self, node: Node, x: int) -> int:
        try:
            return await super().do_catch(node, x)
        except ExceptionGroup as error:  # a saga tells what it could not undo
            self.note("undo failed", node, str(error))
            return mix(x, node.at, "ValueError", node.parts[0].at)

    async def do_plain(self, node: Node, x: int) -> int:
        part, seconds = node.parts[0], node.n / 1000
        try:
            match node.word:
                case "timeout":
                    async with asyncio.timeout(seconds):
                        await self.do(part, x)
                case "timeout_at":
                    async with asyncio.timeout_at(asyncio.get_running_loop().time() + seconds):
                        await self.do(part, x)
                case _:
                    await asyncio.wait_for(self.do(part, x), seconds)
        except TimeoutError:
            self.note("plain timeout", node, f"{node.word} around {part.kind}")
            return mix(x, node.at, "TimeoutError")
        raise AssertionError(f"{node.at}: did not expire")

    async def do_final(self, node: Node, x: int) -> int:
        before, closing = node.parts
        try:
            return await self.do(before, x)
        finally:
            error = sys.exception()
            if not is_leaving(error):
                self.note("closing", node, type(error).__name__)
                await self.do(closing, x)

    async def do_saga(self, node: Node, x: int) -> int:
        task = asyncio.current_task()
        assert task is not None
        self.note("entered", node)
        left_by: BaseException | None = None
        cancels = 0
        try:
            async with hf.saga():
                try:
                    for part in node.parts:
                        x = await self.do(part, x)
                    if node.word == "fails":
                        raise ValueError(node.at)
                except BaseException as error:
                    left_by, cancels = error, task.cancelling()
                    raise
        except BaseException as error:
            if not is_leaving(error):
                is_new = isinstance(error, asyncio.CancelledError) and not isinstance(left_by, asyncio.CancelledError)
                is_cut = is_new or task.cancelling() > cancels
                self.note("left", node, f"{type(left_by).__name__} {'cut' if is_cut else ''}")
            raise
        self.note("kept", node)
        return x

    # being cancelled

    async def _trigger(self, node: Node) -> None:
        """Wait until it hurts most: the part is being undone; if it waits to be cancelled first, it has acted."""
        part = node.parts[0]
        places = [each.at for each in part.walk() if each.kind == "deed"]
        undoes = any(each.kind == "cut" or each.word == "fails" for each in part.walk())
        await sees(node.at, "undo" if undoes else "act", places)

    async def _trips(self, node: Node) -> int:
        await self._trigger(node)
        raise ValueError(node.at)

    async def _arm(self, node: Node, limit: asyncio.Timeout) -> None:
        await self._trigger(node)
        limit.reschedule(0)

    async def do_cut(self, node: Node, x: int) -> int:
        try:
            await self._cut(node, x)
        except Exception as error:
            if not is_of_the_plan(error):
                raise
        return mix(x, node.at, "cut")

    async def _cut(self, node: Node, x: int) -> None:
        part, seconds = node.parts[0], node.n / 1000
        match node.word:
            case "timeout":
                async with hf.timeout(seconds):
                    await self.do(part, x)
            case "plain":
                async with asyncio.timeout(seconds):
                    await self.do(part, x)
            case "wait_for":
                await asyncio.wait_for(self.do(part, x), seconds)
            case "armed":
                async with asyncio.timeout(None) as limit:
                    setting = asyncio.create_task(self._arm(node, limit))
                    try:
                        await self.do(part, x)
                    finally:
                        setting.cancel()
            case "race":
                await hf.race(self.do(part, x), self._trips(node))
            case "gather":
                await asyncio.gather(self.do(part, x), self._trips(node))
            case "group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.do(part, x))
                    group.create_task(self._trips(node))
            case word:
                task = asyncio.create_task(self.do(part, x))
                await self._trigger(node)
                task.cancel()
                if word == "twice":
                    await sees(f"{node.at} again", "undo", [each.at for each in part.walk() if each.kind == "deed"])
                    task.cancel()
                await asyncio.wait([task])
                if not task.cancelled() and (error := task.exception()) is not None and not is_of_the_plan(error):
                    raise error


@hf.agent(name="program")
async def program(tree: Node, x: int) -> int:
    return await Hazardous().do(tree, x)
