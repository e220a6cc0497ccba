-- The files of runs, in chunks under the sha256 of each. A table with row ids: large rows of one without lie in its keys' tree.
CREATE TABLE chunks (
    run_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (run_id, digest)
) STRICT;
