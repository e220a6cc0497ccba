"""A refund that a person approves, and that is taken back where the parcel is on its way already.

python examples/refund.py

Kill it anywhere and run it again. No money goes out before somebody has said yes. If the delivery cannot be stopped,
the saga undoes what it did: the money is claimed back, once.
"""

import asyncio
from pathlib import Path

import holdfast as hf

BOOKS = Path("books.txt")  # the bank of this example: a key, an amount, an order
ORDERS = {"order-1": 40, "order-2": 90}
ON_ITS_WAY = {"order-2"}


class AlreadyShipped(Exception):
    """The delivery was not stopped."""


def book(key: str, amount: int, order: str) -> None:
    with BOOKS.open("a") as books:
        books.write(f"{key} {amount} {order}\n")


def is_booked(key: str) -> bool:
    return BOOKS.exists() and any(line.startswith(f"{key} ") for line in BOOKS.read_text().splitlines())


@hf.effect(settle=0)  # 0: a local file cannot act late; leave the default for a bank
async def pay_back(order: str, amount: int) -> str:
    key = hf.this_step().idempotency_key
    book(key, -amount, order)
    return key


@pay_back.verify  # cut off in the middle? ask the bank
async def find_payment(order: str, amount: int) -> hf.Verdict[str]:
    key = hf.this_step().idempotency_key
    return hf.landed(key) if is_booked(key) else hf.not_landed()


@pay_back.undo  # it may be repeated, so it looks first
async def claim_back(payment: str | None, order: str, amount: int) -> None:
    paid = payment or hf.this_step().undoes
    if is_booked(f"{paid}") and not is_booked(f"{paid}-undone"):
        book(f"{paid}-undone", amount, order)


@hf.effect(raises=AlreadyShipped, on_doubt="retry")  # that is proof that nothing was stopped; twice is as good as once
async def stop_delivery(order: str) -> str:
    if order in ON_ITS_WAY:
        raise AlreadyShipped(f"{order} is on its way")
    return f"{order} stays here"


@hf.agent
async def refund(order: str, amount: int) -> str:
    approval = await hf.ask(f"Pay {amount} back for {order}?", hf.Approval, show={"order": order, "amount": amount})
    if not approval:
        return f"{order}: refused by {approval.by}"
    try:
        async with hf.saga():
            await pay_back(order, amount)
            await stop_delivery(order)
    except AlreadyShipped as shipped:
        return f"{order}: taken back, {shipped}"
    return f"{order}: {amount} paid back, approved by {approval.by}"


async def main() -> str:
    async with hf.connect(agents=[refund]) as app:
        runs = [await app.start(refund(order, amount), id=f"refund-{order}") for order, amount in ORDERS.items()]
        for run in runs:
            try:
                question = await run.question(timeout=60)
            except hf.RunFinished:
                continue
            print(f"answering {question.prompt!r}")  # in real life: `holdfast answer`, or the console
            await question.answer(True, by="eva")
        return "; ".join([await run.result() for run in runs])


if __name__ == "__main__":
    print(asyncio.run(main()))
