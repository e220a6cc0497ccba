-- What is removed, and what is taken in from elsewhere. Written and read as queries.sql.

-- fragment: is_free
-- Whether nothing that lives may need a run that has ended; $1 is the time that its ancestors must have ended before.
(runs.owner IS NULL
 -- Not through the index of open questions, which has those of all runs: only a plain column would match it.
 AND NOT EXISTS (SELECT 1 FROM {schema}.questions AS q WHERE q.run_id = runs.id AND q.state || '' = 'open')
 AND NOT EXISTS (SELECT 1 FROM {schema}.runs AS child
                 WHERE child.parent_id = runs.id AND child.status NOT IN ('done', 'failed', 'cancelled'))
 AND NOT EXISTS (
     WITH RECURSIVE ancestors (parent_id, status, updated_at) AS (
         SELECT up.parent_id, up.status, up.updated_at FROM {schema}.runs AS up WHERE up.id = runs.parent_id
         UNION
         SELECT up.parent_id, up.status, up.updated_at
         FROM ancestors JOIN {schema}.runs AS up ON up.id = ancestors.parent_id)
     SELECT 1 FROM ancestors WHERE status NOT IN ('done', 'failed', 'cancelled') OR updated_at >= $1::bigint))

-- name: ended
-- Runs of an agent that ended before a time and were not emptied, with whether they are free.
SELECT {run_columns}, {is_free} FROM {schema}.runs
WHERE agent = $2 AND status IN ('done', 'failed', 'cancelled') AND pruned_at IS NULL
  AND (created_at, id) > ($3, $4) AND created_at < $1 AND updated_at < $1
ORDER BY agent, created_at, id LIMIT $5

-- name: ended_agents
-- The agents that have such runs, whenever they ended: each found by one look into the index.
WITH RECURSIVE agents (agent) AS (
    (SELECT agent FROM {schema}.runs WHERE status IN ('done', 'failed', 'cancelled') AND pruned_at IS NULL
     ORDER BY agent LIMIT 1)
    UNION ALL
    SELECT next.agent
    FROM agents AS last CROSS JOIN LATERAL (
        SELECT agent FROM {schema}.runs
        WHERE status IN ('done', 'failed', 'cancelled') AND pruned_at IS NULL AND agent > last.agent
        ORDER BY agent LIMIT 1) AS next)
SELECT agent FROM agents

-- name: lock_families
-- Lock runs and their ancestors, in the order of ids, until the transaction ends: none is opened again meanwhile.
WITH RECURSIVE family (id, parent_id) AS (
    SELECT id, parent_id FROM {schema}.runs WHERE id = ANY ($1::text[])
    UNION
    SELECT up.id, up.parent_id FROM family JOIN {schema}.runs AS up ON up.id = family.parent_id)
SELECT 1 FROM {schema}.runs WHERE id = ANY (ARRAY(SELECT id FROM family)) ORDER BY id FOR NO KEY UPDATE

-- name: free_runs
-- Which of these runs are free.
SELECT id FROM {schema}.runs
WHERE id = ANY ($2::text[]) AND status || '' IN ('done', 'failed', 'cancelled') AND {is_free}

-- name: entomb
-- The new rows of runs that are as expected.
UPDATE {schema}.runs
SET reason = v.reason, summary = v.summary, digest = v.digest, epoch = v.epoch, wake_at = NULL, claims = 0,
    moved = pg_current_xact_id()::text::bigint
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bigint[], $8::bytea[])
    AS v (id, reason, summary, digest, epoch, status, head_seq, head_hash)
WHERE runs.id = v.id AND runs.epoch = v.epoch - 1 AND runs.status = v.status AND runs.head_seq = v.head_seq
  AND runs.head_hash = v.head_hash AND runs.owner IS NULL

-- name: entombed
-- Which of these rows are what is stored: id, epoch, digest.
SELECT runs.id FROM unnest($1::text[], $2::bigint[], $3::text[]) AS v (id, epoch, digest)
JOIN {schema}.runs ON runs.id = v.id AND runs.epoch = v.epoch AND runs.digest = v.digest

-- name: empty_records
-- Remove records of runs, so many at most; how many there were.
WITH gone AS (
    DELETE FROM {schema}.records WHERE (run_id, seq) IN (
        SELECT run_id, seq FROM {schema}.records WHERE run_id = ANY ($1::text[]) LIMIT $2) RETURNING 1)
SELECT count(*) FROM gone

-- name: empty_blobs
-- Remove chunks of blobs of runs, so many at most; how many there were.
WITH gone AS (
    DELETE FROM {schema}.blobs WHERE (run_id, digest, chunk) IN (
        SELECT run_id, digest, chunk FROM {schema}.blobs WHERE run_id = ANY ($1::text[]) LIMIT $2) RETURNING 1)
