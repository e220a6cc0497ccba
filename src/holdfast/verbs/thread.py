"""Threads: what an agent remembers of a conversation, over turns and runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.base.clock import monotonic_us, now_us
from holdfast.base.ids import new_uuid
from holdfast.codec import Coder, coder_for, digest
from holdfast.codec.fastjson import encode
from holdfast.control.acting import actor
from holdfast.errors import ConflictingSend, CorruptJournal, Fenced, NestedCall, Undecodable, UsageError
from holdfast.history import threads
from holdfast.history.threads import Slice
from holdfast.journal.integrity import message_digest
from holdfast.model import Kind, Message, Said, Saying, ThreadId
from holdfast.model.diagnoses import Cause, Trouble
from holdfast.model.reasons import Blocked
from holdfast.running.call import DurableCall
from holdfast.running.outcomes import deliver
from holdfast.running.scopes import Scope, in_branch, scope_or_none
from holdfast.store.contract import Store
from holdfast.verbs.remote import remote_call
from holdfast.verbs.values import this_step

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from holdfast.journal.replay import Entry

T = TypeVar("T")

_LOOK_S = 0.01
_MARK: Coder[dict[str, Any]] = coder_for(dict[str, Any])
_USUAL = 20
_CHARS_OF_TOKEN = 4


def thread(type: TypeForm[T]) -> Thread[T]:
    """The memory of the conversation that this run is part of: its thread, whose messages are of this type.

    Every run that was started with the same `thread_id=` has the same one, and so has `app.thread(id, type)`. What is
    said is stored once, in one order for all; a replay reads what was read then, whatever was said since.

    Example:
        memory = hf.thread(Message)
        await memory.append(Message("user", question))
        context = await memory.recent(tokens=4000)
    """
    run = in_branch("hf.thread()").run
    return Thread(run.host.store, run.thread_id, coder_for(type), is_of_run=True)


def thread_of(store: Store, thread_id: str, type: TypeForm[T]) -> Thread[T]:
    """A thread, for whoever has its id."""
    return Thread(store, ThreadId(thread_id), coder_for(type), is_of_run=False)


class Thread(Generic[T]):
    """What was said in a thread. Made by `hf.thread` inside a run, and by `app.thread` outside.

    Inside a run its methods are durable calls: after a crash nothing is said twice, and what was read is read again.
    """

    def __init__(self, store: Store, thread_id: ThreadId, coder: Coder[T], *, is_of_run: bool) -> None:
        if coder.problem is not None:
            raise UsageError(f"Messages of thread {thread_id} cannot be stored: {coder.problem}")
        self._store = store
        self._coder = coder
        self._is_of_run = is_of_run
        self.id = thread_id
        self.last = 0  #: the number of the last message that was said or read here

    def __repr__(self) -> str:
        return f"<thread {self.id}>"

    async def append(self, *messages: T, dedup: str | None = None, by: str | None = None) -> int:
        """Say something, all of it or nothing, behind everything said before; the number of the last message.

        Outside of a run a second append with the same `dedup` id is the first. ConflictingSend if something else was
        said under it.

        Example: `await memory.append(Message("user", "hello"))`
        """
        if not messages:
            raise UsageError(f"Thread.append() takes one message or more; thread {self.id} got none.")
        return await self._say(messages, None, dedup=dedup, by=by)

    async def summarise(
        self, message: T, *, upto: int | None = None, dedup: str | None = None, by: str | None = None
    ) -> int:
        """Say in one message what was said up to a number; from then on reading begins with it. Nothing is removed.

        Without `upto`: up to the last message that this object has said or read.

        Example: `await memory.summarise(Message("system", short), upto=40)`
        """
        covers = self.last if upto is None else upto
        if not isinstance(covers, int) or isinstance(covers, bool) or covers < 1:
            raise UsageError(
                f"Thread.summarise() takes upto=, the number of the last message that it covers; got {upto!r}, and "
                f"this object has read thread {self.id} up to {self.last}."
            )
        return await self._say((message,), covers, dedup=dedup, by=by)

    async def recent(
        self, n: int | None = None, *, tokens: int | None = None, count: Callable[[T], int] | None = None
    ) -> list[T]:
        """The last messages, oldest first: at most `n`, of at most so many `tokens` together.

        Without either, 20. If there is a summary, it comes first and counts, and what it covers is left out. `count`
        says how many tokens a message has; without it that is estimated, from its length.

        Example: `await memory.recent(tokens=4000, count=lambda message: tokens_of(message.text))`
        """
        for name, given in (("n", n), ("tokens=", tokens)):
            if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 0):
                raise UsageError(f"Thread.recent() takes {name} as a number from 0 on; got {given!r}.")
        most = _USUAL if n is None and tokens is None else n

        def size(message: Message) -> int:
            if count is None:
                return len(message.body) // _CHARS_OF_TOKEN + 1
            return count(self._loads(message))

        def read() -> Awaitable[Slice]:
            return threads.recent(self._store, self.id, n=most, tokens=tokens, size=size)

        return await self._read("recent", read, {"n": most, "tokens": tokens})

    async def since(self, number: int = 0) -> list[T]:
        """The messages behind a number, oldest first; the last summary instead of those that it covers.

        Example: `new = await memory.since(memory.last)`
        """
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise UsageError(f"Thread.since() takes the number of a message, or 0; got {number!r}.")
        return await self._read("since", lambda: threads.since(self._store, self.id, number), {"number": number})

    # saying

    async def _say(self, messages: tuple[T, ...], covers: int | None, *, dedup: str | None, by: str | None) -> int:
        scope = self._branch("append" if covers is None else "summarise")
        bodies = tuple(self._coder.dumps(each, what=f"a message of thread {self.id}") for each in messages)
        if scope is None:
            await self._check_covers(covers)
            saying = self._saying(bodies, covers, author=actor(by), dedup=dedup or new_uuid().hex)
            said = await self._store.say(saying)
            if not said.is_new:
                await self._check_same(saying, said)
        else:
            said = await self._say_in(scope, bodies, covers, dedup=dedup)
        self.last = max(self.last, said.last)
        return said.last

    async def _say_in(self, scope: Scope, bodies: tuple[str, ...], covers: int | None, *, dedup: str | None) -> Said:
        """As a call of the run: an effect, known to the thread by its idempotency key."""
        run = scope.run
        for body in bodies:
            run.journal.check_size(body, f"a message of thread {self.id}")

        async def say(thread: str, said: str) -> list[int]:
            await self._check_covers(covers)
            saying = self._saying(bodies, covers, author=run.id, dedup=dedup or this_step().idempotency_key)
            try:
                told = await self._store.say(saying, fence=run.fence)
            except Fenced:
                await run.fenced()
                raise
            return [told.first, told.last]

        name = "thread.append" if covers is None else "thread.summarise"
        said = digest("\n".join((str(covers), *bodies)))
        first, last = await remote_call(name, say, ("" if self.id == run.thread_id else self.id, said))
        return Said(first, last, is_new=True)

    def _saying(self, bodies: tuple[str, ...], covers: int | None, *, author: str, dedup: str) -> Saying:
        at = now_us()
        digests = tuple(
            message_digest(self.id, body, at=at, author=author, covers=covers, dedup=dedup) for body in bodies
        )
        return Saying(self.id, bodies, digests, at, author, dedup, covers)

    async def _check_covers(self, covers: int | None) -> None:
        """What is still to be said cannot be summed up: nobody would ever read it."""
        row = await self._store.thread(self.id) if covers is not None else None
        if covers is not None and covers > (row.last if row is not None else 0):
            last = row.last if row is not None else 0
            raise UsageError(f"Thread.summarise(upto={covers}): the last message of thread {self.id} is number {last}.")

    async def _check_same(self, saying: Saying, said: Said) -> None:
        known = await self._store.messages(self.id, after=said.first - 1, upto=said.last)
        if tuple(message.body for message in known) != saying.bodies:
            raise ConflictingSend(
                f"Thread {self.id} has something else under the dedup id {saying.dedup!r}, from message {said.first} "
                "on; nothing was said now.",
                known=str(said.first),
            )

    # reading

    async def _read(self, name: str, read: Callable[[], Awaitable[Slice]], asked: Mapping[str, Any]) -> list[T]:
        scope = self._branch(name)
        if scope is None:
            found = await read()
            messages = [self._loads(message) for message in found.messages]
        else:
            found, messages = await self._read_in(scope, name, read, asked=asked)
        self.last = max((self.last, *(message.number for message in found.messages)))
        return messages

    async def _read_in(
        self, scope: Scope, name: str, read: Callable[[], Awaitable[Slice]], *, asked: Mapping[str, Any]
    ) -> tuple[Slice, list[T]]:
        run = scope.run
        known = {"thread": self.id} if self.id != run.thread_id else {}
        text = encode({**known, **{what: value for what, value in asked.items() if value is not None}})
        call = ReadCall(scope, f"hf.thread.{name}", text, thread=self, read=read)
        found = await call.make()
        try:
            return found, [self._loads(message) for message in found.messages]
        except Undecodable as error:
            await run.block(Blocked(Trouble(Cause.thread, call.key, detail=str(error))))
            raise

    def _loads(self, message: Message) -> T:
        return self._coder.loads(message.body, what=f"message {message.number} of thread {self.id}")

    def _branch(self, verb: str) -> Scope | None:
        """Where in a run it is called; None: outside of one, or in a body, where the thread of an app is plain."""
        if self._store.home is not None:
            self._store.home.check(f"Thread.{verb}()")
        scope = scope_or_none()
        if scope is None or (scope.body is not None and not self._is_of_run):
            return None
        if scope.body is not None:
            raise NestedCall(
                f"Thread.{verb}() was called inside the body of {scope.body.name} (run {scope.run.id}), which may be "
                "repeated. Call it in the agent, before or after."
            )
        return in_branch(f"Thread.{verb}()")


class ReadCall(DurableCall[Slice]):
    """One call that reads. Recorded are numbers and a digest; a replay reads the same rows."""

    __slots__ = ("_again", "args_text", "read", "thread")

    def __init__(
        self, scope: Scope, name: str, args_text: str, *, thread: Thread[Any], read: Callable[[], Awaitable[Slice]]
    ) -> None:
        super().__init__(scope, name, digest(args_text))
        self.args_text = args_text
        self.thread = thread
        self.read = read
        self._again = Slice()

    @property
    def coder(self) -> Coder[Any]:
        return _MARK

    async def execute(self) -> Slice:
        scope, run, journal = self.scope, self.run, self.run.journal
        began, is_recorded = monotonic_us(), False
        scope.enter_call()
        try:
            with run.activity.busy():
                found = await run.patiently(self._read)

            def record(tick: int) -> None:
                nonlocal is_recorded
                is_recorded = True
                self._record(Kind.done, tick=tick, took=monotonic_us() - began, payload=_MARK.dumps(found.mark()))

            await deliver(scope, record)
            return found
        except asyncio.CancelledError:
            if not run.life.dead and not is_recorded and not journal.lost:
                self._record(Kind.cancelled, tick=run.ticks.tick, took=monotonic_us() - began, payload=None)
            raise
        finally:
            scope.leave_call()

    def _record(self, kind: Kind, *, tick: int, took: int, payload: str | None) -> None:
        self.run.journal.add(
            kind, self.key, self.name, tick=tick, took=took, digest=self.digest, args=self.args_text, payload=payload
        )

    async def _read(self) -> Slice:
        try:
            return await self.read()
        except CorruptJournal as error:
            found: Slice = await self.run.block(Blocked(Trouble(Cause.thread, self.key, detail=str(error))))
            return found

    async def answer(self, entry: Entry) -> Slice:
        """Read before its turn, so that the code hears of it as it once did: what follows takes no time of its own."""
        run, outcome = self.run, entry.outcome
        if outcome is not None and outcome.kind == Kind.done:
            mark = _MARK.loads(run.text(outcome.payload))
            found = await self._look(mark)
            if found is None:
                detail = (
                    f"what {entry.key} read of thread {self.thread.id}, {mark['count']} messages up to number "
                    f"{mark.get('last', mark.get('summary'))}, is not there any more, or was changed"
                )
                await run.block(Blocked(Trouble(Cause.thread, entry.key, outcome.seq, detail)))
            else:
                self._again = found
        await super().answer(entry)
        return self._again

    async def _look(self, mark: Mapping[str, Any]) -> Slice | None:
        run, store = self.run, self.thread._store
        look = asyncio.ensure_future(run.patiently(lambda: threads.again(store, self.thread.id, mark)))
        self.scope.enter_call()
        try:
            with run.activity.busy():
                while not look.done():
                    run.ticks.touch()  # nobody is to take the call for one that is not made any more
                    await asyncio.wait({look}, timeout=_LOOK_S)
            return look.result()
        finally:
            look.cancel()
            self.scope.leave_call()
