-- min_version: 1
-- The files of runs, in chunks under the sha256 of each.
CREATE TABLE {schema}.chunks (
    run_id text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    data   bytea NOT NULL,
    PRIMARY KEY (run_id, digest)
);
ALTER TABLE {schema}.chunks ALTER COLUMN data SET STORAGE EXTERNAL; -- files are mostly compressed, or small
