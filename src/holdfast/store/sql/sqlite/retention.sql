-- What is removed, what is taken in from elsewhere, and copies of the file. Written and read as queries.sql.

-- fragment: is_free
-- Whether nothing that lives may need a run that has ended.
(runs.owner IS NULL
 -- Not through the index of open questions, which has those of all runs: only a plain column would match it.
 AND NOT EXISTS (SELECT 1 FROM questions WHERE questions.run_id = runs.id AND +questions.state = 'open')
 AND NOT EXISTS (SELECT 1 FROM runs AS child INDEXED BY runs_by_parent
                 WHERE child.parent_id = runs.id AND child.status NOT IN ('done', 'failed', 'cancelled'))
 AND NOT EXISTS (
     WITH RECURSIVE ancestors (parent_id, status, updated_at) AS (
         SELECT up.parent_id, up.status, up.updated_at FROM runs AS up WHERE up.id = runs.parent_id
         UNION
         SELECT up.parent_id, up.status, up.updated_at
         FROM ancestors CROSS JOIN runs AS up WHERE up.id = ancestors.parent_id)
     SELECT 1 FROM ancestors WHERE status NOT IN ('done', 'failed', 'cancelled') OR updated_at >= :before))

-- name: ended
-- Runs of an agent that ended before a time and were not emptied, with whether they are free.
SELECT CAST(json_group_array(json_array({run_json}, is_free)) AS BLOB)
FROM (SELECT *, {is_free} AS is_free FROM runs INDEXED BY runs_ended
      WHERE agent = :agent AND status IN ('done', 'failed', 'cancelled') AND pruned_at IS NULL
        AND (created_at, id) > (:after_at, :after_id) AND created_at < :before AND updated_at < :before
      ORDER BY created_at, id LIMIT :limit)

-- name: ended_agents
-- The agents that have such runs, whenever they ended: each found by one look into the index.
WITH RECURSIVE agents (agent) AS (
    SELECT min(agent) FROM runs INDEXED BY runs_ended
    WHERE status IN ('done', 'failed', 'cancelled') AND pruned_at IS NULL
    UNION ALL
    SELECT (SELECT min(agent) FROM runs INDEXED BY runs_ended
            WHERE status IN ('done', 'failed', 'cancelled') AND pruned_at IS NULL AND agent > agents.agent)
    FROM agents WHERE agent IS NOT NULL)
SELECT CAST(json_group_array(agent) AS BLOB) FROM agents WHERE agent IS NOT NULL

-- name: free_runs
-- Which of these runs are free.
SELECT CAST(json_group_array(runs.id) AS BLOB) FROM json_each(:ids) AS wanted CROSS JOIN runs
WHERE runs.id = wanted.value AND +runs.status IN ('done', 'failed', 'cancelled') AND {is_free}

-- name: entomb
-- The new rows of runs that are as expected: id, reason, summary, digest, epoch, status, head.
UPDATE runs
SET reason = v.column2, summary = v.column3, digest = v.column4, epoch = v.column5, wake_at = NULL, claims = 0,
    moved = {next_move}
FROM (VALUES [[(?, ?, ?, ?, ?, ?, ?, ?)]]) AS v
WHERE runs.id = v.column1 AND runs.epoch = v.column5 - 1 AND runs.status = v.column6 AND runs.head_seq = v.column7
  AND runs.head_hash = v.column8 AND runs.owner IS NULL

-- name: entombed
-- Which of these rows are what is stored: id, epoch, digest.
SELECT CAST(json_group_array(runs.id) AS BLOB)
FROM (VALUES [[(?, ?, ?)]]) AS v CROSS JOIN runs
WHERE runs.id = v.column1 AND runs.epoch = v.column2 AND runs.digest = v.column3

-- name: empty_records
-- Remove records of runs, so many at most.
DELETE FROM records WHERE (run_id, seq) IN (
    SELECT run_id, seq FROM records WHERE run_id IN (SELECT value FROM json_each(:ids)) LIMIT :most)

-- name: empty_blobs
-- Remove chunks of blobs of runs, so many at most.
DELETE FROM blobs WHERE (run_id, digest, chunk) IN (
    SELECT run_id, digest, chunk FROM blobs WHERE run_id IN (SELECT value FROM json_each(:ids)) LIMIT :most)

