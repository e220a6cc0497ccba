"""Branches with plain asyncio, a race, a timeout, and what it all cost.

python examples/parallel_research.py
"""

import asyncio

import holdfast as hf


@hf.step(retries=2)
async def search(query: str) -> list[str]:
    await asyncio.sleep(0.05)
    return [f"{query} 1", f"{query} 2"]


@hf.step(timeout=10)
async def summarise(model: str, pages: list[str]) -> str:
    await asyncio.sleep(0.1 if model == "small" else 5)
    hf.usage(model=model, input_tokens=40 * len(pages), output_tokens=12, cost=0.0004)
    return f"{len(pages)} pages, says {model}"


async def dig(topic: str) -> str:
    """One branch: its steps are named after it, whatever the other branches do."""
    pages = await search(topic)
    pages += await search(f"{topic} news")
    return await hf.race(summarise("small", pages), summarise("large", pages))


@hf.agent
async def research(topics: list[str]) -> str:
    async with hf.timeout(60):
        found = await asyncio.gather(*(dig(topic) for topic in topics))
    hf.progress(len(topics), len(topics), "all topics read")
    return "; ".join(found)


if __name__ == "__main__":
    print(hf.run(research(["tides", "moon", "eels"]), id="research-1"))
