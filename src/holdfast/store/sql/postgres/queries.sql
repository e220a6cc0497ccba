-- Every statement the PostgreSQL store executes, apart from BEGIN, COMMIT and ROLLBACK.
-- `-- name:` starts a query, `-- fragment:` a piece that others include as {name}; the next comment says its purpose.
-- [[ … ]] around a row of parameters means: repeated, with commas, and numbered on, for as many rows as are bound.
-- {schema} is the schema that the tables are in. Names of PostgreSQL's own are found through the search_path that every
-- connection of ours has (see store/postgres/path.py); what is executed on a connection of the user's is qualified.
--
-- Names are those of SQLite's queries where the thing is the same. They differ in this: a write of several statements
-- is a function of the database (see functions.sql), because each statement of its own would be a trip to the server
-- and back, and a statement inside a function sees what was committed while it waited for a lock. Rows come as they
-- are, not as JSON: no interpreter lock is given up between them. There are arrays where SQLite has JSON.
--
-- Skipping from group to group of an index is written as SELECT … ORDER BY … LIMIT 1: the planner takes the index
-- for that whether or not it has statistics.

-- fragment: run_columns
-- A run, in the order of model.RunRow.
id, thread_id, agent, nonce, parent_id, queue, queue_key, priority, created_at, updated_at, status, reason, wake_at,
    {turn}, epoch, head_seq, head_hash, input_digest, summary, owner, claims, mail, digest

-- fragment: record_columns
-- A record, in the order of model.Record.
seq, epoch, {turn}, key, kind, name, attempt, tick, at, took, args_digest, args, payload, hash

-- fragment: question_columns
-- A question, in the order of model.QuestionRow.
id, run_id, key, body, shown, asked_at, due_at, state, decided_at, decided_by, note, digest

-- fragment: mail_columns
-- Mail, in the order of model.Mail.
run_id, number, kind, key, body, at, digest, dedup

-- fragment: synced
-- Have the commit of a single statement synced, as durable_1 does; the statement must select from it.
durable (level) AS MATERIALIZED (
    SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                      WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true))

-- name: begin
-- Begin a transaction whose commit is synced.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL search_path = pg_catalog, pg_temp; SELECT {schema}.durable_1()

-- name: begin_pinned
-- Begin a transaction of a session that has no search_path of ours.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL search_path = pg_catalog, pg_temp

-- name: begin_reading
-- The same to read.
BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; SET LOCAL search_path = pg_catalog, pg_temp

-- name: pin
-- The search_path, for the rest of a transaction.
SET LOCAL search_path = pg_catalog, pg_temp

-- name: settle
-- A commit of its own: what was found committed before is known to be on disk, and on a standby, once this is.
WITH {synced} SELECT pg_logical_emit_message(true, 'holdfast', '') FROM durable

-- name: sync_commits
-- Have all commits of this session synced, as durable_1 does.
SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                  WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)

-- name: types
-- The types of parameters and results that the driver has to look up, in statements of its own.
SELECT NULL::text[], NULL::bigint[], NULL::int[], NULL::smallint[], NULL::boolean[], NULL::bytea[]

-- name: path
-- The search_path of a user's connection.
SELECT pg_catalog.current_setting('search_path')

-- name: restore_path
-- Give a user's connection its search_path back.
SELECT pg_catalog.set_config('search_path', $1, true)

-- fragment: change
-- What an owner's append does to its run, if epoch, owner, head and mail match.
UPDATE {schema}.runs
SET updated_at = $2, reason = $3, turn = $4, head_seq = $5, head_hash = $6, summary = $7, digest = $8,
    claims = CASE WHEN $9::boolean THEN 0 ELSE claims END, status = $14, wake_at = $15,
    owner = CASE WHEN $16::boolean THEN NULL ELSE owner END,
    moved = CASE WHEN status = $14 AND NOT $16::boolean THEN moved ELSE pg_current_xact_id()::text::bigint END
WHERE id = $1 AND epoch = $10 AND head_seq = $11 AND head_hash = $12 AND owner = $13
  AND mail = coalesce($17::bigint, mail)

