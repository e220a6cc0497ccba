"""A thousand documents are read by a model, twenty at a time, and each gets one row in an index.

python examples/map_documents.py

Kill it in the middle and run it again: it goes on with the documents that are left. The index is in the database of the
runs, so a row and the note that it is there are one commit. One document cannot be read; it is told of, and the others
are not held up.
"""

import asyncio

import holdfast as hf

DOCUMENTS, AT_ONCE = 1_000, 20


class Unreadable(Exception):
    """The document says nothing."""


@hf.step
async def list_documents() -> list[str]:
    return [f"document-{number:04}" for number in range(DOCUMENTS)]


@hf.step(retries=3, raises=Unreadable)
async def classify(name: str) -> str:
    """Your model."""
    if name.endswith("0666"):
        raise Unreadable(name)
    await asyncio.sleep(0)
    return "letter" if int(name[-4:]) % 3 else "invoice"


@hf.effect
def make_index() -> None:
    with hf.transaction() as connection:
        connection.execute("CREATE TABLE documents (name TEXT, sort TEXT)")


@hf.effect
def store(name: str, sort: str) -> None:
    """Nothing would notice a row that is there twice."""
    with hf.transaction() as connection:
        connection.execute("INSERT INTO documents VALUES (?, ?)", (name, sort))


@hf.agent
async def index() -> dict[str, int]:
    await make_index()
    names = iter(await list_documents())
    counts = {"letter": 0, "invoice": 0, "unreadable": 0}

    async def read() -> None:
        for name in names:  # all readers take from one pile
            try:
                sort = await classify(name)
            except Unreadable:
                counts["unreadable"] += 1
                continue
            await store(name, sort)
            counts[sort] += 1
            hf.progress(sum(counts.values()), DOCUMENTS, "documents")

    await asyncio.gather(*(read() for _ in range(AT_ONCE)))
    return counts


if __name__ == "__main__":
    print(hf.run(index(), id="index-1"))
