"""The one builder of records and of run rows: what is numbered, linked and sealed is so here, by everybody who writes.

Every record's hash covers the record and the hash before it; the first one starts from the run's id and nonce, so a
record cannot be moved to another run. The run's row keeps the head of the chain, so a missing tail is noticed, and has
a digest of its own. `integrity` checks both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

from holdfast.base.secrets import SECRETS
from holdfast.codec.fastjson import encode_sorted
from holdfast.model import Record, RunId, RunRow, Status, reasons
from holdfast.model.reasons import Reason

#: What is said before it is a record: its values in the order of `Record`, from `key` to `payload`. A plain tuple,
#: since each step makes one: a named one takes four times as long.
Draft = tuple[str, str, str, int, int, int, int, str, "str | None", "str | None"]

_HASH_BYTES = 16
_SAME: Final[Any] = object()
_record = tuple.__new__
_RECORD = "%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d|%s%s%s%s%s%s"  # with so many parts, faster than an f-string


def draft(
    kind: str,
    name: str,
    *,
    at: int,
    key: str = "",
    attempt: int = 1,
    tick: int = 0,
    took: int = 0,
    args_digest: str = "",
    args: str | None = None,
    payload: str | None = None,
) -> Draft:
    """A record that has no number yet."""
    return key, kind, name, attempt, tick, at, took, args_digest, args, payload


def first_hash(run_id: RunId, nonce: str) -> bytes:
    """What the first record of a run is linked to."""
    return blake2b(f"{nonce}/{run_id}".encode(), digest_size=_HASH_BYTES).digest()


def linked(drafts: Iterable[Draft], *, epoch: int, turn: int, head_seq: int, head_hash: bytes) -> tuple[Record, ...]:
    """The records that these drafts are behind a head."""
    records: list[Record] = []
    seq, previous = head_seq, head_hash
    for each in drafts:
        if SECRETS.is_any:
            each = _without_secrets(each)
        seq += 1
        values = (seq, epoch, turn, *each)
        previous = _hash(previous, values)
        records.append(_record(Record, (*values, previous)))
    return tuple(records)


def _without_secrets(given: Draft) -> Draft:
    """Whatever a secret came here in: values that are read back were refused before."""
    args, payload = given[-2:]
    if not SECRETS.is_in(f"{args}\n{payload}"):
        return given
    kept = [None if text is None else SECRETS.without(text) for text in (args, payload)]
    return (*given[:-2], kept[0], kept[1])


def rehash(previous: bytes, record: Record) -> bytes:
    """The hash that a record should have."""
    return _hash(previous, record[:-1])


def _hash(
    previous: bytes,
    values: tuple[int, int, int, str, str, str, int, int, int, int, str, str | None, str | None],
) -> bytes:
    """Lengths come first, so that no two records have the same bytes."""
    seq, epoch, turn, key, kind, name, attempt, tick, at, took, args_digest, args, payload = values
    text = _RECORD % (
        seq,
        epoch,
        turn,
        attempt,
        tick,
        at,
        took,
        len(key),
        len(kind),
        len(name),
        len(args_digest),
        -1 if args is None else len(args),
        -1 if payload is None else len(payload),
        key,
        kind,
        name,
        args_digest,
        args or "",
        payload or "",
    )
    return blake2b(previous + text.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).digest()


def revised(
    row: RunRow,
    *,
    updated_at: int = _SAME,
    status: Status = _SAME,
    reason: Reason | None = _SAME,
    wake_at: int | None = _SAME,
    turn: int = _SAME,
    epoch: int = _SAME,
    head_seq: int = _SAME,
    head_hash: bytes = _SAME,
    summary: Mapping[str, Any] = _SAME,
    owner: None = _SAME,
    claims: int = _SAME,
) -> RunRow:
    """A run's row with these changes, under the digest that fits it.

    By hand: `dataclasses.replace` takes five times as long, and each append has a row.
    """
    return seal_row(
        RunRow(
            row.id,
            row.thread_id,
            row.agent,
            row.nonce,
            row.parent_id,
            row.queue,
            row.queue_key,
            row.priority,
            row.created_at,
            row.updated_at if updated_at is _SAME else updated_at,
            row.status if status is _SAME else status,
            row.reason if reason is _SAME else reason,
            row.wake_at if wake_at is _SAME else wake_at,
            row.turn if turn is _SAME else turn,
            row.epoch if epoch is _SAME else epoch,
            row.head_seq if head_seq is _SAME else head_seq,
            row.head_hash if head_hash is _SAME else head_hash,
            row.input_digest,
            row.summary if summary is _SAME else summary,
            row.owner if owner is _SAME else owner,
            row.claims if claims is _SAME else claims,
            row.mail,
            "",
        )
    )


def seal_row(row: RunRow) -> RunRow:
    """Give a row that nobody has seen yet the digest that fits it."""
    if SECRETS.is_any:
        _hide_secrets(row)
    object.__setattr__(row, "digest", row_digest(row))
    return row


def _hide_secrets(row: RunRow) -> None:
    """What a run says of itself is for people."""
    if SECRETS.is_in(text := json.dumps(row.summary)):
        object.__setattr__(row, "summary", json.loads(SECRETS.without(text)))
    if row.reason is not None and SECRETS.is_in(text := json.dumps(reasons.plain(row.reason))):
        object.__setattr__(row, "reason", reasons.of(json.loads(SECRETS.without(text))))


def row_digest(row: RunRow) -> str:
    """The digest of what only the owner writes into a run's row. No part has a NUL, so they cannot run together."""
    text = "\0".join(
        (
            row.id,
            row.thread_id,
            row.agent,
            row.nonce,
            row.parent_id or "",
            row.queue,
            row.queue_key,
            f"{row.created_at} {row.updated_at} {row.turn} {row.epoch} {row.head_seq} {row.head_hash.hex()} "
            f"{row.priority} {row.wake_at}",
            row.status,
            row.input_digest,
            encode_sorted(reasons.plain(row.reason)) if row.reason is not None else "",
            encode_sorted(row.summary) if row.summary else "",
        )
    )
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