-- name: append_one
-- One append with a few records: the way of whoever waits for it. It is a third of the work of the function, since
-- there are no arrays to take apart. It reads nothing but the row that it changes, so one snapshot is enough. How many
-- records it says to have written is the answer: none, if the run did not match.
WITH done AS ({change} RETURNING id)
INSERT INTO {schema}.records (run_id, seq, epoch, turn, key, kind, name, attempt, tick, at, took, args_digest,
                              args, payload, hash)
SELECT done.id, v.*
FROM done CROSS JOIN (VALUES [[(?::bigint, ?::bigint, ?::bigint, ?::text, ?::text, ?::text, ?::bigint, ?::bigint,
                                ?::bigint, ?::bigint, ?::text, ?::text, ?::text, ?::bytea)]]) AS v

-- name: append_none
-- The same without records: the run's row changes.
{change}

-- name: append
-- Appends and amendments, with their records and blobs.
SELECT {schema}.append_3($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
                         $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38)

-- name: create_runs
-- New runs, except those whose id exists.
SELECT {schema}.create_2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
                         $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38,
                         $39, $40, $41, $42, $43, $44, $45)

-- name: create_tagged_runs
-- The same, and by which tags they are found. In one statement, which is a transaction of its own.
WITH made AS MATERIALIZED (
    SELECT {schema}.create_2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
                             $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38,
                             $39, $40, $41, $42, $43, $44, $45) AS outcomes),
tagged AS (
    INSERT INTO {schema}.tags (run_id, name, value, at)
    SELECT v.run_id, v.name, v.value, v.at
    FROM made CROSS JOIN unnest($46::int[], $47::text[], $48::text[], $49::text[], $50::bigint[])
        AS v (place, run_id, name, value, at)
    WHERE made.outcomes[v.place] = 0)
SELECT outcomes FROM made

-- name: claim_runs
-- Take over runs that are as expected.
SELECT {schema}.claim_3($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)

-- name: quarantine_run
-- Take a run out of service, whatever its row says; the epoch fences whoever has it.
WITH {synced}
UPDATE {schema}.runs
SET status = 'quarantined', owner = NULL, wake_at = NULL, epoch = epoch + 1, reason = $2, updated_at = $3,
    moved = pg_current_xact_id()::text::bigint
FROM durable WHERE id = $1 AND status <> 'quarantined'

-- name: lock_runs
-- Some runs, locked in the order of ids until the transaction ends.
SELECT {run_columns} FROM {schema}.runs WHERE id = ANY ($1::text[]) ORDER BY id FOR NO KEY UPDATE

-- name: deliver
-- Write what was decided about mail.
SELECT {schema}.deliver_3($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20,
                          $21, $22, $23, $24, $25)

-- name: find_mail
-- The numbers under which this very mail was accepted, by place in the list.
SELECT v.place, max(m.number)
FROM unnest($1::int[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[])
    AS v (place, run_id, kind, key, body, at, digest, dedup)
JOIN {schema}.mailbox AS m
  ON m.run_id = v.run_id AND m.kind = v.kind AND m.key = v.key AND m.body = v.body AND m.at = v.at
 AND m.digest = v.digest AND m.dedup IS NOT DISTINCT FROM v.dedup
GROUP BY v.place

-- name: known_mail
-- The mail that has these dedup ids.
SELECT m.run_id, m.dedup, m.number, m.kind, m.key, m.body
FROM unnest($1::text[], $2::text[]) AS v (run_id, dedup)
JOIN {schema}.mailbox AS m ON m.run_id = v.run_id AND m.dedup = v.dedup

-- name: open_shown
-- What the open ones of these questions show, locked until the transaction ends.
SELECT q.run_id, q.key, q.shown
FROM (SELECT DISTINCT * FROM unnest($1::text[], $2::text[])) AS v (run_id, key)
JOIN {schema}.questions AS q ON q.run_id = v.run_id AND q.key = v.key AND q.state = 'open'
ORDER BY q.run_id, q.key FOR UPDATE OF q

-- name: mail
-- Mail for a run after a number, in the order of acceptance; all of it, if the limit is null.
SELECT {mail_columns} FROM {schema}.mailbox WHERE run_id = $1 AND number > $2 ORDER BY number LIMIT $3::bigint

-- name: mail_of_runs
-- All mail for some runs, each run's in the order of acceptance.
SELECT {mail_columns} FROM {schema}.mailbox WHERE run_id = ANY ($1::text[]) ORDER BY run_id, number

-- name: queue_counts
-- How many runs of each of these queues are queued, and running.
SELECT queue, status, count(*) FROM {schema}.runs
WHERE queue = ANY($1) AND status = 'queued' GROUP BY queue, status
UNION ALL
SELECT queue, status, count(*) FROM {schema}.runs
WHERE queue || '' = ANY($1) AND status = 'running' GROUP BY queue, status

-- name: mail_counts
-- Epoch and number of the last mail of each run that a worker owns.
SELECT id, epoch, mail FROM {schema}.runs WHERE owner = $1

-- name: open_question
-- Store a question; one that is open and shows something else is changed, any other is left.
SELECT {schema}.open_question_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)

