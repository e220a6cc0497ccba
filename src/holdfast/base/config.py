"""Settings and where they come from: argument, then `HOLDFAST_*` in the environment, then the default."""

from __future__ import annotations

import os
import re
from typing import Final
from urllib.parse import unquote_plus, urlsplit

from holdfast.base.data import data
from holdfast.errors import UsageError

DEFAULT_PATH = ".holdfast/holdfast.db"
URL = "HOLDFAST_URL"
#: Says that the url was taken out of the environment on purpose.
HIDDEN = "HOLDFAST_URL_HIDDEN"
GROUP = "HOLDFAST_SHARED_GROUP"
WORKSPACES = "HOLDFAST_WORKSPACES"

_SERVER: Final = re.compile(r"(?i)\s*postgres(ql)?:")
_SECRETS: Final = ("password", "sslpassword")
#: What is said of a url whose parts cannot be told apart: nothing of it.
UNREADABLE: Final = (
    "The store's url cannot be read, and is not shown since it may have a password in it. It is "
    "postgresql://USER:PASSWORD@HOST:PORT/DATABASE?name=value&…; write special characters of the password as %XX: "
    "%3F for ?, %23 for #, %2F for /, %40 for @, %26 for &."
)


def store_url(url: str | os.PathLike[str] | None) -> str:
    """The store to use: the argument, `HOLDFAST_URL`, or `./.holdfast/holdfast.db`."""
    found = os.fspath(url) if url else os.environ.get(URL)
    if not found and os.environ.get(HIDDEN):
        raise UsageError(
            f"Which store? A worker that executes this took {URL} out of the environment (hide_url). "
            "Code of an agent acts on its store with `hf.start`, `hf.get` and the like; another one has to be named."
        )
    return checked_url(found or f"sqlite:///{DEFAULT_PATH}")


def checked_url(url: str) -> str:
    """The url, if it can be told what in it is the password; else UsageError, which quotes nothing of it.

    `u:1?2@host/db` reads as a host with an option that is called `2@host/db`: whoever shows it, shows a password.
    """
    if not _SERVER.match(url):
        return url
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UsageError(UNREADABLE) from None
    options = [part.partition("=") for part in parts.query.split("&")] if parts.query else []
    is_cut_off = bool(parts.netloc) and "@" not in parts.netloc and "@" in parts.query
    is_odd = any(not equals or unquote_plus(name) != name for name, equals, _ in options)
    if "://" not in url or "#" in url or "@" in parts.path or is_cut_off or is_odd:
        raise UsageError(UNREADABLE)
    return url


def is_server(url: str) -> bool:
    """Is it the url of a server (`holdfast serve`), and not of a store?"""
    return url.lower().startswith(("http://", "https://"))


def has_password(url: str) -> bool:
    """Has the url of a store or server a password or token in it, or may it have one?"""
    if is_server(url):
        return "#" in url or "@" in url
    if not _SERVER.match(url):
        return False
    try:
        parts = urlsplit(checked_url(url))
    except UsageError:
        return True
    names = [part.partition("=")[0].lower() for part in parts.query.split("&")]
    return ":" in parts.netloc.rpartition("@")[0] or any(name in _SECRETS for name in names)


def shared_group(settings: Settings) -> str:
    """The group whose members share a SQLite store; empty: one user has it."""
    return settings.shared_group or os.environ.get(GROUP, "")


def workspaces_home(settings: Settings) -> str:
    """Where this machine has the directories of workspaces."""
    found = settings.workspaces or os.environ.get(WORKSPACES, "")
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.abspath(found or os.path.join(cache, "holdfast", "workspaces"))


@data
class Settings:
    """Bounds of the durability protocol; the defaults fit nearly everybody."""

    #: records a run may have that are not on disk yet; the next call then waits
    backlog_records: int = 1000
    #: seconds the oldest such record may wait
    backlog_s: float = 1.0
    #: values larger than this many characters of JSON go into blobs
    inline_limit: int = 8192
    #: values larger than this are refused
    value_limit: int = 256 * 1024 * 1024
    #: seconds a worker's lease lasts, and how often it is renewed
    lease_s: float = 10.0
    renew_s: float = 2.0
    #: seconds without a turn of the event loop after which the lease is not renewed any more, until there is one
    stall_limit_s: float = 100.0
    #: seconds without a turn of the event loop after which a warning names what blocks it, and again at each doubling
    block_warning_s: float = 1.0
    #: claims without a new record before a run is blocked as a crash loop
    crash_limit: int = 10
    #: how often left-over runs of dead processes are looked for
    sweep_s: float = 0.5
    #: how long closing an app, or blocking a run, waits for effects under way before it cuts them off
    drain_s: float = 10.0
    #: seconds that taking the fingerprints of a run's guards may take, all together
    guard_s: float = 10.0
    #: threads for `def` steps and effects
    threads: int = 32
    #: seconds a run stays in memory for what its code awaits outside of any step while all else waits; a timer of its
    #: own keeps it for longer, and that is reported then
    outside_s: float = 60.0
    #: take `HOLDFAST_URL` out of the environment once the store is open, so that what agents start does not get it
    hide_url: bool = False
    #: name or number of a group whose members share a SQLite store; else `HOLDFAST_SHARED_GROUP`; else its files belong
    #: to one user
    shared_group: str = ""
    #: where this machine has the directories of workspaces; else `HOLDFAST_WORKSPACES`; else the user's cache directory
    workspaces: str = ""
