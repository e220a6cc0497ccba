"""What an extension keeps in the store of the runs: documents by space and key, in both sorts of store.

They lie where the definitions do that workers share, under kinds of their own. So each backup has them, both stores
know them, and a write is a compare-and-set: of two writers who have read the same, one is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from holdfast.base.data import data
from holdfast.errors import UsageError
from holdfast.model import Definition
from holdfast.running.options import checked_name
from holdfast.store.contract import DefinitionStore
from holdfast.store.extensions import ALL, SEPARATOR, kind_of

T = TypeVar("T")

_MANY = 4096  # spaces that are known to be noted; more are noted again


@data
class Document:
    """What is stored under a key: JSON text, and how often it was written."""

    key: str
    text: str
    revision: int


class Extension:
    """The documents of one extension. Each call is one transaction; what it returns is on disk.

    Example:
        memory = app.extension("memory")
        await memory.add("ada", {"1": '"hello"'})
        print([each.text for each in await memory.read("ada")])
    """

    def __init__(self, store: DefinitionStore, name: str) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._known: set[str] = set()
        self.name = checked_name(name, Extension)
        if SEPARATOR in self.name:
            raise UsageError(f"An extension is named without {SEPARATOR!r}; got {name!r}.")

    # reading

    async def get(self, space: str, key: str) -> Document | None:
        """What is stored under a key.

        Example: `head = await memory.get("ada", "head")`
        """
        return next(iter(await self.read(space, [key])), None)

    async def read(self, space: str, keys: Sequence[str] | None = None) -> list[Document]:
        """The documents of a space, or those of these keys, in the order of keys.

        Example: `for each in await memory.read("ada"): print(each.key)`
        """
        found = await self._store.definitions(self._kind(space), names=keys, limit=ALL)
        return [Document(each.name, each.body, each.revision) for each in found]

    async def spaces(self) -> list[str]:
        """The spaces that have, or had, documents.

        Example: `print(await memory.spaces())`
        """
        return [each.name for each in await self._store.definitions(kind_of(self.name), limit=ALL)]

    # writing

    async def add(self, space: str, texts: Mapping[str, str]) -> set[str]:
        """Store those whose key is not there yet; the keys of those that were stored.

        Example: `await memory.add("blobs", {digest: text})`
        """
        if not texts:
            return set()
        await self._open(space)
        kind = self._kind(space)
        is_new = await self._store.define([Definition(kind, key, text, 1) for key, text in texts.items()])
        return {key for key, added in zip(texts, is_new, strict=True) if added}

    async def swap(self, space: str, key: str, text: str, *, revision: int) -> bool:
        """Store it if what is there has this revision (0: nothing is); False: somebody was first, nothing is changed.

        Example: `if not await memory.swap("ada", "head", text, revision=head.revision): ...`
        """
        await self._open(space)
        (is_stored,) = await self._store.define([Definition(self._kind(space), key, text, revision + 1)])
        return is_stored

    async def advance(
        self, space: str, key: str, text: str, *, revision: int, others: Mapping[str, Mapping[str, tuple[str, int]]]
    ) -> bool:
        """As `swap`, and with it others by space and key, each with the revision that is there (0: nothing is).

        They are stored in the same transaction, or not at all. Of the others, one that is there in another revision
        stays as it is. False: somebody was first, nothing is changed.

        Example: `await memory.advance("heads", "ada", "2", revision=1, others={"ada": {"2": ('"again"', 0)}})`
        """
        spaces = [each for each in (space, *others) if each not in self._known]
        definitions = [Definition(self._kind(space), key, text, revision + 1)]
        for where, documents in others.items():
            kind = self._kind(where)
            definitions += [Definition(kind, name, body, known + 1) for name, (body, known) in documents.items()]
        is_stored = (await self._store.define(definitions + self._marks(spaces), guarded=True))[0]
        self._know(spaces if is_stored else ())
        return is_stored

    async def put(self, space: str, key: str, text: str) -> None:
        """Store it, whatever is there.

        Example: `await memory.put("ada", "name", '"Ada"')`
        """
        while True:
            known = await self.get(space, key)
            if await self.swap(space, key, text, revision=known.revision if known is not None else 0):
                return

    async def remove(self, space: str, keys: Sequence[str] | None = None) -> None:
        """Remove the documents of these keys; without keys all of the space.

        Example: `await memory.remove("ada")`
        """
        kind = self._kind(space)
        if keys is None:
            keys = [each.name for each in await self._store.definitions(kind, limit=ALL)]
            self._known.discard(space)
            await self._store.forget(kind_of(self.name), [space])
        await self._store.forget(kind, keys)

    async def migrate(self, steps: Mapping[int, Callable[[Extension], Awaitable[None]]]) -> int:
        """Bring the documents up to date: each numbered step is done that was not; the number of the last one.

        A step that was cut off is done again, so it must bear that.

        Example: `await memory.migrate({1: split_messages, 2: add_titles})`
        """
        while True:
            known = await self.get("", "version")
            done = int(known.text) if known is not None else 0
            left = sorted(number for number in steps if number > done)
            if not left:
                return done
            await steps[left[0]](self)
            await self.swap("", "version", str(left[0]), revision=known.revision if known is not None else 0)

    def from_thread(self, call: Coroutine[Any, Any, T]) -> T:
        """The result of one of these calls, in a thread; on the thread of the app's own loop it would never come.

        Example: `documents = memory.from_thread(memory.read("ada"))`
        """
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        if is_here:
            call.close()
            raise UsageError(
                f"Extension {self.name}: a blocking call was made on the thread of the app's event loop, and waits "
                "for it. Use the async method, or call it with asyncio.to_thread."
            )
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def _kind(self, space: str) -> str:
        return kind_of(self.name, space)

    async def _open(self, space: str) -> None:
        """Note that the space is there: who copies the extension asks for all of them."""
        if space not in self._known:
            await self._store.define(self._marks([space]))
            self._know([space])

    def _marks(self, spaces: Sequence[str]) -> list[Definition]:
        """What notes that spaces are there."""
        marks = [Definition(kind_of(self.name), each, "null", 1) for each in spaces]
        return [*marks, Definition(kind_of(), self.name, "null", 1)] if marks else []

    def _know(self, spaces: Iterable[str]) -> None:
        self._known.update(spaces)
        if len(self._known) > _MANY:
            self._known.clear()


class _Opened(Protocol):
    """An app."""

    @property
    def _store(self) -> Any: ...

    @property
    def _parts(self) -> Any: ...


def extension(self: _Opened, name: str) -> Extension:
    """What an extension keeps in this store, next to the runs: documents by space and key.

    Example: `memory = app.extension("memory")`
    """
    assert self._parts is not None  # it raises if the app is not open
    return Extension(self._store, name)