-- name: decide_question
-- Decide a question that is open.
SELECT {schema}.close_question_1($1, $2, $3, $4, $5, $6, $7)

-- name: question
-- One question.
SELECT {question_columns} FROM {schema}.questions WHERE run_id = $1 AND key = $2

-- name: questions_open
-- Questions that wait for an answer.
SELECT {question_columns} FROM {schema}.questions WHERE state = 'open' ORDER BY asked_at, id LIMIT $1

-- name: questions
-- Any questions.
SELECT {question_columns} FROM {schema}.questions ORDER BY asked_at, id LIMIT $1

-- name: questions_of_run
-- Questions of one run.
SELECT {question_columns} FROM {schema}.questions
WHERE run_id = $1 AND (NOT $2::boolean OR state = 'open')
  AND ($3::text IS NULL OR id >= $3 AND id < $3 || chr(1114111))
ORDER BY asked_at, id LIMIT $4

-- name: questions_by_prefix
-- Questions whose id starts so.
SELECT {question_columns} FROM {schema}.questions
WHERE id >= $1 AND id < $1 || chr(1114111) AND (NOT $2::boolean OR state = 'open')
ORDER BY asked_at, id LIMIT $3

-- name: define
-- Definitions, each over the revision it was made from.
SELECT {schema}.define_1($1, $2, $3, $4, $5, $6)

-- name: definitions
-- Definitions of a kind.
SELECT kind, name, body, revision, due_at FROM {schema}.definitions WHERE kind = $1 ORDER BY name LIMIT $2

-- name: definitions_by_name
-- Definitions of a kind with these names, if it says so only those that are due.
SELECT kind, name, body, revision, due_at FROM {schema}.definitions
WHERE kind = $1 AND name = ANY ($2::text[]) AND ($3::bigint IS NULL OR due_at <= $3)
ORDER BY CASE WHEN $3 IS NULL THEN NULL ELSE due_at END, name LIMIT $4

-- name: definitions_due
-- Definitions of a kind that somebody has to look at.
SELECT kind, name, body, revision, due_at FROM {schema}.definitions
WHERE kind = $1 AND due_at IS NOT NULL AND due_at <= $2 ORDER BY due_at, name LIMIT $3

-- name: forget
-- Remove definitions; where bodies are given, only those that have them.
WITH {synced} DELETE FROM {schema}.definitions USING durable WHERE kind = $1 AND name = ANY ($2::text[])
    AND ($3::text[] IS NULL OR body = ($3::text[])[array_position($2::text[], name)])

-- fragment: wake_groups
-- All (queue, agent, status) that runs wait in: each found by one look into the index.
wake_groups (queue, agent, status) AS (
    (SELECT queue, agent, status FROM {schema}.runs
     WHERE owner IS NULL AND wake_at IS NOT NULL ORDER BY queue, agent, status LIMIT 1)
    UNION ALL
    SELECT next.queue, next.agent, next.status
    FROM wake_groups AS last CROSS JOIN LATERAL (
        SELECT queue, agent, status FROM {schema}.runs
        WHERE owner IS NULL AND wake_at IS NOT NULL
          AND (queue, agent, status) > (last.queue, last.agent, last.status)
        ORDER BY queue, agent, status LIMIT 1) AS next)

