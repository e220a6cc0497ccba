-- What was said in threads. A thread belongs to no run; its messages are numbered in the order of acceptance.
CREATE TABLE thread_heads (
    id         TEXT NOT NULL PRIMARY KEY,
    last       INTEGER NOT NULL, -- number of its last message
    summary    INTEGER NOT NULL, -- number of its last summary, 0 for none
    covers     INTEGER NOT NULL, -- up to where that goes
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE thread_messages (
    thread_id TEXT NOT NULL,
    number    INTEGER NOT NULL,
    body      TEXT NOT NULL,
    at        INTEGER NOT NULL,
    author    TEXT NOT NULL, -- the run that said it, or who else did
    covers    INTEGER, -- of a summary: up to where it goes
    dedup     TEXT NOT NULL, -- of all that were said together
    digest    TEXT NOT NULL,
    PRIMARY KEY (thread_id, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX thread_heads_by_time ON thread_heads (updated_at, id);
CREATE INDEX thread_messages_by_dedup ON thread_messages (thread_id, dedup, number);
