-- What people did, to runs and to what starts and removes them. Nothing is ever changed in it.
CREATE TABLE acts (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at     INTEGER NOT NULL,
    who    TEXT NOT NULL,
    via    TEXT NOT NULL,
    what   TEXT NOT NULL,
    target TEXT NOT NULL,
    run_id TEXT,
    note   TEXT NOT NULL
) STRICT;

CREATE INDEX acts_newest ON acts (at, number);
CREATE INDEX acts_of_run ON acts (run_id, at, number) WHERE run_id IS NOT NULL;
CREATE INDEX acts_by ON acts (who, at, number);