-- fragment: asked_queues
-- Those of the queues that are asked for, and let runs go.
($2::text[] IS NULL OR queue = ANY ($2)) AND queue <> ALL ($4::text[])

-- fragment: asked_groups
-- Those of the agents and queues that are asked for.
agent = ANY ($1::text[]) AND {asked_queues}

-- name: ready_parked
-- Parked runs whose time has come: the first of each group, of those the first of each queue, the second, and so on.
WITH RECURSIVE {wake_groups},
first (queue, id, wake_at) AS (
    SELECT wake_groups.queue, found.id, found.wake_at
    FROM wake_groups CROSS JOIN LATERAL (
        SELECT id, wake_at FROM {schema}.runs
        WHERE owner IS NULL AND wake_at IS NOT NULL AND wake_at <= $3 AND queue = wake_groups.queue
          AND agent = wake_groups.agent AND status = wake_groups.status
        ORDER BY wake_at, id LIMIT $5) AS found
    WHERE wake_groups.status IN ('sleeping', 'waiting', 'in_doubt') AND {asked_groups})
SELECT id FROM first
ORDER BY row_number() OVER (PARTITION BY queue ORDER BY wake_at, id), wake_at, id LIMIT $5

-- name: due_in_line
-- How many queued runs are due, counted up to a number in each group.
WITH RECURSIVE {wake_groups}
SELECT coalesce(sum((
    SELECT count(*)
    FROM (SELECT 1 FROM {schema}.runs
          WHERE owner IS NULL AND wake_at IS NOT NULL AND wake_at <= $3 AND queue = wake_groups.queue
            AND agent = wake_groups.agent AND status = 'queued'
          ORDER BY wake_at LIMIT $5) AS due)), 0)::bigint
FROM wake_groups WHERE status = 'queued' AND {asked_groups}

-- name: line_of_few
-- All queued runs that are due, each key's in the order of the line.
WITH RECURSIVE {wake_groups}
SELECT wake_groups.queue, found.queue_key, found.id
FROM wake_groups CROSS JOIN LATERAL (
    SELECT queue_key, id, priority, wake_at FROM {schema}.runs
    WHERE owner IS NULL AND wake_at IS NOT NULL AND wake_at <= $3 AND queue = wake_groups.queue
      AND agent = wake_groups.agent AND status = 'queued'
    ORDER BY wake_at LIMIT $5) AS found
WHERE wake_groups.status = 'queued' AND {asked_groups}
ORDER BY found.priority DESC, found.wake_at, found.id

-- fragment: in_line
-- A queued run that is due, of the agents that are asked for.
status = 'queued' AND owner IS NULL AND wake_at IS NOT NULL AND wake_at <= $3 AND agent = ANY ($1::text[])

