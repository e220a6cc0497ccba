"""A web app that starts runs, shows how they go on, and takes what people decide.

    pip install 'holdfast[server]'
    python examples/fastapi_app.py                    # once through, as a browser would
    uvicorn --app-dir examples fastapi_app:web        # then open http://127.0.0.1:8000/docs

The runs go on whatever happens to this process: killed, deployed anew, four of it.
"""

import json
from collections.abc import AsyncIterator

from fastapi import FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

import holdfast as hf


@hf.step(retries=3)
async def draft(topic: str) -> str:
    return f"All about {topic}."  # a model call, in real life


@hf.agent
async def letter(topic: str) -> str:
    text = await draft(topic)
    ok = await hf.ask(f"Send the letter about {topic}?", show=text)  # may take a week; no process is held
    return f"sent: {text}" if ok else "dropped"


app = hf.connect(agents=[letter])
web = FastAPI(lifespan=app.lifespan)


class Decision(BaseModel):
    ok: bool
    by: str
    note: str = ""


@web.put("/letters/{topic}", status_code=202)
async def start(topic: str) -> dict[str, str]:
    run = await app.start(letter(topic), id=f"letter-{topic}")  # asked for twice, it is one run
    return {"run": run.id, "token": run.token}


@web.get("/letters/{topic}/events")
async def watch(topic: str) -> StreamingResponse:
    """How it goes on, as an event stream: `new EventSource("/letters/tides/events")` in a browser."""
    run = await found(topic)

    async def events() -> AsyncIterator[str]:
        async for info in run.watch():
            yield f"data: {json.dumps({'status': info.status, 'now': info.now})}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


@web.get("/letters/{topic}/question")
async def question(topic: str) -> dict[str, object]:
    try:
        asked = await (await found(topic)).question(timeout=10)
    except (TimeoutError, hf.RunFinished):
        raise HTTPException(404, "It asks nothing.") from None
    return {"id": asked.id, "prompt": asked.prompt, "show": asked.show}


@web.post("/letters/{topic}/question")
async def answer(topic: str, decision: Decision) -> dict[str, object]:
    run = await found(topic)
    asked = await run.questions()
    if not asked:
        raise HTTPException(409, "It asks nothing, or somebody was first.")
    try:
        await asked[0].answer(decision.ok, by=decision.by, note=decision.note)
    except hf.AlreadyDecided as late:
        raise HTTPException(409, f"It was {late.state} by {late.by}.") from late
    return {"result": await run.result(timeout=10)}


async def found(topic: str) -> hf.Run[str]:
    try:
        return await app.find(f"letter-{topic}")
    except hf.RunNotFound:
        raise HTTPException(404, f"Nobody asked for a letter about {topic}.") from None


if __name__ == "__main__":
    from fastapi.testclient import TestClient

    with TestClient(web) as browser:
        print(browser.put("/letters/tides").json())
        asked = browser.get("/letters/tides/question")
        if asked.status_code == 200:
            print(asked.json()["prompt"])
            browser.post("/letters/tides/question", json={"ok": True, "by": "ana"})
        print(browser.get("/letters/tides/events").text.splitlines()[-2])
