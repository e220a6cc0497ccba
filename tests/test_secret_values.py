"""`hf.Secret` and `hf.redact`: what is used and not kept."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import holdfast as hf
from holdfast.base.secrets import SECRETS
from holdfast.base.telemetry import warn
from holdfast.codec import coder_of, encode_call
from tests.server.scene import Scene
from tests.workers import asked, until

VALUE = 'sk-"7Q\u00e4-tell-nobody'


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    SECRETS.forget()


class Deps(BaseModel):
    key: hf.Secret[str]


@hf.step
async def use(key: hf.Secret[str], more: Any = None) -> int:
    out = hf.stream("out")
    out.write(f"key {key.reveal()}")
    return len(key.reveal())


@hf.step(retries=1)
async def fail(key: str) -> None:
    hf.progress(1, 2, f"with {key}")
    raise ValueError(f"no such key: {key}" + " and more" * 2000, key)  # too much for a record


@hf.effect
async def pay(key: hf.Secret[str]) -> dict[str, str]:
    return {"key": key.reveal()}


@hf.effect
async def doubt(key: hf.Secret[str]) -> int:
    raise ConnectionError(f"the line broke: {key.reveal()}")


@hf.step
async def tell(key: hf.Secret[str]) -> str:
    return f"it is {key.reveal()}"


@hf.agent
async def leaky() -> int:
    key = hf.Secret(VALUE)
    found = await use(key, [key, {"a": key}])
    for call in (fail(key.reveal()), tell(key), pay(key)):
        try:
            await call
        except hf.HoldfastError as error:
            logging.getLogger("mine").warning("%s", error)
        except ValueError:
            found += 1
    if found > 1:
        await asyncio.gather(hf.ask(f"Is {key.reveal()} right?"), doubt(key))
    return found


def forms(value: str) -> list[bytes]:
    return [value.encode(), json.dumps(value)[1:-1].encode(), b"tell-nobody"]


def test_it_is_in_no_file_log_or_response(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("tests.server.scene.ALL", [leaky])

    async def go() -> bytes:
        async with Scene(tmp_path) as scene:
            run = await scene.app.start(leaky(), id="leaky")
            async with asyncio.timeout(60):
                async for info in run.watch():
                    if info.status in ("waiting", "in_doubt", "failed", "blocked"):
                        break
            assert (await run.info()).status == "in_doubt"
            paths = ["", "/calls", "/records", "/story", "/streams/out", "/artifacts", "/calls/fail%231", "/receipts"]
            told = [await scene.http.get(f"/api/v1/runs/leaky{path}") for path in paths]
            told += [await scene.http.get(f"/api/v1/{path}") for path in ("runs", "questions", "in-doubt", "overview")]
            assert {each.status_code for each in told} == {200}
            files = [each.read_bytes() for each in tmp_path.iterdir() if each.is_file()]
            assert len(files) >= 2, "the WAL is there as well"
            return b"\n".join([*files, *(each.content for each in told)])

    seen = asyncio.run(go()) + caplog.text.encode()
    assert b"(secret)" in seen
    assert b'{"$opaque": "Secret"}' in seen.replace(b'":"', b'": "')
    assert [each for each in forms(VALUE) if each in seen] == []


shown: list[str] = []


@hf.step
async def look() -> None:
    pass


@hf.agent
async def planning() -> str:
    key = hf.Secret(VALUE)
    await hf.guard("key", lambda: f"with {key.reveal()}", on_change="block")
    todo = await hf.plan([f"try {key.reveal()}"])
    new = await todo.add(f"and {key.reveal()}")
    await todo.tick(new, note=f"by {key.reveal()}")
    shown.append(todo.prompt())
    await hf.ask("Shall I go on?")
    await look()  # guards are taken before it
    return todo.prompt()


def test_plans_and_guards_are_the_same_before_and_after_a_resume(tmp_path: Path) -> None:
    """What is replaced where it is recorded is replaced where it is used: nothing has changed in between."""

    shown.clear()

    async def go() -> None:
        async with hf.connect(tmp_path / "s.db", agents=[planning]) as app:
            run = await app.start(planning(), id="run")
            (question,) = await asked(run)
            await until(run, "waiting")
            await question.answer(True)
            await until(run, "done", "blocked", "failed")
            assert await run.result(timeout=60) == "- [ ] 1: try (secret)\n- [x] 2: and (secret) (by (secret))"
            assert shown == [await run.result()] * 2
            assert await run.receipts() == []

    asyncio.run(go())
    assert [each for each in forms(VALUE) if each in (tmp_path / "s.db").read_bytes()] == []


def test_it_shows_nothing_of_itself() -> None:
    key = hf.Secret(VALUE)
    shown = [repr(key), str(key), f"{key:>30}", f"{[key]}", repr(Deps(key=key)), Deps(key=key).model_dump_json()]
    assert not any("tell" in each for each in shown)
    assert copy.deepcopy(key) is key.__copy__() is key
    assert key.reveal() == key.get_secret_value() == VALUE
    refusing: list[Any] = [pickle.dumps, json.dumps, hf.Secret]
    for refuse in refusing:
        with pytest.raises((TypeError, hf.UsageError)) as refused:
            refuse(key)
        assert "tell" not in str(refused.value)


def test_another_key_is_the_same_call_and_a_revealed_one_too() -> None:
    def call(key: object, times: int = 3) -> None: ...

    one = [encode_call(call, (hf.Secret("first-key"),), {}), encode_call(call, ("x first-key",), {})]
    other = [encode_call(call, (hf.Secret("second-key"),), {}), encode_call(call, ("x second-key",), {})]
    assert one == other
    assert one[1][0] == '{"key":"x (secret)","times":3}'
    SECRETS.forget()
    assert encode_call(call, ("x (secret)",), {}) == one[1], "it is recognised by what is recorded"


def test_calls_without_one_are_recognised_whether_there_are_secrets_or_not() -> None:
    def call(text: object = "", options: object = None) -> None: ...

    calls = [
        (("z", 1), {}),
        ((1e-7,), {}),
        (("\u00e4\u2028",), {}),
        (([1e-7] * 5000,), {"options": {"b": 1, "a": 2}}),
        ((), {}),
    ]
    before = [encode_call(call, args, kwargs) for args, kwargs in calls]
    hf.Secret(VALUE)
    assert [encode_call(call, args, kwargs) for args, kwargs in calls] == before


@pytest.mark.parametrize("value", [{"a": [VALUE]}, VALUE, (1, VALUE.encode().decode()), Deps])
def test_what_a_run_reads_back_cannot_have_one(value: object) -> None:
    key = hf.Secret(VALUE)
    if value is Deps:
        value = Deps(key=key)
    with pytest.raises(hf.Unserialisable, match="secret") as refused:
        coder_of(value).dumps(value, what="the result")
    assert "tell" not in str(refused.value)


def test_a_hook_changes_what_is_kept_for_people(caplog: pytest.LogCaptureFixture) -> None:
    def call(card: str) -> None: ...

    hf.redact(lambda text: text.replace("4111", "(card)"))
    assert encode_call(call, ("4111",), {})[0] == '{"card":"(card)"}'
    warn("odd", what="of 4111")
    assert "of (card)" in caplog.text

    def broken(text: str) -> str:
        raise KeyError("4111")

    hf.redact(broken)
    assert encode_call(call, ("4111",), {})[0] == '{"$opaque":"arguments"}'
    warn("odd", what="of 4111")
    assert "4111" not in caplog.text
    with pytest.raises(hf.UsageError, match="takes a function"):
        hf.redact("4111")  # type: ignore[arg-type]