-- name: keys_in_line
-- Keys with a queued run that is due, each queue's from behind a key on, then from the start up to it.
WITH RECURSIVE
queues (queue) AS (
    (SELECT queue FROM {schema}.runs
     WHERE status = 'queued' AND owner IS NULL AND wake_at IS NOT NULL ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT next.queue
    FROM queues AS last CROSS JOIN LATERAL (
        SELECT queue FROM {schema}.runs
        WHERE status = 'queued' AND owner IS NULL AND wake_at IS NOT NULL AND queue > last.queue
        ORDER BY queue LIMIT 1) AS next),
keys (queue, lap, key) AS (
    SELECT queue, 0, (SELECT queue_key FROM {schema}.runs
                      WHERE {in_line} AND queue = queues.queue AND queue_key > $5 ORDER BY queue_key LIMIT 1)
    FROM queues WHERE {asked_queues}
    UNION ALL
    SELECT queue, CASE WHEN key IS NULL THEN 1 ELSE lap END, CASE
        WHEN key IS NULL THEN (
            SELECT queue_key FROM {schema}.runs
            WHERE {in_line} AND queue = keys.queue AND queue_key <= $5 ORDER BY queue_key LIMIT 1)
        WHEN lap = 0 THEN (
            SELECT queue_key FROM {schema}.runs
            WHERE {in_line} AND queue = keys.queue AND queue_key > keys.key ORDER BY queue_key LIMIT 1)
        ELSE (
            SELECT queue_key FROM {schema}.runs
            WHERE {in_line} AND queue = keys.queue AND queue_key > keys.key AND queue_key <= $5
            ORDER BY queue_key LIMIT 1)
        END
    FROM keys WHERE key IS NOT NULL OR lap = 0)
SELECT queue, key FROM keys WHERE key IS NOT NULL LIMIT $6 + (SELECT count(*) FROM queues) -- one of each queue

-- name: line_of_keys
-- The first queued runs of each of these keys that are due, each key's in the order of the line.
SELECT wanted.queue, wanted.queue_key, found.id
FROM unnest($2::text[], $4::text[]) WITH ORDINALITY AS wanted (queue, queue_key, place) CROSS JOIN LATERAL (
    SELECT id, priority, wake_at FROM {schema}.runs
    WHERE {in_line} AND queue = wanted.queue AND queue_key = wanted.queue_key
    ORDER BY priority DESC, wake_at, id LIMIT $5) AS found
ORDER BY wanted.place, found.priority DESC, found.wake_at, found.id

-- name: next_wake
-- The earliest time from which a run may be claimed.
WITH RECURSIVE {wake_groups}
SELECT min((SELECT wake_at FROM {schema}.runs
            WHERE owner IS NULL AND wake_at IS NOT NULL AND queue = wake_groups.queue AND agent = wake_groups.agent
              AND status = wake_groups.status ORDER BY wake_at LIMIT 1))
FROM wake_groups WHERE status IN ('queued', 'sleeping', 'waiting', 'in_doubt')

-- name: run
-- One run.
SELECT {run_columns} FROM {schema}.runs WHERE id = $1

-- name: runs_of_ids
-- Some runs.
SELECT {run_columns} FROM {schema}.runs WHERE id = ANY ($1::text[])

-- name: records
-- The next records of a run, in order; all that are left, if the limit is null.
SELECT {record_columns} FROM {schema}.records WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3::bigint

-- name: records_of_runs
-- All records of some runs, each run's in order, with the run.
SELECT run_id, {record_columns} FROM {schema}.records WHERE run_id = ANY ($1::text[]) ORDER BY run_id, seq

-- name: blobs
-- Chunks of large values, each value's in order; of those that are differences, also what they are differences to: its
-- name stands between the first byte, ~, and the x that compressed data begins with.
WITH RECURSIVE wanted (digest) AS (
    SELECT unnest($2::text[])
    UNION
    SELECT encode(substring(b.data FROM 2 FOR position('\x78'::bytea IN substring(b.data FROM 1 FOR 80)) - 2), 'escape')
    FROM wanted JOIN {schema}.blobs AS b ON b.run_id = $1 AND b.digest = wanted.digest AND b.chunk = 0
    WHERE substring(b.data FROM 1 FOR 1) = '\x7e'::bytea AND position('\x78'::bytea IN b.data) > 1
)
SELECT digest, data FROM {schema}.blobs
WHERE run_id = $1 AND digest IN (SELECT digest FROM wanted) ORDER BY digest, chunk

-- name: notify
-- Ring at the other processes. Nothing is lost if it is, so the commit waits for no disk while it keeps others waiting.
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)

-- name: notify_within
-- Ring at the other processes when the user's own transaction is committed.
SELECT pg_catalog.pg_notify($1, '')

-- name: land
-- Say that an attempt of a call has changed the user's own tables, unless another one has, or it was given up.
SELECT {schema}.land_1($1, $2, $3, $4, $5)

-- name: landed
-- The result of the attempt that landed, if one did; else this attempt and those before it never will.
SELECT {schema}.landed_1($1, $2, $3, $4)
