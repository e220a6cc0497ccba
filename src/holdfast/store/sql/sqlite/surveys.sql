-- What is read of many runs at once: how many there are, when they began, who they are of. Written and read as queries.sql.

-- fragment: span
-- A span of time; every index that has the order of a list is bounded by it.
created_at >= :since AND created_at < :before_at

-- fragment: bins
-- The newest of some runs, by when they began: how many in each bin.
SELECT json_group_array(json_array(bin, count)) FROM (SELECT bin, count(*) AS count FROM

-- name: histogram_by_statuses
-- How many runs of each status began when, counted up to a number of each.
SELECT CAST(json_group_array(json_array(wanted.value, json((
    {bins} (SELECT (created_at - :since) / :width AS bin FROM runs INDEXED BY runs_by_status
            WHERE status = wanted.value AND {span} ORDER BY created_at DESC LIMIT :limit) GROUP BY bin))))) AS BLOB)
FROM json_each(:statuses) AS wanted

-- name: histogram_by_agent
-- The same for one agent. Those that are running are not in its index: there are only as many as workers have.
SELECT CAST(json_group_array(json_array(wanted.value, json(iif(
    wanted.value = 'running',
    ({bins} (SELECT (created_at - :since) / :width AS bin FROM runs INDEXED BY runs_by_status
             WHERE status = 'running' AND agent = :agent AND {span}) GROUP BY bin)),
    ({bins} (SELECT (created_at - :since) / :width AS bin FROM runs INDEXED BY runs_by_agent
             WHERE agent = :agent AND status = wanted.value AND status <> 'running' AND {span}
             ORDER BY created_at DESC LIMIT :limit) GROUP BY bin)))))) AS BLOB)
FROM json_each(:statuses) AS wanted

-- name: histogram_by_queue
-- The same for one queue.
SELECT CAST(json_group_array(json_array(wanted.value, json(iif(
    wanted.value = 'running',
    ({bins} (SELECT (created_at - :since) / :width AS bin FROM runs INDEXED BY runs_by_status
             WHERE status = 'running' AND queue = :queue AND (:agent IS NULL OR agent = :agent) AND {span})
     GROUP BY bin)),
    ({bins} (SELECT (created_at - :since) / :width AS bin FROM runs INDEXED BY runs_by_queue
             WHERE queue = :queue AND status = wanted.value AND status <> 'running'
               AND (:agent IS NULL OR agent = :agent) AND {span}
             ORDER BY created_at DESC LIMIT :limit) GROUP BY bin)))))) AS BLOB)
FROM json_each(:statuses) AS wanted

-- name: agents
-- The agents that have runs: each found by one look into the index.
WITH RECURSIVE agents (agent) AS (
    SELECT min(agent) FROM runs INDEXED BY runs_by_agent WHERE status <> 'running'
    UNION ALL
    SELECT (SELECT min(agent) FROM runs INDEXED BY runs_by_agent WHERE status <> 'running' AND agent > agents.agent)
    FROM agents WHERE agent IS NOT NULL)
SELECT CAST(json_group_array(agent) AS BLOB)
FROM (SELECT agent FROM agents WHERE agent IS NOT NULL
      UNION SELECT agent FROM runs INDEXED BY runs_by_status WHERE status = 'running' ORDER BY agent)

-- name: owned_counts
-- How many runs each worker has.
SELECT CAST(json_group_array(json_array(owner, count)) AS BLOB)
FROM (SELECT owner, count(*) AS count FROM runs INDEXED BY runs_by_owner WHERE owner IS NOT NULL GROUP BY owner)

-- name: open_questions_after
-- A page of the questions that wait for an answer, oldest first.
SELECT CAST(json_group_array({question_json}) AS BLOB)
FROM (SELECT * FROM questions INDEXED BY questions_open WHERE state = 'open' AND (asked_at, id) > (:at, :id)
      ORDER BY asked_at, id LIMIT :limit)

-- name: questions_before
-- A page of all questions, newest first.
SELECT CAST(json_group_array({question_json}) AS BLOB)
FROM (SELECT * FROM questions INDEXED BY questions_newest WHERE (asked_at, id) < (:at, :id)
      ORDER BY asked_at DESC, id DESC LIMIT :limit)

-- fragment: outline_values
-- As record_values, but bulky values, which only who looks at the call wants to see.
CAST(seq AS INTEGER), CAST(epoch AS INTEGER), CAST({turn} AS INTEGER), CAST(key AS TEXT), CAST(kind AS TEXT),
    CAST(name AS TEXT), CAST(attempt AS INTEGER), CAST(tick AS INTEGER), CAST(at AS INTEGER), CAST(took AS INTEGER),
    '', NULL,
    iif(kind IN ('done', 'finished') OR (kind <> 'reopened' AND length(payload) > 20000), NULL, CAST(payload AS TEXT)), ''

-- name: outline
-- The records of a run after a number, without arguments, and without the values that calls returned.
SELECT CAST(json_group_array(json_array({outline_values})) AS BLOB)
FROM (SELECT * FROM records WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?)

-- name: record
-- One record.
SELECT CAST(json_group_array(json_array({record_values})) AS BLOB)
FROM (SELECT * FROM records WHERE run_id = ? AND seq = ?)

-- name: insert_act
-- What somebody did, in the commit that does it.
INSERT INTO acts (at, who, via, what, target, run_id, note) VALUES (?, ?, ?, ?, ?, ?, ?)

-- fragment: act_page
-- A page of acts, newest first.
at >= :since AND (at, number) < (:before_at, :before_number) ORDER BY at DESC, number DESC LIMIT :limit

-- fragment: act_json
-- An act, with its number.
json_array(number, at, who, via, what, target, run_id, note)

-- name: acts
-- Any acts.
SELECT CAST(json_group_array({act_json}) AS BLOB) FROM (SELECT * FROM acts INDEXED BY acts_newest WHERE {act_page})

-- name: acts_of_run
-- What was done to one run; if it says so, by one person.
SELECT CAST(json_group_array({act_json}) AS BLOB)
FROM (SELECT * FROM acts INDEXED BY acts_of_run
      WHERE run_id = :run_id AND (:by IS NULL OR who = :by) AND {act_page})

-- name: acts_by
-- What one person did.
SELECT CAST(json_group_array({act_json}) AS BLOB) FROM (SELECT * FROM acts INDEXED BY acts_by WHERE who = :by AND {act_page})

-- name: move_position
-- The number of the last commit that moved runs.
SELECT coalesce(max(moved), 0) FROM runs INDEXED BY runs_moved

-- name: moves
-- Runs that moved after a commit, in the order of commits.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT * FROM runs INDEXED BY runs_moved WHERE moved > :after ORDER BY moved, id LIMIT :limit)

-- name: owned
-- Runs that have an owner.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT * FROM runs INDEXED BY runs_by_owner WHERE owner IS NOT NULL LIMIT :limit)

-- name: open_question_ids
-- The questions that wait for an answer, with their runs.
SELECT CAST(json_group_array(json_array(id, run_id)) AS BLOB)
FROM (SELECT id, run_id FROM questions INDEXED BY questions_open WHERE state = 'open' ORDER BY asked_at, id LIMIT :limit)
