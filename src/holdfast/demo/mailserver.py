"""A small real mail server, a process of its own: the outside world of the demo.

It takes mail by SMTP and tells by HTTP whether it has a message: `GET /messages/<Message-ID>`, 200 or 404. It keeps
whatever it is sent, as often as it is sent: a mail that was sent twice is there twice. Each line of its log is on disk
before the client hears about it. It prints its ports, and ends when its stdin is closed: it never outlives the demo,
whatever kills that.

Standard library only; started by its path, without the package around it.
"""

import asyncio
import json
import os
import sys
from email import message_from_bytes, policy
from email.utils import formatdate
from typing import Any, TypeAlias
from urllib.parse import unquote

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter


class MailServer:
    """What it received, in memory and in its log."""

    def __init__(self, log: str) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._received: dict[str, int] = {}
        self._number = 0

    def _note(self, line: dict[str, Any]) -> None:
        os.write(self._log, json.dumps({**line, "at": formatdate(usegmt=True)}).encode() + b"\n")
        os.fsync(self._log)

    def _keep(self, sender: str, readers: list[str], data: bytes) -> int:
        message = message_from_bytes(data, policy=policy.default)
        message_id = str(message["Message-ID"])
        self._number += 1
        self._received[message_id] = self._received.get(message_id, 0) + 1
        self._note(
            {
                "what": "received",
                "number": self._number,
                "message_id": message_id,
                "from": sender,
                "to": readers,
                "subject": str(message["Subject"]),
                "text": message.get_content(),
            }
        )
        return self._number

    async def smtp(self, reader: Reader, writer: Writer) -> None:
        sender, readers = "", list[str]()
        writer.write(b"220 localhost Holdfast demo\r\n")
        while line := (await reader.readline()).decode(errors="replace").strip():
            verb, _, rest = line.partition(" ")
            match verb.upper():
                case "EHLO" | "HELO" | "NOOP":
                    answer = "250 localhost"
                case "RSET":
                    sender, readers = "", []
                    answer = "250 forgotten"
                case "MAIL":
                    sender, readers = _address(rest), []
                    answer = "250 go on"
                case "RCPT":
                    readers.append(_address(rest))
                    answer = "250 go on"
                case "DATA" if readers:
                    writer.write(b"354 end with a dot\r\n")
                    data = await _data(reader)
                    if data is None:
                        break
                    answer = f"250 kept as number {self._keep(sender, readers, data)}"
                case "QUIT":
                    writer.write(b"221 bye\r\n")
                    break
                case _:
                    answer = "503 not now"
            writer.write(f"{answer}\r\n".encode())
            await writer.drain()
        writer.close()

    async def http(self, reader: Reader, writer: Writer) -> None:
        request = (await reader.readline()).decode(errors="replace").split()
        while (await reader.readline()).strip():
            pass
        wanted = unquote(request[1].removeprefix("/messages/")) if len(request) > 1 else ""
        times = self._received.get(wanted, 0)
        self._note({"what": "asked", "message_id": wanted, "found": times})
        body = json.dumps({"message_id": wanted, "received": times}).encode()
        status = "200 OK" if times else "404 Not Found"
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(head.encode() + b"Connection: close\r\n\r\n" + body)
        await writer.drain()
        writer.close()


def _address(rest: str) -> str:
    return rest.partition("<")[2].partition(">")[0]


async def _data(reader: Reader) -> bytes | None:
    """The message up to the dot; None if the connection broke before."""
    lines = []
    while (line := await reader.readline()) != b".\r\n":
        if not line:
            return None
        lines.append(line[1:] if line.startswith(b".") else line)
    return b"".join(lines)


async def serve(log: str) -> None:
    server = MailServer(log)
    smtp = await asyncio.start_server(server.smtp, "127.0.0.1", 0)
    http = await asyncio.start_server(server.http, "127.0.0.1", 0)
    ports = {"smtp": smtp.sockets[0].getsockname()[1], "http": http.sockets[0].getsockname()[1]}
    sys.stdout.write(json.dumps(ports) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