SELECT count(*) FROM gone

-- name: empty_questions
-- Remove questions of runs, so many at most; how many there were.
WITH gone AS (
    DELETE FROM {schema}.questions WHERE (run_id, key) IN (
        SELECT run_id, key FROM {schema}.questions WHERE run_id = ANY ($1::text[]) LIMIT $2) RETURNING 1)
SELECT count(*) FROM gone

-- name: empty_landed
-- Remove what runs did to the user's own tables, so many at most; how many there were.
WITH gone AS (
    DELETE FROM {schema}.landed WHERE (run_id, key) IN (
        SELECT run_id, key FROM {schema}.landed WHERE run_id = ANY ($1::text[]) LIMIT $2) RETURNING 1)
SELECT count(*) FROM gone

-- name: empty_tags
-- Remove the tags of runs, so many at most; how many there were.
WITH gone AS (
    DELETE FROM {schema}.tags WHERE (run_id, name) IN (
        SELECT run_id, name FROM {schema}.tags WHERE run_id = ANY ($1::text[]) LIMIT $2) RETURNING 1)
SELECT count(*) FROM gone

-- name: landed_of_run
-- What a run did to the user's own tables.
SELECT key, attempt, result, at FROM {schema}.landed WHERE run_id = $1 ORDER BY key

-- name: insert_landed
-- Take over what a run did to the user's own tables.
INSERT INTO {schema}.landed (run_id, key, attempt, result, at) VALUES ($1, $2, $3, $4, $5)

-- name: empty_mail
-- Remove mail of runs that nobody can send a second time, so many at most; how many there were.
WITH gone AS (
    DELETE FROM {schema}.mailbox WHERE (run_id, number) IN (
        SELECT run_id, number FROM {schema}.mailbox
        WHERE run_id = ANY ($1::text[]) AND dedup IS NULL LIMIT $2) RETURNING 1)
SELECT count(*) FROM gone

-- name: blank_mail
-- Take what was said out of the mail that is left, so many at most; how many there were.
WITH blank AS (
    UPDATE {schema}.mailbox SET body = '', digest = '' WHERE (run_id, number) IN (
        SELECT run_id, number FROM {schema}.mailbox
        WHERE run_id = ANY ($1::text[]) AND dedup IS NOT NULL AND body <> '' LIMIT $2) RETURNING 1)
SELECT count(*) FROM blank

-- name: not_empty
-- Which of these runs have something left to remove.
SELECT wanted.id FROM unnest($1::text[]) AS wanted (id)
WHERE EXISTS (SELECT 1 FROM {schema}.records WHERE run_id = wanted.id)
   OR EXISTS (SELECT 1 FROM {schema}.blobs WHERE run_id = wanted.id)
   OR EXISTS (SELECT 1 FROM {schema}.chunks WHERE run_id = wanted.id)
   OR EXISTS (SELECT 1 FROM {schema}.questions WHERE run_id = wanted.id)
   OR EXISTS (SELECT 1 FROM {schema}.landed WHERE run_id = wanted.id)
   OR EXISTS (SELECT 1 FROM {schema}.tags WHERE run_id = wanted.id)
   OR EXISTS (SELECT 1 FROM {schema}.mailbox WHERE run_id = wanted.id AND (dedup IS NULL OR body <> ''))

-- name: mark_pruned
-- Runs that have nothing left.
UPDATE {schema}.runs SET pruned_at = $2 WHERE id = ANY ($1::text[]) AND pruned_at IS NULL

-- name: tombstones
-- Runs that were emptied before a time.
SELECT {run_columns} FROM {schema}.runs
WHERE pruned_at IS NOT NULL AND id > $3 AND pruned_at < $1 AND ($2::text IS NULL OR agent = $2)
ORDER BY id LIMIT $4

-- name: forget_runs
-- Remove tombstones.
DELETE FROM {schema}.runs WHERE id = ANY ($1::text[]) AND pruned_at IS NOT NULL RETURNING id

-- name: forget_mail
-- Remove the mail of runs.
DELETE FROM {schema}.mailbox WHERE run_id = ANY ($1::text[])

-- name: remove_run
-- Remove a run that is to be replaced, if it is this one.
DELETE FROM {schema}.runs WHERE id = $1 AND epoch = $2 AND digest = $3 AND owner IS NULL RETURNING id

-- name: insert_mail
-- Store mail under its numbers.
INSERT INTO {schema}.mailbox ({mail_columns})
SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[])

-- name: blobs_of_run
-- Chunks of all large values of a run, each value's in order.
SELECT digest, data FROM {schema}.blobs WHERE run_id = $1 ORDER BY digest, chunk

-- name: applied_at
-- When the migrations were applied.
SELECT number, name, applied_at FROM {schema}.migrations ORDER BY number
