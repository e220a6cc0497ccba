"""One agent, two steps. Run it twice: the second time both answers come from the journal.

python examples/hello.py
"""

import holdfast as hf


@hf.step
async def think(question: str) -> str:
    print(f"thinking about {question}")
    return f"{question}? Forty-two."


@hf.step
def count(text: str) -> int:  # a `def` step runs in a thread
    print("counting")
    return len(text)


@hf.agent
async def hello(question: str) -> str:
    answer = await think(question)
    return f"{answer} ({await count(answer)} letters, asked at {hf.now():%H:%M})"


if __name__ == "__main__":
    print(hf.run(hello("the answer"), id="hello-1"))
