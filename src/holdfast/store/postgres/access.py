"""Who can get at a PostgreSQL store besides its owner: on the server, and on the way to it."""

from __future__ import annotations

import ipaddress
from ssl import CERT_NONE
from typing import Any

from holdfast.model import Privacy
from holdfast.store.postgres.connection import Target
from holdfast.store.queries import Queries


def privacy(connection: Any) -> tuple[Privacy, str]:
    """Of a connection of the driver; with the protocol and the cipher if it is encrypted."""
    transport = connection._transport
    session = transport.get_extra_info("ssl_object")
    if session is not None:
        context = session.context
        is_verified = context.verify_mode != CERT_NONE and context.check_hostname
        cipher = session.cipher()
        words = f"{session.version()}, {cipher[0]}" if cipher else str(session.version())
        return (Privacy.verified if is_verified else Privacy.unverified), words
    peer = transport.get_extra_info("peername")
    return (Privacy.local if _is_here(peer) else Privacy.clear), ""


def _is_here(peer: object) -> bool:
    if not isinstance(peer, tuple):
        return True  # a unix socket has a path, or no name at all
    try:
        return ipaddress.ip_address(str(peer[0]).partition("%")[0]).is_loopback
    except ValueError:
        return False


async def strangers(connection: Any, queries: Queries, target: Target) -> list[str]:
    """Problems: who may put things into schemas that statements find names in."""
    problems = []
    for schema, whom, revoking in await connection.fetch(queries["creators"], target.schema):
        who = "everybody" if whom == "PUBLIC" else whom
        why = (
            "effects and other programs that do not qualify every name can be made to execute what is put there"
            if schema == "public"
            else "what is put there can pass for a part of the store"
        )
        problems.append(f"{target.shown} lets {who} create in schema {schema}: {why}. As its owner: {revoking}")
    return problems
