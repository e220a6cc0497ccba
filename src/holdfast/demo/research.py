"""A research agent: it plans, searches in parallel, writes a report and mails it.

Kill it wherever you like and run it again: it goes on where it was, and nobody gets a mail twice.
"""

import asyncio
import smtplib
from email.message import EmailMessage
from pathlib import Path

import holdfast as hf
from holdfast.demo.outside import mail, model, tally, web

READERS = ("ada@example.org", "grace@example.org")


async def think(prompt: str) -> str:
    reply = await model.ask(prompt)
    hf.usage(model=reply.model, input_tokens=reply.input_tokens, output_tokens=reply.output_tokens, cost=reply.cost)
    return reply.text


@hf.step  # safe to repeat: reads, model calls, computation
async def plan(topic: str) -> list[str]:
    answer = await think(f"Which three questions explain {topic}? One per line.")
    return answer.splitlines()


@hf.step(retries=3)
async def search(question: str) -> list[str]:
    return await web.search(question)


@hf.step
async def digest(question: str, pages: list[str]) -> str:
    return await think(f"Answer from these pages: {question}\n" + "\n".join(pages))


@hf.step
async def write(topic: str, notes: list[str]) -> str:
    return await think(f"Write a report on {topic} from these notes:\n" + "\n".join(notes))


@hf.effect(on_doubt="retry")  # the same text in the same place: once more does no harm
def save(name: str, text: str) -> int:
    tally()
    return Path(name).write_text(text, encoding="utf-8")


@hf.effect  # changes the world: never repeated blindly
def send_email(to: str, subject: str, text: str) -> str:
    tally()
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "research@example.org", to, subject
    message["Message-ID"] = f"<{hf.this_step().idempotency_key}@example.org>"
    message.set_content(text)
    with smtplib.SMTP(mail.host, mail.smtp_port, timeout=10) as server:
        server.send_message(message)
    return str(message["Message-ID"])


@send_email.verify  # cut off in the middle? ask the mail server
async def find_sent(to: str, subject: str, text: str) -> hf.Verdict[str]:
    message_id = f"<{hf.this_step().idempotency_key}@example.org>"
    return hf.landed(message_id) if await mail.find(message_id) else hf.not_landed()


async def investigate(question: str) -> str:  # plain asyncio: each question is a branch of its own
    return await digest(question, await search(question))


@hf.agent
async def research(topic: str) -> str:
    questions = await plan(topic)
    notes = await asyncio.gather(*(investigate(question) for question in questions))
    report = await write(topic, notes)
    await save("report.md", report)
    for reader in READERS:
        await send_email(reader, f"About {topic}", report)
    return f"{len(report.split())} words on {topic}, for {len(READERS)} readers"


if __name__ == "__main__":
    print(hf.run(research("tides"), id="tide-report"))
