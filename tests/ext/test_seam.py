"""The seam for frameworks: what keys read like, what a model never hears of, and what happens once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import holdfast as hf
from holdfast import ext
from holdfast.errors import EffectInDoubt, NeedsHuman, NestedCall, RunBlocked, UsageError
from holdfast.testing import Life, assert_survives
from tests.eventually import eventually
from tests.ext import botany, imitated
from tests.ext.imitated import Bot


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "runs.db")


async def keys(run: hf.Run[Any]) -> list[str]:
    return [each.key for each in await run.history() if each.key]


def settle(url: str, run_id: str) -> None:
    """Whoever is asked looks into the file, and says what the tool would have returned, or that it never was."""

    async def look() -> None:
        async with hf.connect(url) as app:
            for doubt in await app.get(run_id).in_doubt():
                to = json.loads(doubt.args or "{}")["to"]
                await doubt.resolve(hf.landed(f"sent {to}") if to in sent() else hf.not_landed())

    def sent() -> list[str]:
        found = Path(url.removeprefix("sqlite:///")).parent / "sent.txt"
        return found.read_text().split() if found.exists() else []

    asyncio.run(look())


def once(life: Life) -> None:
    assert sorted((life.folder / "sent.txt").read_text().split()) == ["1a", "1b", "2a", "2b"]
    assert life.result == "sent 1a, sent 1b, sent 2a, sent 2b"


def test_a_killed_framework_goes_on_with_the_same_story() -> None:
    points = ["effect.after_body@2", "effect.after_intent@3"]
    survival = assert_survives(botany.post(), drive=settle, points=points, check=once)
    assert survival.kills >= 2


@pytest.mark.prove
def test_a_framework_that_is_killed_wherever_it_may_be_goes_on_with_the_same_story() -> None:
    assert_survives(botany.post(), drive=settle, check=once, rounds=50)


def test_no_name_of_the_framework_is_stored_and_a_release_that_renames_its_coroutines_changes_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_FOLDER", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_LEDGER", str(tmp_path / "ledger"))

    async def first() -> list[str]:
        async with hf.connect(url, agents=[botany.post_after_asking]) as app:
            run = await app.start(botany.post_after_asking(), id="r")
            await eventually(app.questions)
            return await keys(run)

    async def then() -> None:
        async with hf.connect(url, agents=[botany.post_after_asking]) as app:
            await (await app.questions())[0].answer(True)
            assert await app.get("r").result(timeout=30) == "sent 1a, sent 1b, sent 2a, sent 2b"
            found = await keys(app.get("r"))
            assert {each for each in found if "model" in each} == {
                f"bot:{n}/model#{m}" for n in (1, 2) for m in (1, 2, 3)
            }

    found = asyncio.run(first())
    assert not [each for each in found if "_run_tool" in each or "_request" in each]
    assert len([each for each in found if each.endswith("/mail#1") and each.startswith("bot:1/1/call%2F")]) == 2
    monkeypatch.setattr(imitated, "PREFIX", ["_new"])
    asyncio.run(then())
    assert len((tmp_path / "sent.txt").read_text().split()) == 8


#: What a model that tries again whenever it hears of an error is told, and never how often.
happened: list[str] = []


async def stubborn(turn: int, heard: list[str]) -> Any:
    if heard and "error" not in heard[-1]:
        return heard[-1]
    return [("call_0", "mail", {"to": "ada"})]  # the same id each turn


def bot_with(tool: Callable[[], Awaitable[Any]], **options: Any) -> hf.Agent[[], str]:
    @hf.agent(name="agent")
    async def agent() -> str:
        async def mail(to: str) -> Any:
            happened.append(to)
            return await tool()

        return await botany.durable(Bot("bot", stubborn, {"mail": mail}), **options).run()

    return agent


async def raises() -> str:
    raise ConnectionError("no answer")


async def cannot_be_stored() -> object:
    return object()


async def nests() -> str:
    return str(await ext.Operation("inner", "effect")(raises))


async def misuses() -> str:
    return str(await hf.ask("May I?"))


class Refused(Exception):
    """Nothing happened."""


@pytest.mark.parametrize(
    ("tool", "options", "why"),
    [
        (raises, {"on_doubt": "fail"}, "EffectInDoubt"),
        (cannot_be_stored, {}, "ResultNotStored"),
        (nests, {}, "NestedCall"),
        (misuses, {}, "NestedCall"),
    ],
)
def test_what_a_model_must_not_hear_ends_the_run(file: str, tool: Any, options: dict[str, Any], why: str) -> None:
    async def main() -> None:
        happened.clear()
        agent = bot_with(tool, **options)
        async with hf.connect(file, agents=[agent]) as app:
            run = await app.start(agent(), id="r")
            with pytest.raises(RunBlocked, match=why) as blocked:
                await run.result(timeout=30)
            assert blocked.value.reason["why"] == "call cannot go on"
            assert blocked.value.reason["asked"] == "bot:1/1/call_0/mail#1"
            assert happened == ["ada"]
            assert not await run.in_doubt()

    asyncio.run(main())


def test_after_a_block_in_doubt_a_person_says_what_became_of_it_in_the_words_of_the_tool(url: str) -> None:
    async def main() -> None:
        happened.clear()
        agent = bot_with(raises, on_doubt="fail")
        async with hf.connect(url, agents=[agent]) as app:
            run = await app.start(agent(), id="r")
            with pytest.raises(RunBlocked):
                await run.result(timeout=30)
            await run.resume()
            with pytest.raises(NeedsHuman):
                await run.result(timeout=30)
            (doubt,) = await run.in_doubt()
            await doubt.resolve(hf.landed("sent by hand"))
            assert await run.result(timeout=30) == "sent by hand"
            assert happened == ["ada"]

    asyncio.run(main())


def test_a_proven_failure_is_told_to_the_model_which_tries_again(file: str) -> None:
    async def main() -> None:
        happened.clear()

        async def refuses_twice() -> str:
            if len(happened) < 3:
                raise Refused("not now")
            return "sent"

        agent = bot_with(refuses_twice, raises=(Refused,))
        async with hf.connect(file, agents=[agent]) as app:
            run = await app.start(agent(), id="r")
            assert await run.result(timeout=30) == "sent"
            assert [each for each in await keys(run) if "mail" in each] == [
                f"bot:1/{turn}/call_0/mail#1" for turn in (1, 2, 3)
            ]

    asyncio.run(main())


def test_a_misuse_inside_the_body_of_an_effect_is_a_failure_and_no_doubt(file: str) -> None:
    @hf.effect
    async def sends() -> str:
        return str(await hf.ask("May I?"))

    @hf.agent
    async def agent() -> str:
        try:
            return await sends()
        except NestedCall:
            return "told"

    async def main() -> None:
        async with hf.connect(file, agents=[agent]) as app:
            assert await (await app.start(agent(), id="r")).result(timeout=30) == "told"

    asyncio.run(main())


def test_verify_speaks_the_result_of_the_tool_and_undo_gets_what_was_shown(file: str) -> None:
    undone: list[Any] = []

    async def verify(shown: Any) -> hf.Verdict[str]:
        return hf.landed(f"found {shown['to']}")

    async def undo(result: Any, shown: Any) -> None:
        undone.append((result, shown["to"]))

    enveloped = ext.Codec[str](dump=lambda text: [text], load=lambda got: got[0], outside=lambda got: f"<{got}>")
    mail = ext.Operation("mail", "effect", codec=enveloped, verify=verify, undo=undo)

    @hf.agent
    async def agent() -> str:
        async with hf.saga():
            found = await mail(raises, shown={"to": "ada"})
            raise ValueError(found)

    async def main() -> None:
        async with hf.connect(file, agents=[agent]) as app:
            with pytest.raises(hf.RunFailed, match="<found ada>"):
                await (await app.start(agent(), id="r")).result(timeout=30)

    asyncio.run(main())
    assert undone == [("<found ada>", "ada")]


def test_the_same_key_again_answers_joins_and_follows_a_cancelled_one(url: str) -> None:
    made: list[str] = []
    send = ext.Operation("send", "effect", returns=str, raises=(Refused,))

    async def act(what: str) -> str:
        made.append(what)
        await asyncio.sleep(0)
        if what == "refused":
            raise Refused("no")
        return what

    def sent(what: str) -> Any:
        return send(lambda: act(what), key=what, again="answer")

    async def node() -> list[str]:
        return [await sent("a"), *(await asyncio.gather(*(node_of("b") for _ in range(3))))]

    async def node_of(what: str) -> str:
        with ext.place("graph:1/node"):
            return str(await sent(what))

    @hf.agent
    async def agent() -> list[str]:
        heard = [await node(), await node()]  # as a node that runs again from its top
        for _ in range(2):
            try:
                await sent("refused")
            except Refused as error:
                heard.append([str(error)])
        await hf.ask("Go on?")
        return [*heard[0], *heard[1], *heard[2], *heard[3], *(await node())]

    async def main() -> None:
        async with hf.connect(url, agents=[agent]) as app:
            await app.start(agent(), id="r")
            await eventually(app.questions)
        async with hf.connect(url, agents=[agent]) as app:
            await (await app.questions())[0].answer(True)
            run = app.get("r")
            assert await run.result(timeout=30) == ["a", "b", "b", "b"] * 2 + ["no", "no"] + ["a", "b", "b", "b"]
            assert made == ["a", "b", "refused"]
            assert {"key:a", "graph:1/node/key:b"} <= set(await keys(run))

    asyncio.run(main())


def test_a_call_that_was_cancelled_under_a_key_is_made_anew_under_it(file: str) -> None:
    tries: list[int] = []
    has_begun = asyncio.Event()
    look = ext.Operation("look", returns=str)

    async def slow() -> str:
        tries.append(1)
        has_begun.set()
        await asyncio.sleep(60 if len(tries) == 1 else 0)
        return "seen"

    @hf.agent
    async def agent() -> str:
        task = asyncio.create_task(look(slow, key="k", again="answer"))
        await has_begun.wait()
        task.cancel()
        await asyncio.wait({task})
        return await look(slow, key="k", again="answer")

    async def main() -> None:
        async with hf.connect(file, agents=[agent]) as app:
            assert await (await app.start(agent(), id="r")).result(timeout=30) == "seen"

    asyncio.run(main())
    assert len(tries) == 2


def test_a_key_is_given_once_and_answering_again_needs_one(file: str) -> None:
    look = ext.Operation("look", returns=str)

    async def seen() -> str:
        return "seen"

    @hf.agent
    async def agent() -> list[str]:
        told = []
        await look(seen, key="k")
        for options in ({"key": "k"}, {"again": "answer"}):
            try:
                await look(seen, **options)  # type: ignore[arg-type]
            except UsageError as error:
                told.append(str(error))
        return told

    async def main() -> None:
        async with hf.connect(file, agents=[agent]) as app:
            first, second = await (await app.start(agent(), id="r")).result(timeout=30)
            assert "a second time" in first
            assert "needs key=" in second

    asyncio.run(main())


def test_a_record_that_does_not_load_blocks_the_run(file: str) -> None:
    is_new = [False]

    def load(got: Any) -> str:
        if is_new[0]:
            raise ValueError("another release")
        return str(got)

    model = ext.Operation("model", codec=ext.Codec(dump=str, load=load))

    async def request() -> str:
        return "hi"

    @hf.agent
    async def agent() -> str:
        answer = await model(request)
        await hf.ask("Go on?")
        return answer

    async def main() -> None:
        async with hf.connect(file, agents=[agent]) as app:
            await app.start(agent(), id="r")
            await eventually(app.questions)
        is_new[0] = True
        async with hf.connect(file, agents=[agent]) as app:
            await (await app.questions())[0].answer(True)
            with pytest.raises(RunBlocked, match="another release"):
                await app.get("r").result(timeout=30)

    asyncio.run(main())


def test_outside_of_a_run_nothing_is_in_the_way() -> None:
    async def main() -> None:
        assert not ext.active()
        with ext.place("a/b", sealed=True):
            assert await ext.Operation("op", "effect", returns=str)(cheap) == "cheap"
        assert ext.occurrence("bot") == "bot:1"
        with pytest.raises(UsageError, match="belongs to a run"):
            ext.local()

    async def cheap() -> str:
        return "cheap"

    asyncio.run(main())


@pytest.mark.parametrize("path", ["", "a#1", "key:x", "a\nb"])
def test_a_path_that_keys_could_be_mistaken_for_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="takes a path"):
        ext.place(path)


def test_a_segment_is_made_of_whatever_text() -> None:
    assert ext.segment("call_7") == "call_7"
    assert ext.segment("a/b#c") == "a%2Fb%23c"
    assert ext.segment("key:1") == "%6Bey:1"
    assert ext.segment("") == "%"
    assert len(ext.segment("x" * 500)) == 80
    assert ext.segment("x" * 500) != ext.segment("x" * 501)


@pytest.mark.parametrize("verb", ["step", "effect", "child", "ask", "sleep"])
def test_a_scope_of_anyio_ends_each_verb_live_and_on_replay(file: str, verb: str) -> None:
    """The cancellation that arrives is the scope's own, so the scope takes it back, and the agent goes on."""

    @hf.step
    async def slow_step() -> str:
        await asyncio.sleep(30)
        return ""

    @hf.effect
    async def slow_effect() -> str:
        await asyncio.sleep(0.05)
        return ""

    @hf.agent
    async def child() -> str:
        await hf.ask("Never?")
        return ""

    made: dict[str, Callable[[], Awaitable[Any]]] = {
        "step": slow_step,
        "effect": slow_effect,
        "child": lambda: child(),
        "ask": lambda: hf.ask("Never?"),
        "sleep": lambda: hf.sleep(60),
    }

    @hf.agent
    async def agent() -> str:
        with anyio.move_on_after(0.02) as scope:
            await made[verb]()
        first = scope.cancelled_caught
        try:
            with anyio.fail_after(0.02):
                await made[verb]()
        except TimeoutError:
            return f"{first} late"
        return f"{first}"

    async def main() -> None:
        async with hf.connect(file, agents=[agent, child]) as app:
            assert await (await app.start(agent(), id="r")).result(timeout=30) == "True late"

    asyncio.run(main())


def test_sealed_is_what_is_made_inside_of_it_too_and_what_is_proven_is_not(file: str) -> None:
    @hf.effect(on_doubt="fail")
    async def acts() -> None:
        raise ConnectionError("?")

    @hf.agent
    async def agent(sealed: bool) -> str:
        with ext.place("a", sealed=sealed):
            try:
                await asyncio.gather(acts())
            except EffectInDoubt:
                return "told"
        return ""

    async def main() -> None:
        async with hf.connect(file, agents=[agent]) as app:
            assert await (await app.start(agent(False), id="open")).result(timeout=30) == "told"
            with pytest.raises(RunBlocked, match="EffectInDoubt"):
                await (await app.start(agent(True), id="sealed")).result(timeout=30)

    asyncio.run(main())
