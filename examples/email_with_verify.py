"""An effect that is cut off, and a `verify` that finds out what became of it.

python examples/email_with_verify.py

It starts itself as a second process, which is killed after the mail is out and before its outcome is recorded. Then it
goes on with the same run: `verify` finds the mail, and no second one is sent.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import holdfast as hf

OUTBOX = Path("outbox.jsonl")  # the mail server of this example


@hf.effect(settle=0)  # 0: a local file cannot act late; leave the default for a server
async def send_email(to: str, body: str) -> str:
    key = hf.this_step().idempotency_key
    with OUTBOX.open("a") as outbox:
        outbox.write(json.dumps({"key": key, "to": to, "body": body}) + "\n")
    return key


@send_email.verify
async def find_sent(to: str, body: str) -> hf.Verdict[str]:
    key = hf.this_step().idempotency_key
    mails = [json.loads(line) for line in OUTBOX.read_text().splitlines()] if OUTBOX.exists() else []
    print(f"in doubt: {len(mails)} mail(s) in the outbox")
    return hf.landed(key) if any(mail["key"] == key for mail in mails) else hf.not_landed()


@hf.agent
async def greet(name: str) -> str:
    await send_email(f"{name}@example.org", f"Hello {name}")
    return f"greeted {name}"


if __name__ == "__main__":
    if not OUTBOX.exists() and "HOLDFAST_FAULT" not in os.environ:
        killed = os.environ | {"HOLDFAST_FAULT": "effect.after_body:kill"}
        process = subprocess.run([sys.executable, __file__], env=killed, check=False)
        print(f"the first process ended with {process.returncode}")
    print(hf.run(greet("ada"), id="greet-ada"))
