"""Mails that a service delivers are sorted: spam is dropped, bugs become tickets, the rest is answered by a person.

    pip install 'holdfast[server]'
    python examples/webhook_triage.py                   # three deliveries, each made twice
    uvicorn --app-dir examples webhook_triage:web       # for good; `holdfast serve --hooks` is such a server, too

A service delivers until it hears 202. What it hears 202 for is on disk: the run comes, whoever is killed. The id of a
delivery makes it one event, and one run, however often it comes.
"""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI, HTTPException, Request

import holdfast as hf

SECRET = b"shared with the service"
MAILS = {
    "msg-1": {"sender": "ada@example.org", "text": "It crashes when I open a file."},
    "msg-2": {"sender": "win@example.net", "text": "You have won."},
    "msg-3": {"sender": "bo@example.org", "text": "Do you deliver to Bergen?"},
}


@dataclass
class Mail:
    sender: str
    text: str


@hf.step(retries=3, timeout=60)
async def classify(text: str) -> str:
    """Your model."""
    return "spam" if "won" in text else "bug" if "crash" in text else "question"


@hf.step(retries=3)
async def draft(text: str) -> str:
    """Your model."""
    return f"Thank you for asking: {text}"


@hf.effect
def write_down(sort: str, text: str) -> None:
    with hf.transaction() as connection:  # with the result, in one commit: a row is there once
        connection.execute("CREATE TABLE IF NOT EXISTS outcomes (sort TEXT, text TEXT)")
        connection.execute("INSERT INTO outcomes VALUES (?, ?)", (sort, text))


@hf.agent
async def triage(mail: Mail) -> str:
    sort = await classify(mail.text)
    if sort == "bug":
        await write_down("ticket", mail.text)
    elif sort == "question":
        answer = await hf.ask(f"Send this to {mail.sender}?", draft=await draft(mail.text), show=mail.text)
        await write_down("answer", answer)
    return sort


app = hf.connect(agents=[triage])


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    async with app.lifespan(web):
        await app.on("mail.received", triage, name="triage")
        yield


web = FastAPI(lifespan=lifespan)


@web.post("/hooks/mail", status_code=202)
async def take_delivery(request: Request) -> dict[str, str]:
    delivery, body = request.headers.get("webhook-id", ""), await request.body()
    if not hmac.compare_digest(request.headers.get("webhook-signature", ""), signature(delivery, body)):
        raise HTTPException(401, "Not signed by the service.")
    return {"event": await app.emit("mail.received", json.loads(body), dedup=delivery)}


def signature(delivery: str, body: bytes) -> str:
    return base64.b64encode(hmac.digest(SECRET, delivery.encode() + b"." + body, hashlib.sha256)).decode()


async def outcomes(events: dict[str, str]) -> str:
    """What became of them; a person is imitated."""
    found = []
    for delivery, event in events.items():
        run = await started(f"triage:{event}")
        try:
            question = await run.question(timeout=60)
            print(f"{question.prompt} {question.show}")
            await question.answer("Yes, on Mondays.", by="eva")
        except hf.RunFinished:
            pass
        found.append(f"{delivery} {await run.result()}")
    return ", ".join(found)


async def started(run_id: str) -> hf.Run[str]:
    """It comes: the event is on disk. If the process that took it was killed, another one is at it in a moment."""
    while True:
        try:
            return await app.find(run_id)
        except hf.RunNotFound:
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    from fastapi.testclient import TestClient

    with TestClient(web) as service:
        events = {}
        for delivery, mail in [*MAILS.items()] * 2:
            body = json.dumps(mail).encode()
            headers = {"webhook-id": delivery, "webhook-signature": signature(delivery, body)}
            answer = service.post("/hooks/mail", content=body, headers=headers)
            assert answer.status_code == 202, answer.text
            events[delivery] = answer.json()["event"]
        assert service.post("/hooks/mail", content=b"{}", headers={"webhook-id": "msg-4"}).status_code == 401
        print(service.portal.call(outcomes, events))
