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
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    status       TEXT NOT NULL CHECK (status IN ('queued', 'running', 'sleeping', 'waiting', 'paused', 'in_doubt',
                                                 'blocked', 'quarantined', 'done', 'failed', 'cancelled')),
    reason       TEXT,
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
CREATE INDEX runs_by_agent ON runs (agent, created_at, id);
CREATE INDEX runs_by_thread ON runs (thread_id, created_at, id);
CREATE INDEX runs_by_parent ON runs (parent_id, created_at, id) WHERE parent_id IS NOT NULL;
CREATE INDEX runs_by_owner ON runs (owner) WHERE owner IS NOT NULL;

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

CREATE TABLE mailbox (
    run_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    key    TEXT NOT NULL,
    body   TEXT NOT NULL,
    at     INTEGER NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (run_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    id             TEXT NOT NULL PRIMARY KEY,
    pid            INTEGER NOT NULL,
    host           TEXT NOT NULL,
    boot_id        TEXT NOT NULL,
    started_at     INTEGER NOT NULL,
    lease_until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
