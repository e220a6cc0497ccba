-- What is read of many runs at once: how many there are, when they began, who they are of. Written and read as queries.sql.

-- name: histogram_by_statuses
-- How many runs of each status began when, counted up to a number of each.
SELECT wanted.status, found.bin, count(*)
FROM unnest($1::text[]) AS wanted (status) CROSS JOIN LATERAL (
    SELECT (created_at - $2::bigint) / $4::bigint AS bin FROM {schema}.runs
    WHERE (runs.status, created_at) >= (wanted.status, $2::bigint)
      AND (runs.status, created_at) < (wanted.status, $3::bigint)
    ORDER BY runs.status DESC, created_at DESC LIMIT $5) AS found
GROUP BY wanted.status, found.bin

-- name: histogram_by_agent
-- The same for one agent. Those that are running are not in its index: there are only as many as workers have.
SELECT status, bin, count(*)
FROM (SELECT wanted.status, found.bin
      FROM unnest($1::text[]) AS wanted (status) CROSS JOIN LATERAL (
          SELECT (created_at - $2::bigint) / $4::bigint AS bin FROM {schema}.runs
          WHERE (agent, runs.status, created_at) >= ($6, wanted.status, $2::bigint)
            AND (agent, runs.status, created_at) < ($6, wanted.status, $3::bigint)
            AND runs.status <> 'running'
          ORDER BY agent DESC, runs.status DESC, created_at DESC LIMIT $5) AS found
      UNION ALL
      SELECT status, (created_at - $2::bigint) / $4::bigint FROM {schema}.runs
      WHERE (status, created_at) >= ('running', $2::bigint) AND (status, created_at) < ('running', $3::bigint)
        AND 'running' = ANY ($1::text[]) AND agent || '' = $6) AS found
GROUP BY status, bin

-- name: histogram_by_queue
-- The same for one queue.
SELECT status, bin, count(*)
FROM (SELECT wanted.status, found.bin
      FROM unnest($1::text[]) AS wanted (status) CROSS JOIN LATERAL (
          SELECT (created_at - $2::bigint) / $4::bigint AS bin FROM {schema}.runs
          WHERE (queue, runs.status, created_at) >= ($7, wanted.status, $2::bigint)
            AND (queue, runs.status, created_at) < ($7, wanted.status, $3::bigint)
            AND runs.status <> 'running'
            AND ($6::text IS NULL OR agent || '' = $6)
          ORDER BY queue DESC, runs.status DESC, created_at DESC LIMIT $5) AS found
      UNION ALL
      SELECT status, (created_at - $2::bigint) / $4::bigint FROM {schema}.runs
      WHERE (status, created_at) >= ('running', $2::bigint) AND (status, created_at) < ('running', $3::bigint)
        AND 'running' = ANY ($1::text[]) AND queue || '' = $7
        AND ($6::text IS NULL OR agent || '' = $6)) AS found
GROUP BY status, bin

-- name: agents
-- The agents that have runs: each found by one look into the index.
WITH RECURSIVE agents (agent) AS (
    (SELECT agent FROM {schema}.runs WHERE status <> 'running' ORDER BY agent LIMIT 1)
    UNION ALL
    SELECT next.agent
    FROM agents AS last CROSS JOIN LATERAL (
        SELECT agent FROM {schema}.runs WHERE status <> 'running' AND agent > last.agent ORDER BY agent LIMIT 1) AS next)
SELECT agent FROM agents UNION SELECT agent FROM {schema}.runs WHERE status = 'running' ORDER BY agent

-- name: owned_counts
-- How many runs each worker has.
SELECT owner, count(*) FROM {schema}.runs WHERE owner IS NOT NULL GROUP BY owner

-- name: open_questions_after
-- A page of the questions that wait for an answer, oldest first.
SELECT {question_columns} FROM {schema}.questions
WHERE state = 'open' AND (asked_at, id) > ($1::bigint, $2::text) ORDER BY asked_at, id LIMIT $3

-- name: questions_before
-- A page of all questions, newest first.
SELECT {question_columns} FROM {schema}.questions
WHERE (asked_at, id) < ($1::bigint, $2::text) ORDER BY asked_at DESC, id DESC LIMIT $3

-- name: outline
-- The records of a run after a number, without arguments, and without the values that calls returned.
SELECT seq, epoch, {turn}, key, kind, name, attempt, tick, at, took, '', NULL,
       CASE WHEN kind IN ('done', 'finished') OR (kind <> 'reopened' AND length(payload) > 20000) THEN NULL
            ELSE payload END, ''::bytea
FROM {schema}.records WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3

-- name: record
-- One record.
SELECT {record_columns} FROM {schema}.records WHERE run_id = $1 AND seq = $2

-- name: insert_act
-- What somebody did, in the commit that does it.
INSERT INTO {schema}.acts (at, who, via, what, target, run_id, note) VALUES ($1, $2, $3, $4, $5, $6, $7)

-- fragment: act_page
-- A page of acts, newest first.
at >= $1::bigint AND (at, number) < ($2::bigint, $3::bigint) ORDER BY at DESC, number DESC LIMIT $4

-- fragment: act_columns
-- An act, with its number.
number, at, who, via, what, target, run_id, note

-- name: acts
-- Any acts.
SELECT {act_columns} FROM {schema}.acts WHERE {act_page}

-- name: acts_of_run
-- What was done to one run; if it says so, by one person.
SELECT {act_columns} FROM {schema}.acts WHERE run_id = $6 AND ($5::text IS NULL OR who || '' = $5) AND {act_page}

-- name: acts_by
-- What one person did.
SELECT {act_columns} FROM {schema}.acts WHERE who = $5 AND {act_page}

-- name: move_position
-- From which transaction on nothing is known yet, those before it that are under way, the next one, and whose they are:
-- a restored dump counts anew. A standby does not say which are under way: there it is the oldest of them.
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_snapshot_xmin(now.snapshot) ELSE pg_snapshot_xmax(now.snapshot) END)
           ::text::bigint,
       ARRAY (SELECT xid::text::bigint FROM pg_snapshot_xip(now.snapshot) AS xid WHERE NOT pg_is_in_recovery() ORDER BY 1),
       pg_snapshot_xmax(now.snapshot)::text::bigint,
       (SELECT oid::bigint FROM pg_database WHERE datname = current_database())
FROM (SELECT pg_current_snapshot()) AS now (snapshot)

-- name: moves
-- Runs that moved in a transaction from one on, and not in one that is yet to come, or in one of some before.
SELECT {run_columns}
FROM ((SELECT * FROM {schema}.runs WHERE moved >= $1 AND moved < $2 ORDER BY moved, id LIMIT $3)
      UNION ALL
      (SELECT late.*
       FROM unnest($4::bigint[]) AS held (xid) CROSS JOIN LATERAL (
           SELECT * FROM {schema}.runs WHERE moved = held.xid ORDER BY moved, id LIMIT $3) AS late)) AS runs
ORDER BY moved, id LIMIT $3

-- name: owned
-- Runs that have an owner.
SELECT {run_columns} FROM {schema}.runs WHERE owner IS NOT NULL LIMIT $1

-- name: open_question_ids
-- The questions that wait for an answer, with their runs.
SELECT id, run_id FROM {schema}.questions WHERE state = 'open' ORDER BY asked_at, id LIMIT $1
