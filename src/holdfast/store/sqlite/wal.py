"""Looking at a write-ahead log before SQLite does.

SQLite stops reading a log at the first frame whose checksum is wrong, and silently forgets what follows. After a
crash that is right: the last transaction may be torn. It is wrong when a byte of an older, synced transaction has
rotted: then acknowledged commits would vanish. The two are told apart by what comes after the bad frame. Each commit
is synced before the next transaction starts, so a valid commit *behind* the transaction with the bad frame proves that
this transaction had been complete. Damage inside the very last transaction looks like a torn one and cannot be told.

The format is https://sqlite.org/fileformat2.html#walformat. A frame's checksum continues that of the frame before it;
behind a bad frame the chain is picked up from the checksum that is stored there.
"""

from __future__ import annotations

import os
import struct
import time

from holdfast.base.data import data
from holdfast.errors import StoreCorrupt
from holdfast.store.sqlite.owners import open_unlinked

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = 0x377F0682  # the lowest bit says that checksums are big-endian


@data
class Damage:
    """What is wrong with a log. Frame 0 is the log's header."""

    frame: int
    offset: int
    later_commits: int


@data
class Log:
    """What SQLite reads of a log: all frames up to the last commit before the first bad one."""

    salts: bytes
    frames: int


def check_wal(path: str) -> Log | None:
    """Raise StoreCorrupt if the log at `path` lost synced commits; else what is in it, None if nothing can be.

    Changes nothing; a missing log is sound. What looks like damage is looked at again: a process that we do not know of
    may be writing right now.
    """
    log, damage = look_at_wal(path)
    for _ in range(3):
        if damage is None:
            return log
        time.sleep(0.02)
        log, again = look_at_wal(path)
        if again == damage:
            break
        damage = again
    if damage is not None:
        where = f"frame {damage.frame}" if damage.frame else "its header"
        raise StoreCorrupt(
            f"{path} is damaged: {where} at byte {damage.offset} fails its checksum, and {damage.later_commits} valid "
            "commit(s) follow it. SQLite would drop them silently, so the store was not opened; nothing was changed. "
            "Copy the database with its -wal and -shm files away, then restore a backup; or, to go on without what "
            f"follows the damage: truncate -s {damage.offset} {path}"
        )
    return log


def scan_wal(path: str) -> Damage | None:
    """The first damage that cannot be a torn last transaction."""
    return look_at_wal(path)[1]


def look_at_wal(path: str) -> tuple[Log | None, Damage | None]:
    """What SQLite reads of a log, and the first damage that cannot be a torn last transaction."""
    try:
        with open(path, "rb", opener=open_unlinked) as file:
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return None, None
            return _scan(memoryview(header + file.read(os.fstat(file.fileno()).st_size)))
    except FileNotFoundError:
        return None, None


def _scan(log: memoryview) -> tuple[Log | None, Damage | None]:
    magic, _, page_size, _, salt1, salt2, check1, check2 = _HEADER.unpack_from(log)
    order = ">" if magic & 1 else "<"
    sound = magic | 1 == _MAGIC | 1 and checksum(order, log[:24], 0, 0) == (check1, check2)
    if not sound:
        # The page size may be what is damaged; ours is what SQLite makes by default.
        page_size = page_size if page_size in {512 << n for n in range(8)} else 4096
        order, salt1, salt2 = _guess(log, page_size, order)
    size = _FRAME.size + page_size
    count = (len(log) - _HEADER.size) // size
    s1, s2 = check1, check2
    bad = 0 if not sound else -1
    closed = not sound  # the transaction with the bad frame is known to have ended
    commits = readable = 0
    for number in range(1, count + 1):
        offset = _HEADER.size + (number - 1) * size
        _, db_pages, f1, f2, c1, c2 = _FRAME.unpack_from(log, offset)
        ours = (f1, f2) == (salt1, salt2)
        if not ours and bad >= 0:
            s1, s2 = c1, c2
            continue
        computed = _continued(log, offset, size, order, (s1, s2))
        chained = computed == (c1, c2)
        if bad < 0 and not (ours and chained):
            # Neither its salts nor its checksum: most likely left from an earlier round, so no word on commits either.
            bad, closed = number, (ours or chained) and db_pages != 0
            # Either the page rotted and the stored checksum is right, or the other way round.
            following = offset + size
            if number < count and _continued(log, following, size, order, (c1, c2)) != _stored(log, following):
                s1, s2 = computed
                continue
        elif bad >= 0 and chained and db_pages:
            commits += closed
            closed = True
        elif bad < 0 and db_pages:
            readable = number
        s1, s2 = c1, c2
    read = Log(bytes(log[16:24]), readable) if sound else None
    if bad >= 0 and commits:
        return read, Damage(frame=bad, offset=_HEADER.size + (bad - 1) * size if bad else 0, later_commits=commits)
    return read, None


def _continued(log: memoryview, offset: int, size: int, order: str, seed: tuple[int, int]) -> tuple[int, int]:
    """The checksum of the frame at `offset` that follows from that of the frame before it."""
    return checksum(order, log[offset + 24 : offset + size], *checksum(order, log[offset : offset + 8], *seed))


def _stored(log: memoryview, offset: int) -> tuple[int, int]:
    _, _, _, _, c1, c2 = _FRAME.unpack_from(log, offset)
    return c1, c2


def _guess(log: memoryview, page_size: int, order: str) -> tuple[str, int, int]:
    """Byte order and salts of a log with a damaged header, from its first frames."""
    size = _FRAME.size + page_size
    first, second = _HEADER.size, _HEADER.size + size
    if len(log) >= second + size:
        _, _, salt1, salt2, c1, c2 = _FRAME.unpack_from(log, first)
        for candidate in (order, "<", ">"):
            if _continued(log, second, size, candidate, (c1, c2)) == _stored(log, second):
                return candidate, salt1, salt2
        return order, salt1, salt2
    if len(log) >= second:
        _, _, salt1, salt2, _, _ = _FRAME.unpack_from(log, first)
        return order, salt1, salt2
    return order, 0, 0


def checksum(order: str, data: memoryview, s1: int, s2: int) -> tuple[int, int]:
    """SQLite's log checksum of `data`, continued from `(s1, s2)`."""
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    whole = len(words) - len(words) % 8
    eights = iter(words[:whole])
    # Four pairs at a time: the sums are cut to 32 bits before they get too long to be added fast.
    for a, b, c, d, e, f, g, h in zip(*[eights] * 8, strict=True):
        s1 += a + s2
        s2 += b + s1
        s1 += c + s2
        s2 += d + s1
        s1 += e + s2
        s2 += f + s1
        s1 = (s1 + g + s2) & 0xFFFFFFFF
        s2 = (s2 + h + s1) & 0xFFFFFFFF
    for x, y in zip(words[whole::2], words[whole + 1 :: 2], strict=True):
        s1 = (s1 + x + s2) & 0xFFFFFFFF
        s2 = (s2 + y + s1) & 0xFFFFFFFF
    return s1, s2
