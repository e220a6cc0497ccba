"""Ten thousand rows move to a new table, in batches, each of them once, however often the process is killed.

python examples/migration.py

Kill it in the middle and run it again: it goes on with the batch that it was at. The rows are in the database of the
runs, so a batch and the note that it is done are one commit. If your rows are elsewhere, make the batch an effect that
can be repeated (`on_doubt="retry"` with an upsert), or give it a `verify`.
"""

import holdfast as hf

ROWS, BATCH = 10_000, 250


@hf.effect
def seed() -> None:
    """What is there before: names in one column."""
    with hf.transaction() as connection:
        connection.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("CREATE TABLE people (customer INTEGER, first TEXT, last TEXT)")
        for number in range(ROWS):
            connection.execute("INSERT INTO customers VALUES (?, ?)", (number, f"First{number} Last{number}"))


@hf.effect
def migrate(after: int, batch: int) -> int:
    """Move the rows behind `after`; the last of them. Nothing would notice a row that is moved twice."""
    with hf.transaction() as connection:
        query = "SELECT id, name FROM customers WHERE id > ? ORDER BY id LIMIT ?"
        rows = list(connection.execute(query, (after, batch)))
        for number, name in rows:
            first, _, last = name.partition(" ")
            connection.execute("INSERT INTO people VALUES (?, ?, ?)", (number, first, last))
    return rows[-1][0] if rows else after


@hf.effect
def count() -> int:
    with hf.transaction() as connection:
        ((rows,),) = connection.execute("SELECT count(*) FROM people")
    return rows


@hf.agent
async def migration(batch: int) -> str:
    await seed()
    last = -1
    while (reached := await migrate(last, batch)) != last:
        last = reached
        hf.progress(last + 1, ROWS, "rows")
    return f"{await count()} rows moved"


if __name__ == "__main__":
    print(hf.run(migration(BATCH), id="split-names"))
