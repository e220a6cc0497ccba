-- min_version: 1
-- What people did, to runs and to what starts and removes them. Nothing is ever changed in it.
CREATE TABLE {schema}.acts (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     bigint NOT NULL,
    who    text COLLATE "C" NOT NULL,
    via    text COLLATE "C" NOT NULL,
    what   text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    run_id text COLLATE "C",
    note   text COLLATE "C" NOT NULL
);

CREATE INDEX acts_newest ON {schema}.acts (at, number);
CREATE INDEX acts_of_run ON {schema}.acts (run_id, at, number) WHERE run_id IS NOT NULL;
CREATE INDEX acts_by ON {schema}.acts (who, at, number);
