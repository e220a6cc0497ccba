-- The files of runs, and what their journals note of them. Written and read as queries.sql.

-- name: put_chunks
-- Chunks of files: the run, the sha256, the bytes. One that is there is written again: it may be damaged.
INSERT INTO chunks (run_id, digest, data) VALUES [[(?, ?, ?)]]
ON CONFLICT (run_id, digest) DO UPDATE SET data = excluded.data

-- name: known_chunks
-- Which of these chunks a run has.
SELECT CAST(json_group_array(digest) AS BLOB) FROM chunks
WHERE run_id = ? AND digest IN (SELECT value FROM json_each(?))

-- name: chunks
-- The bytes of chunks.
SELECT digest, data FROM chunks WHERE run_id = ? AND digest IN (SELECT value FROM json_each(?))

-- name: chunk_page
-- The next chunks that a run has, by their digests.
SELECT CAST(json_group_array(digest) AS BLOB)
FROM (SELECT digest FROM chunks WHERE run_id = ? AND digest > ? ORDER BY digest LIMIT ?)

-- name: notes
-- What the journal of a run notes under a name, in order; with a digest, what has that only.
SELECT CAST(json_group_array(json_array({record_values})) AS BLOB)
FROM (SELECT * FROM records
      WHERE run_id = :run_id AND kind = 'noted' AND name = :name AND (:digest IS NULL OR args_digest = :digest)
      ORDER BY seq)

-- name: drop_chunks
-- Remove the chunks of a run that does not exist.
DELETE FROM chunks WHERE run_id = ?1 AND NOT EXISTS (SELECT 1 FROM runs WHERE id = ?1)

-- name: empty_chunks
-- Remove chunks of files of runs, so many at most.
DELETE FROM chunks WHERE (run_id, digest) IN (
    SELECT run_id, digest FROM chunks WHERE run_id IN (SELECT value FROM json_each(:ids)) LIMIT :most)
