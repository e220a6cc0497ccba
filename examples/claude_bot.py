"""A conversation with Claude that is killed after an answer, and goes on: the session is in the store of the runs.

python examples/claude_bot.py

The program behind the SDK is a stand-in, so nothing is sent anywhere; leave `cli_path` out for the real one. A turn
that is repeated after a crash begins where the first attempt began: behind the last entry that the run knows of.
"""

import os
import subprocess
import sys
from dataclasses import dataclass

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, query

import holdfast as hf
from holdfast.ext.claude import SessionStore
from holdfast.testing.claude_cli import scripted_claude


@dataclass
class Said:
    session: str
    entry: str
    text: str


@hf.step(retries=3)  # if its tools change the world: an effect, with a rule for what was cut off
async def say(text: str, last: Said | None) -> Said:
    options = ClaudeAgentOptions(cli_path=scripted_claude("."), session_store=SessionStore(project="talk"))
    if last is not None:
        options.resume, options.resume_session_at = last.session, last.entry
    entry = ""
    async for message in query(prompt=text, options=options):
        if isinstance(message, AssistantMessage):
            entry = message.uuid or ""
        elif isinstance(message, ResultMessage):
            hf.usage(model="claude", cost=message.total_cost_usd or 0.0)
            last = Said(message.session_id, entry, message.result or "")
    assert last is not None
    return last


@hf.agent
async def talk(questions: list[str]) -> str:
    last: Said | None = None
    for question in questions:
        last = await say(question, last)
    return last.text if last else ""


if __name__ == "__main__":
    if not os.path.exists("claude") and "HOLDFAST_FAULT" not in os.environ:
        killed = os.environ | {"HOLDFAST_FAULT": "step.after_body:kill@2"}
        process = subprocess.run([sys.executable, __file__], env=killed, check=False)
        print(f"the first process ended with {process.returncode}")
    print(hf.run(talk(["Hello.", "And the tides?", "Thank you."]), id="talk-1"))
