"""An agent asks a person before it acts. The question outlives the process; the first answer counts.

python examples/approval.py

Nobody is there to answer, so the example answers by itself, in a second process that does not have the agent. In real
life that is `holdfast answer`, or a page of yours that uses `app.questions()`.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

import holdfast as hf

PAYMENTS = Path("payments.txt")  # the bank of this example


@hf.effect(settle=0)
async def pay(to: str, amount: int) -> str:
    with PAYMENTS.open("a") as payments:
        payments.write(f"{hf.this_step().idempotency_key} {amount} to {to}\n")
    return f"{amount} paid to {to}"


@pay.verify
async def find_payment(to: str, amount: int) -> hf.Verdict[str]:
    made = PAYMENTS.read_text() if PAYMENTS.exists() else ""
    is_made = hf.this_step().idempotency_key in made
    return hf.landed(f"{amount} paid to {to}") if is_made else hf.not_landed()


@hf.agent
async def invoice(to: str, amount: int) -> str:
    approval = await hf.ask(f"Pay {amount} to {to}?", hf.Approval, show={"to": to, "amount": amount})
    if not approval:
        return f"refused by {approval.by}: {approval.note}"
    return f"{await pay(to, amount)}, approved by {approval.by}"


async def answer() -> None:
    async with hf.connect() as app:  # without agents: a client
        for question in await app.questions():
            print(f"answering {question.prompt!r} {question.show}")
            await question.answer(True, by="eva", note="as agreed")


if __name__ == "__main__":
    if "answer" in sys.argv:
        asyncio.run(answer())
    else:
        try:
            print(hf.run(invoice("ada", 40), id="invoice-7"))
        except hf.NeedsHuman as needed:
            print(needed)
            subprocess.run([sys.executable, __file__, "answer"], check=True)
            print(hf.run(invoice("ada", 40), id="invoice-7"))
