-- The files of runs, and what their journals note of them. Written and read as queries.sql.

-- name: put_chunks
-- Chunks of files, unless the run that it is done for is somebody else's; whether it is not. One that is there is
-- written again: it may be damaged.
WITH fence AS (
    SELECT $4::text IS NULL OR EXISTS (
        SELECT 1 FROM {schema}.runs WHERE id = $4 AND epoch = $5::bigint AND owner IS NOT DISTINCT FROM $6::text) AS holds
), stored AS (
    INSERT INTO {schema}.chunks (run_id, digest, data)
    SELECT $1, v.digest, v.data FROM fence CROSS JOIN unnest($2::text[], $3::bytea[]) AS v (digest, data)
    WHERE fence.holds ORDER BY v.digest
    ON CONFLICT (run_id, digest) DO UPDATE SET data = excluded.data
)
SELECT holds FROM fence

-- name: known_chunks
-- Which of these chunks a run has.
SELECT digest FROM {schema}.chunks WHERE run_id = $1 AND digest = ANY ($2::text[])

-- name: chunks
-- The bytes of chunks.
SELECT digest, data FROM {schema}.chunks WHERE run_id = $1 AND digest = ANY ($2::text[])

-- name: chunk_page
-- The next chunks that a run has, by their digests.
SELECT digest FROM {schema}.chunks WHERE run_id = $1 AND digest > $2 ORDER BY digest LIMIT $3

-- name: notes
-- What the journal of a run notes under a name, in order; with a digest, what has that only.
SELECT {record_columns} FROM {schema}.records
WHERE run_id = $1 AND kind = 'noted' AND name = $2 AND ($3::text IS NULL OR args_digest = $3) ORDER BY seq

-- name: drop_chunks
-- Remove the chunks of a run that does not exist.
DELETE FROM {schema}.chunks WHERE run_id = $1 AND NOT EXISTS (SELECT 1 FROM {schema}.runs WHERE id = $1)

-- name: empty_chunks
-- Remove chunks of files of runs, so many at most; how many there were.
WITH gone AS (
    DELETE FROM {schema}.chunks WHERE (run_id, digest) IN (
        SELECT run_id, digest FROM {schema}.chunks WHERE run_id = ANY ($1::text[]) LIMIT $2) RETURNING 1)
SELECT count(*) FROM gone
