-- The tags of runs, to find runs by them; what a run's tags are is in its row's summary, under the row's digest.
CREATE TABLE tags (
    run_id TEXT NOT NULL,
    name   TEXT NOT NULL,
    value  TEXT NOT NULL,
    at     INTEGER NOT NULL, -- when the run was created
    PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX tags_by_value ON tags (name, value, at, run_id);
