"""Values too large for a record: the record names a blob (`@name:size`), and the blob holds the JSON text.

JSON text never begins with `@`, so a reference cannot be mistaken for a value. A blob is named by the digest of its
text. One that is stored as the difference to another text is named by both: `digest~base`, where the second part stands
for the name of the other blob. So what has the same name is the same, however it came to be. As stored it begins with
`~`, as no JSON does, and says what it is a difference to, and how much there is to read back to a whole text:

    ~<name of the base>\\n<size> <count>\\n<difference>

What a signal brought is stored in its mail, and nowhere else: `mail.<number>.<digest>` names it. A fork, which has none
of the original's mail, has it as a blob of that name.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from holdfast.base.data import brisk
from holdfast.base.system import blake2b
from holdfast.codec import blob_digest
from holdfast.codec.differences import DifferenceChain, is_difference, restore
from holdfast.errors import CorruptJournal, Undecodable, Unserialisable
from holdfast.journal.integrity import check_blob
from holdfast.model import LARGEST_BLOB, Mail, RunId
from holdfast.store.contract import Store

#: The sort of states.
STATE: Final = "state"
_MOST: Final = 16  # sorts
_DIGEST: Final = 32  # characters
_BASE: Final = 16
_MAIL: Final = "mail."
#: Characters; a shorter value of a signal is in the record too, where people see it.
_IN_MAIL: Final = 500
#: The state of a digest is kept every so many characters, for the next text, which may begin alike.
_STRIDE: Final = 16_384
#: After so many texts of a sort that had nothing in common with the one before, the next one is compared again.
_LONGEST_PAUSE: Final = 64


@brisk
class Base:
    """A text that the next one of its sort may be stored as a difference to."""

    name: str
    text: str
    chain: DifferenceChain
    failures: int = 0  #: in a row: nothing was found in common
    skipped: int = 0  #: since the last try
    states: tuple[Any, ...] = ()  #: of the digest of its text, every `_STRIDE` characters


class Spills:
    """The last large texts of a run, by their sort: the state, arguments and results by the name of the call."""

    def __init__(self) -> None:
        self._references: dict[str, str] = {}  # to what was stored, in this turn, by the digest of the text
        self._bases: OrderedDict[str, Base] = OrderedDict()

    def begin_turn(self) -> None:
        """What was stored before is not looked for any more, but for the last ones."""
        self._references.clear()

    def keep(self, sort: str, base: Base) -> None:
        """The last one of its sort."""
        self._bases[sort] = base
        self._bases.move_to_end(sort)
        if len(self._bases) > _MOST:
            self._bases.popitem(last=False)

    def spill(self, text: str, sort: str) -> tuple[str, tuple[str, bytes] | None]:
        """What the record says instead of a text, and the blob, unless it is stored.

        It is a difference to the last text of its sort; of the first, to the state, of which much is made.
        """
        size, base = _size(text), self._bases.get(sort) or self._bases.get(STATE)
        digest, states, alike = _digest(text, base)
        if (known := self._references.get(digest)) is not None:
            return known, None
        kept, change = Base(digest, text, DifferenceChain(), states=states), None
        if base is not None and base.skipped < min(2**base.failures - 1, _LONGEST_PAUSE):
            kept = Base(digest, text, DifferenceChain(), base.failures, base.skipped + 1, states)
        elif base is not None:
            stored, chain = base.chain.following(base.text, text, alike=alike)
            if is_difference(stored):
                name = f"{digest}~{blob_digest(base.name.encode())[:_BASE]}"
                kept = Base(name, text, chain, states=states)
                change = f"~{base.name}\n{chain.size} {chain.count}\n{stored}".encode()
            elif base.chain.count == 0:  # a chain that was long enough is no failure
                kept = Base(digest, text, DifferenceChain(), base.failures + 1, states=states)
        reference = self._references[digest] = _reference(kept.name, size)
        self.keep(sort, kept)
        return reference, (kept.name, text.encode() if change is None else change)


def _digest(text: str, base: Base | None) -> tuple[str, tuple[Any, ...], int]:
    """The `blob_digest` of a text, its states, and for how many characters it is known to be like the last text."""
    if len(text) < 2 * _STRIDE or not text.isascii():
        return blob_digest(text.encode()), (), 0
    states: list[Any] = []
    for known in base.states if base is not None else ():
        at = len(states) * _STRIDE
        if base is None or at + _STRIDE > len(text) or not base.text.startswith(text[at : at + _STRIDE], at):
            break
        states.append(known)
    alike = len(states) * _STRIDE
    state = states[-1].copy() if states else blake2b(digest_size=_DIGEST // 2)
    for at in range(alike, len(text), _STRIDE):
        state.update(text[at : at + _STRIDE].encode())
        if at + _STRIDE <= len(text):
            states.append(state.copy())
    return state.hexdigest(), tuple(states), alike


class Texts(dict[str, bytes]):
    """The JSON texts of a run's large values in UTF-8, by the names of their blobs."""

    def __init__(
        self, texts: Mapping[str, bytes] | None = None, chains: Mapping[str, DifferenceChain] | None = None
    ) -> None:
        super().__init__(texts or {})
        self._chains = chains or {}

    def base(self, stored: str | None, text: str) -> Base | None:
        """What the next value may be a difference to, after one that was stored so."""
        name = blob_in(stored)
        return None if name is None else Base(name, text, self._chains.get(name, DifferenceChain()))


