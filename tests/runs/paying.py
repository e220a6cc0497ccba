"""A process that pays orders by effects on a table of its own, next to the runs: `python -m tests.runs.paying URL`.

It writes a line when it begins an attempt, and ends with the run's result on a line of its own.
"""

from __future__ import annotations

import asyncio
import os
import sys

import holdfast as hf

TABLE = "CREATE TABLE IF NOT EXISTS payments (id INTEGER, amount INTEGER)"


def tell(what: str) -> None:
    os.write(1, f"{what}\n".encode())


@hf.effect
def pay_here(order: int) -> str:
    tell(f"attempt {hf.this_step().attempt} of {order}")
    with hf.transaction() as connection:
        connection.execute(TABLE)
        connection.execute("INSERT INTO payments VALUES (?, ?)", (order, 10 * order))
        ((count,),) = connection.execute("SELECT count(*) FROM payments WHERE id = ?", (order,))
    return f"{order} paid {count} times"


@hf.effect
async def pay_there(order: int) -> str:
    tell(f"attempt {hf.this_step().attempt} of {order}")
    async with hf.transaction() as connection:
        await connection.execute(TABLE)
        await connection.execute("INSERT INTO payments VALUES ($1, $2)", order, 10 * order)
        count = await connection.fetchval("SELECT count(*) FROM payments WHERE id = $1", order)
    return f"{order} paid {count} times"


@hf.agent
async def shop(orders: list[int], there: bool) -> list[str]:
    return [await (pay_there(order) if there else pay_here(order)) for order in orders]


SETTINGS = hf.Settings(lease_s=float(os.environ.get("LEASE_S", "10")), renew_s=0.3, sweep_s=0.1)


async def main(url: str) -> None:
    async with hf.connect(url, agents=[shop], settings=SETTINGS) as app:
        run = await app.start(shop([1, 2, 3], url.startswith("postgres")), id="shop")
        tell(str(await run.result(timeout=60)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
