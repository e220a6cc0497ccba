"""The program behind the Claude Agent SDK, for tests and demonstrations: it answers by what it has heard, offline.

    options = ClaudeAgentOptions(cli_path=scripted_claude(folder), session_store=store)

It speaks as the real one does with the SDK, mirrors its transcript, resumes a session, also at an entry in its middle,
and writes nothing to disk. Nothing but the standard library is imported, since it is started for each query.
"""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from pathlib import Path
from typing import Any, TextIO


def scripted_claude(folder: str | os.PathLike[str]) -> str:
    """Put the program into a folder: the path for `cli_path=` of the SDK.

    Example: `ClaudeAgentOptions(cli_path=scripted_claude(tmp_path))`
    """
    path = Path(folder).resolve() / "claude"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{Path(__file__).resolve()}" "$@"\n', "utf-8")
    path.chmod(0o700)
    return str(path)


def _main(words: list[str], said: TextIO, out: TextIO) -> None:
    options = dict(zip(words, [*words[1:], ""], strict=True))
    options |= dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
    session = options.get("--resume") or options.get("--session-id") or _new_id()
    config = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    transcript = config / "projects" / re.sub(r"[^a-zA-Z0-9]", "-", os.path.realpath(".")) / f"{session}.jsonl"
    entries = _chain(transcript, options.get("--resume-session-at"))

    def tell(**message: Any) -> None:
        out.write(f"{json.dumps(message)}\n")
        out.flush()

    for line in said:
        message = json.loads(line)
        if message["type"] == "control_request":
            answer: dict[str, Any] = {
                "subtype": "success",
                "request_id": message["request_id"],
                "response": {"commands": []},
            }
            tell(type="control_response", response=answer)
        elif message["type"] == "user":
            heard = [each for each in entries if each["type"] == "user"]
            text = f"I have heard {len(heard) + 1}: {message['message']['content']}"
            answers = {"role": "assistant", "model": "scripted-1", "content": [{"type": "text", "text": text}]}
            before = len(entries)
            for kind, content in (("user", message["message"]), ("assistant", answers)):
                parent = entries[-1]["uuid"] if entries else None
                entries.append(
                    {
                        "type": kind,
                        "uuid": _new_id(),
                        "parentUuid": parent,
                        "sessionId": session,
                        "timestamp": "2026-01-01T00:00:00.000Z",
                        "message": content,
                    }
                )
            tell(type="transcript_mirror", filePath=str(transcript), entries=entries[before:])
            tell(type="assistant", message=answers, session_id=session, uuid=entries[-1]["uuid"])
            cost = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "total_cost_usd": 0.01}
            tell(type="result", subtype="success", is_error=False, session_id=session, result=text, **cost)


def _new_id() -> str:
    return str(uuid.UUID(bytes=os.urandom(16), version=4))


def _chain(transcript: Path, end: str | None) -> list[dict[str, Any]]:
    """What was said up to an entry, or up to the last one: what others said from the same point on is left out."""
    if not transcript.exists():
        return []
    stored = [json.loads(line) for line in transcript.read_text("utf-8").splitlines()]
    known = {each["uuid"]: each for each in stored if "parentUuid" in each}
    at, chain = end or next(reversed(known), None), list[dict[str, Any]]()
    while at is not None:
        chain.append(known[at])
        at = known[at]["parentUuid"]
    return chain[::-1]


if __name__ == "__main__":
    _main(sys.argv[1:], sys.stdin, sys.stdout)