def spilled(text: str) -> tuple[str, tuple[str, bytes]]:
    """What the record says instead of the text, and the blob."""
    size, data = _size(text), text.encode()
    digest = blob_digest(data)
    return _reference(digest, size), (digest, data)


def _size(text: str) -> int:
    """Its bytes, if they are not too many to be stored."""
    size = len(text) if text.isascii() else len(text.encode())
    if size > LARGEST_BLOB:
        raise Unserialisable(
            f"A value of {size:,} bytes of JSON is too large to store. Store it outside (a file, a bucket) and "
            "pass a reference to it."
        )
    return size


def _reference(name: str, size: int) -> str:
    return f"@{name}:{size}"


def in_mail(mail: Mail, text: str) -> str:
    """What the record says of a signal's value: where in the mail it is, or the text, if that is short or another."""
    if len(text) <= _IN_MAIL or _value_of(mail) != text:
        return text
    return _reference(f"{_MAIL}{mail.number}.{blob_digest(text.encode())}", _size(text))


def _value_of(mail: Mail) -> str | None:
    try:
        value = json.loads(mail.body)["value"]
    except (ValueError, LookupError, TypeError):  # it was damaged, or it is no signal
        return None
    return value if isinstance(value, str) else None


def mail_in(names: Iterable[str]) -> dict[int, str]:
    """The names of values that are in mail, by its number."""
    found = (name for name in names if name.startswith(_MAIL))
    return {int(number): name for name in found if (number := name.split(".")[1]).isdecimal()}


def values_in(mails: Iterable[Mail], names: Iterable[str]) -> dict[str, bytes]:
    """What mail has of these values; whether it is what it was is for the reader to check."""
    wanted = mail_in(names)
    read = ((wanted[mail.number], _value_of(mail)) for mail in mails if mail.number in wanted)
    return {name: value.encode("utf-8", "surrogatepass") for name, value in read if value is not None}


async def stored_blobs(store: Store, run_id: RunId, names: Sequence[str]) -> dict[str, bytes]:
    """What there is of these blobs, and of those that they are differences to; also of those that are in mail."""
    found = dict(await store.blobs(run_id, names))
    wanted = mail_in(name for name in names if name not in found)
    return found | values_in(await store.mail_of_numbers(run_id, sorted(wanted)), wanted.values()) if wanted else found


def blob_in(stored: str | None) -> str | None:
    """The name of the blob that a stored value names; None if the value is in the record itself."""
    return stored[1:].partition(":")[0] if stored and stored[0] == "@" else None


def with_bases(found: Mapping[str, bytes], names: Iterable[str]) -> set[str]:
    """These blobs, and those that they are differences to."""
    wanted: set[str] = set()
    for name in names:
        at = name
        while at not in wanted:
            wanted.add(at)
            data = found.get(at, b"")
            if data.startswith(b"~"):
                at = data[1:].partition(b"\n")[0].decode("utf-8", "replace")
    return wanted


def texts_of(run_id: RunId, found: Mapping[str, bytes], wanted: Iterable[str]) -> Texts:
    """The texts of blobs, from what the store has of them and of what they are differences to.

    CorruptJournal if one is missing, or is not what it was.
    """
    texts: dict[str, bytes] = {}
    chains: dict[str, DifferenceChain] = {}
    for name in wanted:
        texts[name], chains[name] = _text_of(run_id, found, name)
    return Texts(texts, chains)


def _text_of(run_id: RunId, found: Mapping[str, bytes], name: str) -> tuple[bytes, DifferenceChain]:
    changes: list[str] = []
    at, chain = name, DifferenceChain()
    while (data := found.get(at, b"")).startswith(b"~") and len(changes) <= len(found):
        try:
            base, numbers, change = data[1:].decode().split("\n", 2)
            size, count = map(int, numbers.split(" "))
        except ValueError as error:
            raise CorruptJournal(f"Run {run_id}: blob {at} was changed or damaged.", run_id=run_id) from error
        if at == name:
            chain = DifferenceChain(size, count)
        changes.append(change)
        at = base
    whole = check_blob(run_id, at, found.get(at))
    if not changes:
        return whole, chain
    try:
        return restore(whole.decode(), reversed(changes), digest=name[:_DIGEST]).encode(), chain
    except (Undecodable, UnicodeDecodeError) as error:
        raise CorruptJournal(f"Run {run_id}: blob {name} was changed or damaged. {error}", run_id=run_id) from error


async def read_texts(store: Store, run_id: RunId, wanted: Iterable[str]) -> Texts:
    """The texts of blobs of a run; CorruptJournal if one is missing, or is not what it was."""
    names = sorted(set(wanted))
    return texts_of(run_id, await stored_blobs(store, run_id, names) if names else {}, names)


async def stored_text(store: Store, run_id: RunId, stored: str | None) -> str:
    """The JSON text of a stored value, wherever it lies; CorruptJournal if its blob is not what it was."""
    name = blob_in(stored)
    return stored or "null" if name is None else (await read_texts(store, run_id, [name]))[name].decode()
