"""Signs of life of a worker, for whatever restarts one that hangs: a file, systemd's watchdog, a parent process.

A sign is the moment at which the store answered the renewal of the lease (before there is one: at which it was asked in
vain). There is none while the event loop stands still for good, the process is stopped, or the store does not answer at
all. A store that says that it cannot is an answer: a new process would hear the same, and to replace this one would cut
off its effects.

Signs are passed on by a thread of their own: a file on a disk that hangs must not cost the worker its lease. Times are
of the monotonic clock, which all processes of a machine share and nobody moves.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

from holdfast.base.clock import boot_id, is_of_another_boot, monotonic_us
from holdfast.base.telemetry import warn
from holdfast.cli.child_heartbeats import Voice
from holdfast.cli.failure import USAGE, Failure

_EVERY_S = 1.0
_LONGEST = 1024
_SOCKET = "NOTIFY_SOCKET"


class Outlet(Protocol):
    """Where signs of life go."""

    def tell(self, sign_us: int) -> None: ...

    def close(self) -> None: ...


# a file


@dataclass(frozen=True, slots=True)
class Beat:
    """What the file says."""

    pid: int
    boot_id: str
    sign_us: int

    @classmethod
    def read(cls, path: Path) -> Beat:
        """What a worker has written; OSError, ValueError."""
        with open(path, "rb") as file:
            found = json.loads(file.read(_LONGEST))
        if not isinstance(found, dict) or found.keys() != set(cls.__slots__):
            raise ValueError("it is not the file of a worker")
        return cls(int(found["pid"]), str(found["boot_id"]), int(found["sign_us"]))

    def age_s(self) -> float | None:
        """How long ago it was; None if the machine was restarted since."""
        age_s = (monotonic_us() - self.sign_us) / 1e6
        return None if age_s < 0 or is_of_another_boot(self.boot_id) else age_s


class HeartbeatFile:
    """A small file that is written with each sign, and removed at a clean end."""

    def __init__(self, path: str) -> None:
        self._path = Path(path).absolute()
        self._is_failing = False
        try:
            self._write(monotonic_us())  # what a former process left is not taken for this one's
        except OSError as error:
            raise Failure(f"--heartbeat {path} cannot be written: {error.strerror or error}.", USAGE) from error

    def tell(self, sign_us: int) -> None:
        try:
            self._write(sign_us)
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                warn("heartbeat.failed", file=str(self._path), error=error.strerror or str(error))
            self._is_failing = True

    def close(self) -> None:
        with suppress(OSError, ValueError):
            if Beat.read(self._path).pid == os.getpid():
                self._path.unlink()

    def _write(self, sign_us: int) -> None:
        text = json.dumps(asdict(Beat(os.getpid(), boot_id(), sign_us))).encode()
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        number = os.open(self._path, flags, 0o644)
        try:
            found = os.fstat(number)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                raise OSError("it is somebody else's, or no file")
            os.pwrite(number, text.ljust(found.st_size), 0)  # in one write: a reader never sees half of it
            os.ftruncate(number, len(text))
        finally:
            os.close(number)


# systemd


class Watchdog:
    """Tells the manager of services that this process is ready, and from then on that it lives."""

    def __init__(self, address: str) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._is_ready = False

    @classmethod
    def of_environment(cls) -> Watchdog | None:
        """If there is one. What agents start does not inherit it: they are not the service."""
        address = os.environ.pop(_SOCKET, "")
        for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
            os.environ.pop(name, None)
        return cls(address) if address.startswith(("/", "@")) else None

    def tell(self, sign_us: int) -> None:
        with suppress(OSError):  # the manager is busy, or gone; there is a next time
            self._socket.sendto(b"WATCHDOG=1" if self._is_ready else b"READY=1\nWATCHDOG=1", self._address)
            self._is_ready = True

    def close(self) -> None:
        self._socket.close()


# passing on


def outlets(file: str | None) -> list[Outlet]:
    """Who wants to know: what was asked for, who manages this service, the parent of this process."""
    asked = HeartbeatFile(file) if file else None
    found: list[Outlet | None] = [asked, Watchdog.of_environment(), Voice.of_environment()]
    return [each for each in found if each is not None]


class Heartbeat:
    """Passes signs of life on, as long as it is entered and they come."""

    def __init__(self, outlets: Sequence[Outlet]) -> None:
        self._outlets = outlets
        self._asked_us = 0
        self._sign_us: Callable[[], int] = lambda: self._asked_us
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._pass_on, name="holdfast-heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        if self._outlets:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped.set()
        if self._outlets:
            self._thread.join(_EVERY_S)  # it may hang in an outlet
        for outlet in self._outlets:
            outlet.close()

    @property
    def is_needed(self) -> bool:
        return bool(self._outlets)

    def asked_in_vain(self) -> None:
        """The store is being waited for."""
        self._asked_us = monotonic_us()

    def follow(self, sign_us: Callable[[], int]) -> None:
        """From now on, signs are what this tells."""
        self._sign_us = sign_us

    def _pass_on(self) -> None:
        told_us = 0
        while not self._stopped.wait(_EVERY_S):
            sign_us = self._sign_us()
            if sign_us > told_us:
                told_us = sign_us
                for outlet in self._outlets:
                    outlet.tell(sign_us)
