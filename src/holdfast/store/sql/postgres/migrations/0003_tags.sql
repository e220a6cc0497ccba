-- min_version: 1
-- The tags of runs, to find runs by them; what a run's tags are is in its row's summary, under the row's digest.
CREATE TABLE {schema}.tags (
    run_id text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    value  text COLLATE "C" NOT NULL,
    at     bigint NOT NULL, -- when the run was created
    PRIMARY KEY (run_id, name)
);

CREATE INDEX tags_by_value ON {schema}.tags (name, value, at, run_id);
