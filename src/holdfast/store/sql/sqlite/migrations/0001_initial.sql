-- Times are microseconds since the epoch; hashes are 16 bytes; reason and summary are JSON text.

CREATE TABLE migrations (
    number     INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at INTEGER NOT NULL,
    sha256     TEXT NOT NULL
) STRICT;

CREATE TABLE runs (
    id           TEXT NOT NULL PRIMARY KEY,
    thread_id    TEXT NOT NULL,
    agent        TEXT NOT NULL,
    nonce        TEXT NOT NULL,
    parent_id    TEXT,
    queue        TEXT NOT NULL,
    queue_key    TEXT NOT NULL,
    priority     INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    status       TEXT NOT NULL CHECK (status IN ('queued', 'running', 'sleeping', 'waiting', 'paused', 'in_doubt',
                                                 'blocked', 'quarantined', 'done', 'failed', 'cancelled')),
    reason       TEXT,
    wake_at      INTEGER,
    generation   INTEGER NOT NULL,
    epoch        INTEGER NOT NULL,
    head_seq     INTEGER NOT NULL,
    head_hash    BLOB NOT NULL,
    input_digest TEXT NOT NULL,
    summary      TEXT NOT NULL,
    owner        TEXT,
    claims       INTEGER NOT NULL DEFAULT 0,
    mail         INTEGER NOT NULL DEFAULT 0,
    digest       TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX runs_newest ON runs (created_at, id);
CREATE INDEX runs_by_status ON runs (status, created_at, id);
CREATE INDEX runs_by_queue ON runs (queue, status, created_at, id);
CREATE INDEX runs_by_agent ON runs (agent, created_at, id);
CREATE INDEX runs_by_thread ON runs (thread_id, created_at, id);
CREATE INDEX runs_by_parent ON runs (parent_id, created_at, id) WHERE parent_id IS NOT NULL;
-- What is counted of a worker's runs (per queue and key, epoch and mail) is read from the index alone.
CREATE INDEX runs_by_owner ON runs (owner, queue, queue_key, epoch, mail) WHERE owner IS NOT NULL;
-- The order in which the runs of a key are claimed.
CREATE INDEX runs_in_line ON runs (queue, queue_key, priority DESC, wake_at, id, agent)
    WHERE status = 'queued' AND owner IS NULL AND wake_at IS NOT NULL;
-- Who may be claimed from when.
CREATE INDEX runs_by_wake ON runs (queue, agent, status, wake_at, id) WHERE owner IS NULL AND wake_at IS NOT NULL;

CREATE TABLE records (
    run_id      TEXT NOT NULL,
    seq         INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    generation  INTEGER NOT NULL,
    key         TEXT NOT NULL,
    kind        TEXT NOT NULL,
    name        TEXT NOT NULL,
    attempt     INTEGER NOT NULL,
    tick        INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    took        INTEGER NOT NULL,
    args_digest TEXT NOT NULL,
    args        TEXT,
    payload     TEXT,
    hash        BLOB NOT NULL,
    PRIMARY KEY (run_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE blobs (
    run_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    chunk  INTEGER NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (run_id, digest, chunk)
) STRICT, WITHOUT ROWID;

-- Effects on the user's own tables: the attempt that changed them, with its result; without one, those up to this
-- attempt were given up.
CREATE TABLE landed (
    run_id  TEXT NOT NULL,
    key     TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    result  TEXT,
    at      INTEGER NOT NULL,
    PRIMARY KEY (run_id, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE mailbox (
    run_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    key    TEXT NOT NULL,
    body   TEXT NOT NULL,
    at     INTEGER NOT NULL,
    digest TEXT NOT NULL,
    dedup  TEXT,
    PRIMARY KEY (run_id, number)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX mailbox_by_dedup ON mailbox (run_id, dedup) WHERE dedup IS NOT NULL;

CREATE TABLE questions (
    id         TEXT NOT NULL UNIQUE,
    run_id     TEXT NOT NULL,
    key        TEXT NOT NULL,
    body       TEXT NOT NULL,
    shown      TEXT NOT NULL,
    asked_at   INTEGER NOT NULL,
    due_at     INTEGER,
    state      TEXT NOT NULL CHECK (state IN ('open', 'answered', 'declined', 'expired', 'withdrawn')),
    decided_at INTEGER,
    decided_by TEXT,
    note       TEXT NOT NULL,
    digest     TEXT NOT NULL,
    PRIMARY KEY (run_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX questions_open ON questions (asked_at, id) WHERE state = 'open';

CREATE TABLE definitions (
    kind     TEXT NOT NULL,
    name     TEXT NOT NULL,
    body     TEXT NOT NULL,
    revision INTEGER NOT NULL,
    due_at   INTEGER,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX definitions_due ON definitions (kind, due_at, name) WHERE due_at IS NOT NULL;

CREATE TABLE workers (
    id             TEXT NOT NULL PRIMARY KEY,
    pid            INTEGER NOT NULL,
    host           TEXT NOT NULL,
    boot_id        TEXT NOT NULL,
    started_at     INTEGER NOT NULL,
    lease_until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
