-- Mail and large values in tables with row ids: in one without, a row of more than a kilobyte takes a page of its own.
CREATE TABLE new_mailbox (
    run_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    kind   TEXT NOT NULL,
    key    TEXT NOT NULL,
    body   TEXT NOT NULL,
    at     INTEGER NOT NULL,
    digest TEXT NOT NULL,
    dedup  TEXT,
    PRIMARY KEY (run_id, number)
) STRICT;
INSERT INTO new_mailbox SELECT run_id, number, kind, key, body, at, digest, dedup FROM mailbox ORDER BY run_id, number;
DROP TABLE mailbox;
ALTER TABLE new_mailbox RENAME TO mailbox;
CREATE UNIQUE INDEX mailbox_by_dedup ON mailbox (run_id, dedup) WHERE dedup IS NOT NULL;

CREATE TABLE new_blobs (
    run_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    chunk  INTEGER NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (run_id, digest, chunk)
) STRICT;
INSERT INTO new_blobs SELECT run_id, digest, chunk, data FROM blobs ORDER BY run_id, digest, chunk;
DROP TABLE blobs;
ALTER TABLE new_blobs RENAME TO blobs;
