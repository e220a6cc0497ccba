"""A store full of hostile ids, names and values: a run of each sort under each id of the corpus."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

from tests.cli.commands import Commands
from tests.hostile import IDS, TEXTS

#: How a run stands, by the name of its agent.
SORTS = ("ended", "failed", "asking", "forming", "drafting", "listening", "doubtful", "held", "cut")

AGENTS = """
import asyncio
from typing import Literal

import holdfast as hf
from pydantic import Field, create_model


@hf.step
async def tell(text: str) -> None:
    hf.stream().write(text)


@hf.step
async def fail(text: str) -> None:
    hf.stream().write(text)
    raise ValueError(text)


@hf.effect
async def act(text: str) -> None:
    raise OSError(text)


@hf.step
async def for_ever(text: str) -> None:
    await asyncio.sleep(3600)


@hf.agent
async def ended(name: str, text: str) -> dict:
    await tell(text)
    await hf.thread(dict).append({text: text}, {"who": name})
    return {"said": text, text: [name]}


@hf.agent
async def failed(name: str, text: str) -> None:
    await fail(text)


@hf.agent
async def asking(name: str, text: str) -> str:
    return await hf.ask(f"{text} {name}", options=[text, name, "neither"], show={text: [text]})


@hf.agent
async def forming(name: str, text: str) -> str:
    form = create_model(
        "Form",
        first=(str, Field(alias=text, description=text)),
        more=(Literal[text, name], Field(default=text, title=text)),
        last=(str, Field(default=text, description=name)),
    )
    return str(await hf.ask(text, form, show=text))


@hf.agent
async def drafting(name: str, text: str) -> str:
    return await hf.ask(text, draft=text)


@hf.agent
async def listening(name: str, text: str) -> bool:
    return await hf.receive(hf.Signal(name, bool))


@hf.agent
async def doubtful(name: str, text: str) -> None:
    await act.with_options(key=name)(text)


@hf.agent
async def held(name: str, text: str) -> str:
    return await hf.ask(text)


@hf.agent
async def cut(name: str, text: str) -> None:
    hf.progress(1, 2, text)
    await for_ever(text)


@cut.on_interrupt
async def hear(message: str) -> str:
    return message
"""

#: Starts all runs, waits until each stands as it is meant to, and dies.
_BUILD = """
import asyncio, json, os
from datetime import timedelta
import holdfast as hf
import agents

async def settled(app, sort, wanted, number):
    while len(await app.runs(agent=sort, status=wanted, limit=1000)) < number:
        await asyncio.sleep(0.02)

async def main():
    plan = json.loads(open("plan.json").read())
    known = [getattr(agents, name) for name in plan["sorts"]]
    app = hf.connect(agents=known)
    await app.__aenter__()
    for sort in plan["sorts"]:
        for run_id, name, text in plan["runs"][sort]:
            call = getattr(agents, sort)(name, text)
            await app.start(call, id=run_id, thread_id=name, queue=name, tags={"t": name})
    waited = {"ended": "done", "failed": "failed", "doubtful": "in_doubt", "cut": "running"}
    for sort in plan["sorts"]:
        await settled(app, sort, waited.get(sort, "waiting"), len(plan["runs"][sort]))
    for run_id, name, text in plan["runs"]["held"]:
        await app.get(run_id).pause(by=text, note=text)
    await settled(app, "held", "paused", len(plan["runs"]["held"]))
    for number, name in enumerate(plan["names"]):
        await app.queue(name, concurrency=5)
        await app.schedule(name, agents.ended(name, name), cron="0 0 1 1 *")
        await app.on(name.replace(" ", "_"), agents.hears, name=f"t{number}", queue=name)
        await app.retain(name, keep=timedelta(days=9999))
    os._exit(0)

asyncio.run(main())
"""
_TRIGGERED = """

@hf.agent
async def hears(event: object) -> object:
    return event
"""


def run_id_of(sort: str, hostile: str) -> str:
    """The id of the run of a sort that has a hostile one in it, where that is worst."""
    return f"{sort} {hostile}" if hostile.endswith(".py") else f"{hostile} {sort}"


def text_of(sort: str, hostile: str) -> str:
    """The text that this run is about: each sort has another one for each id."""
    texts = [text for name, text in TEXTS.items() if name != "surrogate"]  # no value can have half a character
    return texts[(list(IDS.values()).index(hostile) + 6 * SORTS.index(sort)) % len(texts)]


def build(hf: Commands) -> None:
    """Make the store in the folder of the commands."""
    (hf.folder / "agents.py").write_text(AGENTS + _TRIGGERED)
    runs = {
        sort: [(run_id_of(sort, hostile), hostile, text_of(sort, hostile)) for hostile in IDS.values()]
        for sort in SORTS
    }
    plan = {"sorts": SORTS, "runs": runs, "names": list(IDS.values())}
    (hf.folder / "plan.json").write_text(json.dumps(plan))
    ended = hf.execute(_BUILD)
    assert ended.code == 0, ended.err


def copied(world: Path, folder: Path) -> None:
    """A world of the test's own."""
    shutil.copytree(world, folder, dirs_exist_ok=True, symlinks=True)


def all_texts_are_used() -> bool:
    used = {text_of(sort, hostile) for sort, hostile in itertools.product(SORTS, IDS.values())}
    return used >= set(TEXTS.values()) - {TEXTS["surrogate"]}