-- name: empty_questions
-- Remove questions of runs, so many at most.
DELETE FROM questions WHERE (run_id, key) IN (
    SELECT run_id, key FROM questions WHERE run_id IN (SELECT value FROM json_each(:ids)) LIMIT :most)

-- name: empty_landed
-- Remove what runs did to the user's own tables, so many at most.
DELETE FROM landed WHERE (run_id, key) IN (
    SELECT run_id, key FROM landed WHERE run_id IN (SELECT value FROM json_each(:ids)) LIMIT :most)

-- name: empty_tags
-- Remove the tags of runs, so many at most.
DELETE FROM tags WHERE (run_id, name) IN (
    SELECT run_id, name FROM tags WHERE run_id IN (SELECT value FROM json_each(:ids)) LIMIT :most)

-- name: landed_of_run
-- What a run did to the user's own tables.
SELECT key, attempt, result, at FROM landed WHERE run_id = ? ORDER BY key

-- name: insert_landed
-- Take over what a run did to the user's own tables.
INSERT INTO landed (run_id, key, attempt, result, at) VALUES (?, ?, ?, ?, ?)

-- name: empty_mail
-- Remove mail of runs that nobody can send a second time, so many at most.
DELETE FROM mailbox WHERE (run_id, number) IN (
    SELECT run_id, number FROM mailbox
    WHERE run_id IN (SELECT value FROM json_each(:ids)) AND dedup IS NULL LIMIT :most)

-- name: blank_mail
-- Take what was said out of the mail that is left, so many at most.
UPDATE mailbox SET body = '', digest = '' WHERE (run_id, number) IN (
    SELECT run_id, number FROM mailbox
    WHERE run_id IN (SELECT value FROM json_each(:ids)) AND dedup IS NOT NULL AND body <> '' LIMIT :most)

-- name: not_empty
-- Which of these runs have something left to remove.
SELECT CAST(json_group_array(value) AS BLOB) FROM json_each(:ids) AS wanted
WHERE EXISTS (SELECT 1 FROM records WHERE run_id = wanted.value)
   OR EXISTS (SELECT 1 FROM blobs WHERE run_id = wanted.value)
   OR EXISTS (SELECT 1 FROM chunks WHERE run_id = wanted.value)
   OR EXISTS (SELECT 1 FROM questions WHERE run_id = wanted.value)
   OR EXISTS (SELECT 1 FROM landed WHERE run_id = wanted.value)
   OR EXISTS (SELECT 1 FROM tags WHERE run_id = wanted.value)
   OR EXISTS (SELECT 1 FROM mailbox WHERE run_id = wanted.value AND (dedup IS NULL OR body <> ''))

-- name: mark_pruned
-- Runs that have nothing left.
UPDATE runs SET pruned_at = :now WHERE id IN (SELECT value FROM json_each(:ids)) AND pruned_at IS NULL

-- name: tombstones
-- Runs that were emptied before a time.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT * FROM runs INDEXED BY runs_pruned
      WHERE pruned_at IS NOT NULL AND id > :after AND pruned_at < :before AND (:agent IS NULL OR agent = :agent)
      ORDER BY id LIMIT :limit)

-- name: forget_runs
-- Remove tombstones.
DELETE FROM runs WHERE id IN (SELECT value FROM json_each(:ids)) AND pruned_at IS NOT NULL

-- name: forget_mail
-- Remove the mail of runs that are not there any more.
DELETE FROM mailbox
WHERE run_id IN (SELECT value FROM json_each(:ids)) AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = mailbox.run_id)

-- name: remove_run
-- Remove a run that is to be replaced, if it is this one.
DELETE FROM runs WHERE id = :id AND epoch = :epoch AND digest = :digest AND owner IS NULL

-- name: blobs_of_run
-- Chunks of all large values of a run, each value's in order.
SELECT digest, data FROM blobs WHERE run_id = ? ORDER BY digest, chunk

-- name: applied_at
-- When the migrations were applied.
SELECT number, name, applied_at FROM migrations ORDER BY number

-- name: backup
-- Write everything, of one moment and without free pages, to a new file.
VACUUM INTO ?
