-- Every statement the SQLite store executes, apart from BEGIN, COMMIT, SAVEPOINT and PRAGMA.
-- `-- name:` starts a query, `-- fragment:` a piece that others include as {name}; the next comment says its purpose.
-- [[ … ]] around a row of parameters means: repeated, with commas, for as many rows as are bound at once.
--
-- Reads return ONE row with one JSON array of rows, cast to a blob. The driver gives up the interpreter lock at each
-- row it steps to, and getting it back from a busy event loop takes up to 5 ms. A blob, because damaged text must not
-- fail to decode before the hash chain can say which record it is. CAST for the same reason: damage cannot change types.
--
-- An owner is compared by IS and IS NOT NULL where many runs are written at once: with = SQLite goes through all runs
-- that have an owner, by the partial index, and not through the few that are named.

-- fragment: run_json
-- A run, in the order of model.RunRow.
json_array(
    CAST(id AS TEXT), CAST(thread_id AS TEXT), CAST(agent AS TEXT), CAST(nonce AS TEXT), CAST(parent_id AS TEXT),
    CAST(queue AS TEXT), CAST(queue_key AS TEXT), CAST(priority AS INTEGER), CAST(created_at AS INTEGER),
    CAST(updated_at AS INTEGER), CAST(status AS TEXT), CAST(reason AS TEXT), CAST(wake_at AS INTEGER),
    CAST({turn} AS INTEGER), CAST(epoch AS INTEGER), CAST(head_seq AS INTEGER), hex(head_hash),
    CAST(input_digest AS TEXT), CAST(summary AS TEXT), CAST(owner AS TEXT), CAST(claims AS INTEGER),
    CAST(mail AS INTEGER), CAST(digest AS TEXT))

-- fragment: record_values
-- A record, in the order of model.Record.
CAST(seq AS INTEGER), CAST(epoch AS INTEGER), CAST({turn} AS INTEGER), CAST(key AS TEXT), CAST(kind AS TEXT),
    CAST(name AS TEXT), CAST(attempt AS INTEGER), CAST(tick AS INTEGER), CAST(at AS INTEGER), CAST(took AS INTEGER),
    CAST(args_digest AS TEXT), CAST(args AS TEXT), CAST(payload AS TEXT), hex(hash)

-- fragment: question_json
-- A question, in the order of model.QuestionRow.
json_array(
    CAST(id AS TEXT), CAST(run_id AS TEXT), CAST(key AS TEXT), CAST(body AS TEXT), CAST(shown AS TEXT),
    CAST(asked_at AS INTEGER), CAST(due_at AS INTEGER), CAST(state AS TEXT), CAST(decided_at AS INTEGER),
    CAST(decided_by AS TEXT), CAST(note AS TEXT), CAST(digest AS TEXT))

-- fragment: mail_json
-- Mail, in the order of model.Mail.
json_array(
    CAST(run_id AS TEXT), CAST(number AS INTEGER), CAST(kind AS TEXT), CAST(key AS TEXT), CAST(body AS TEXT),
    CAST(at AS INTEGER), CAST(digest AS TEXT), CAST(dedup AS TEXT))

-- fragment: next_move
-- The number of a commit that moves runs; there is one writer at a time.
(SELECT coalesce(max(moved), 0) + 1 FROM runs INDEXED BY runs_moved)

-- name: append_keep
-- Appends of running runs that stay so: nothing that an index has is written. An unowned run equals no owner.
UPDATE runs
SET updated_at = v.column2, reason = v.column3, turn = v.column4, head_seq = v.column5, head_hash = v.column6,
    summary = v.column7, digest = v.column8, claims = iif(v.column9, 0, claims)
FROM (VALUES [[(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)]]) AS v
WHERE runs.id = v.column1 AND runs.epoch = v.column10 AND runs.head_seq = v.column11 AND runs.head_hash = v.column12
  AND runs.owner IS v.column13 AND v.column13 IS NOT NULL AND runs.status = v.column14

-- name: append_keep_one
-- The same for one append, without the join: the inline path.
UPDATE runs
SET updated_at = ?2, reason = ?3, turn = ?4, head_seq = ?5, head_hash = ?6, summary = ?7, digest = ?8,
    claims = iif(?9, 0, claims)
WHERE id = ?1 AND epoch = ?10 AND head_seq = ?11 AND head_hash = ?12 AND owner = ?13 AND status = ?14

-- name: append_move
-- Appends that change the status, give up ownership, or need the mail to be the one they know.
UPDATE runs
SET updated_at = v.column2, reason = v.column3, turn = v.column4, head_seq = v.column5, head_hash = v.column6,
    summary = v.column7, digest = v.column8, claims = iif(v.column9, 0, claims),
    status = v.column14, wake_at = v.column15, owner = iif(v.column16, NULL, owner),
    moved = iif(status = v.column14 AND NOT v.column16, moved, {next_move})
FROM (VALUES [[(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)]]) AS v
WHERE runs.id = v.column1 AND runs.epoch = v.column10 AND runs.head_seq = v.column11 AND runs.head_hash = v.column12
  AND runs.owner IS v.column13 AND v.column13 IS NOT NULL AND runs.mail = coalesce(v.column17, runs.mail)

-- name: append_move_one
-- The same for one append.
UPDATE runs
SET updated_at = ?2, reason = ?3, turn = ?4, head_seq = ?5, head_hash = ?6, summary = ?7, digest = ?8,
    claims = iif(?9, 0, claims), status = ?14, wake_at = ?15, owner = iif(?16, NULL, owner),
    moved = iif(status = ?14 AND NOT ?16, moved, {next_move})
WHERE id = ?1 AND epoch = ?10 AND head_seq = ?11 AND head_hash = ?12 AND owner = ?13 AND mail = coalesce(?17, mail)

-- name: appendable
-- Which of these runs are as an append expects them: run, epoch, head, owner, mail or NULL.
SELECT CAST(json_group_array(runs.id) AS BLOB)
FROM (VALUES [[(?, ?, ?, ?, ?, ?)]]) AS v CROSS JOIN runs
WHERE runs.id = v.column1 AND runs.epoch = v.column2 AND runs.head_seq = v.column3 AND runs.head_hash = v.column4
  AND runs.owner IS v.column5 AND v.column5 IS NOT NULL AND runs.mail = coalesce(v.column6, runs.mail)

-- name: amend_run
-- An append to a run that nobody owns, or that is taken from its owner: the epoch fences whoever had it.
UPDATE runs
SET updated_at = ?2, reason = ?3, turn = ?4, head_seq = ?5, head_hash = ?6, summary = ?7, digest = ?8,
    claims = 0, epoch = ?10, status = ?14, wake_at = ?15, owner = NULL, moved = {next_move}
WHERE id = ?1 AND epoch = ?10 - 1 AND head_seq = ?11 AND head_hash = ?12 AND (?18 OR owner IS NULL)
  AND mail = coalesce(?17, mail)

-- name: append_records
-- The records of appends whose run matched in this transaction; a seq that exists is an error, never replaced.
INSERT INTO records (run_id, seq, epoch, turn, key, kind, name, attempt, tick, at, took, args_digest, args,
                     payload, hash)
VALUES [[(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)]]

-- name: append_blob
-- One chunk of a large value; the digest names the content, so one that is there already is the same.
INSERT OR IGNORE INTO blobs (run_id, digest, chunk, data) VALUES (?, ?, ?, ?)

-- name: head
-- What an append that did not match is compared with.
SELECT epoch, head_seq, head_hash, owner, digest FROM runs WHERE id = ?

-- name: is_record
-- Whether a run has this record.
SELECT 1 FROM records WHERE run_id = ? AND seq = ? AND hash = ?

-- name: touch_run
-- Write a run's row again as it is, so that the commit that follows has something to sync.
UPDATE runs SET updated_at = updated_at WHERE id = ?

-- name: create_runs
-- New runs, except those whose id exists.
INSERT OR IGNORE INTO runs (id, thread_id, agent, nonce, parent_id, queue, queue_key, priority, created_at, updated_at,
                            status, reason, wake_at, turn, epoch, head_seq, head_hash, input_digest, summary,
                            owner, claims, mail, digest, moved)
VALUES [[(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {next_move})]]

-- name: insert_tags
-- By which tags new runs are found.
INSERT INTO tags (run_id, name, value, at) VALUES [[(?, ?, ?, ?)]]

-- name: existing
-- Which of these ids exist.
SELECT CAST(json_group_array(id) AS BLOB) FROM runs WHERE id IN (SELECT value FROM json_each(?))

-- name: claimable
-- Which of these runs are as a claim expects them: place in the list, run, new epoch, head, expected epoch and owner.
SELECT CAST(json_group_array(v.column1) AS BLOB)
FROM (VALUES [[(?, ?, ?, ?, ?, ?, ?)]]) AS v CROSS JOIN runs
WHERE runs.id = v.column2 AND v.column3 > v.column6 AND runs.head_seq = v.column4 AND runs.head_hash = v.column5
  AND runs.epoch = v.column6 AND runs.owner IS v.column7

-- name: claimed
-- Which of these claims are what is stored: place in the list, run, epoch, owner, digest.
SELECT CAST(json_group_array(v.column1) AS BLOB)
FROM (VALUES [[(?, ?, ?, ?, ?)]]) AS v CROSS JOIN runs
WHERE runs.id = v.column2 AND runs.epoch = v.column3 AND runs.owner IS v.column4 AND runs.digest = v.column5

-- name: claim_runs
-- Take over runs that are known to be as expected.
UPDATE runs
SET updated_at = v.column2, status = v.column3, reason = v.column4, wake_at = v.column5, turn = v.column6,
    epoch = v.column7, summary = v.column8, digest = v.column9, owner = v.column10, claims = claims + 1,
    moved = {next_move}
FROM (VALUES [[(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)]]) AS v
WHERE runs.id = v.column1

-- name: owned_in_queues
-- How many runs of each of these queues have an owner.
SELECT CAST(json_group_array(json_array(queue, count)) AS BLOB)
FROM (SELECT queue, count(*) AS count FROM runs INDEXED BY runs_by_owner
      WHERE owner IS NOT NULL AND queue IN (SELECT value FROM json_each(:queues)) GROUP BY queue)

-- name: queue_counts
-- How many runs of each of these queues are queued, and running.
SELECT CAST(json_group_array(json_array(queue, status, count)) AS BLOB)
FROM (SELECT queue, status, count(*) AS count FROM runs INDEXED BY runs_by_queue
      WHERE queue IN (SELECT value FROM json_each(:queues)) AND status = 'queued' AND status <> 'running'
      GROUP BY queue, status
      UNION ALL
      SELECT queue, status, count(*) FROM runs INDEXED BY runs_by_status
      WHERE status = 'running' AND +queue IN (SELECT value FROM json_each(:queues))
      GROUP BY queue, status)

-- name: owned_of_keys
-- How many runs of each of these keys have an owner, by queue.
SELECT CAST(json_group_array(json_array(queue, queue_key, count)) AS BLOB)
FROM (SELECT queue, queue_key, count(*) AS count FROM runs INDEXED BY runs_by_owner
      WHERE owner IS NOT NULL AND queue IN (SELECT value FROM json_each(:queues))
        AND queue_key IN (SELECT value FROM json_each(:keys)) GROUP BY queue, queue_key)

-- name: quarantine_run
-- Take a run out of service, whatever its row says; the epoch fences whoever has it.
UPDATE runs
SET status = 'quarantined', owner = NULL, wake_at = NULL, epoch = epoch + 1, reason = :reason, updated_at = :now,
    moved = {next_move}
WHERE id = :id AND status <> 'quarantined'

-- name: count_mail
-- The numbers of the last mail of runs.
UPDATE runs SET mail = v.column2 FROM (VALUES [[(?, ?)]]) AS v WHERE runs.id = v.column1

-- name: wake_runs
-- The new rows of unowned runs that mail came for.
UPDATE runs
SET mail = v.column2, updated_at = v.column3, status = v.column4, reason = v.column5, wake_at = v.column6,
    turn = v.column7, summary = v.column8, digest = v.column9, moved = {next_move}
FROM (VALUES [[(?, ?, ?, ?, ?, ?, ?, ?, ?)]]) AS v
WHERE runs.id = v.column1 AND runs.owner IS NULL

-- name: insert_mail
-- Store mail under its numbers.
INSERT INTO mailbox (run_id, number, kind, key, body, at, digest, dedup) VALUES [[(?, ?, ?, ?, ?, ?, ?, ?)]]

-- name: land
-- Say that an attempt of a call has changed the user's own tables, unless another one has, or it was given up.
INSERT INTO landed (run_id, key, attempt, result, at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (run_id, key) DO UPDATE SET attempt = excluded.attempt, result = excluded.result, at = excluded.at
WHERE landed.result IS NULL AND landed.attempt < excluded.attempt

-- name: give_up_landing
-- From now on neither this attempt nor one before it can land.
INSERT INTO landed (run_id, key, attempt, result, at) VALUES (?, ?, ?, NULL, ?)
ON CONFLICT (run_id, key) DO UPDATE SET attempt = max(landed.attempt, excluded.attempt), at = excluded.at
WHERE landed.result IS NULL

-- name: landed
-- The result of the attempt that landed, if one did.
SELECT result FROM landed WHERE run_id = ? AND key = ?

-- name: find_mail
-- The number under which this very mail was accepted.
SELECT max(number) FROM mailbox
WHERE run_id = ? AND kind = ? AND key = ? AND body = ? AND at = ? AND digest = ? AND dedup IS ?

-- name: known_mail
-- The mail that has these dedup ids.
SELECT CAST(json_group_array(json_array(
    mailbox.run_id, mailbox.dedup, mailbox.number, mailbox.kind, mailbox.key, mailbox.body
)) AS BLOB)
FROM (VALUES [[(?, ?)]]) AS v CROSS JOIN mailbox
WHERE mailbox.run_id = v.column1 AND mailbox.dedup = v.column2

-- name: mail
-- Mail for a run after a number, in the order of acceptance; all of it, if the limit is -1.
SELECT CAST(json_group_array({mail_json}) AS BLOB)
FROM (SELECT * FROM mailbox WHERE run_id = ? AND number > ? ORDER BY number LIMIT ?)

-- name: mail_of_runs
-- All mail for some runs, each run's in the order of acceptance.
SELECT CAST(json_group_array({mail_json}) AS BLOB)
FROM (SELECT * FROM mailbox WHERE run_id IN (SELECT value FROM json_each(?)) ORDER BY run_id, number)

-- name: mail_counts
-- Epoch and number of the last mail of each run that a worker owns.
SELECT CAST(json_group_array(json_array(id, epoch, mail)) AS BLOB) FROM runs INDEXED BY runs_by_owner WHERE owner = ?

-- name: open_question
-- Store a question; one that is open and shows something else is changed, any other is left.
INSERT INTO questions (id, run_id, key, body, shown, asked_at, due_at, state, decided_at, decided_by, note, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, key) DO UPDATE
SET id = excluded.id, body = excluded.body, shown = excluded.shown, asked_at = excluded.asked_at,
    due_at = excluded.due_at, digest = excluded.digest
WHERE questions.state = 'open' AND questions.shown <> excluded.shown

-- name: decide_question
-- Decide a question that is open and, if it says so, shows what the answer is for.
UPDATE questions SET state = :state, decided_at = :at, decided_by = :by, note = :note
WHERE run_id = :run_id AND key = :key AND state = 'open' AND shown = coalesce(:shown, shown)

-- name: question
-- One question.
SELECT CAST(json_group_array({question_json}) AS BLOB) FROM questions WHERE run_id = ? AND key = ?

-- name: questions_open
-- Questions that wait for an answer.
SELECT CAST(json_group_array({question_json}) AS BLOB)
FROM (SELECT * FROM questions INDEXED BY questions_open WHERE state = 'open' ORDER BY asked_at, id LIMIT :limit)

-- name: questions
-- Any questions.
SELECT CAST(json_group_array({question_json}) AS BLOB)
FROM (SELECT * FROM questions ORDER BY asked_at, id LIMIT :limit)

-- name: questions_of_run
-- Questions of one run.
SELECT CAST(json_group_array({question_json}) AS BLOB)
FROM (SELECT * FROM questions
      WHERE run_id = :run_id AND (NOT :only_open OR state = 'open')
        AND (:prefix IS NULL OR id >= :prefix AND id < :prefix || char(1114111))
      ORDER BY asked_at, id LIMIT :limit)

-- name: questions_by_prefix
-- Questions whose id starts so.
SELECT CAST(json_group_array({question_json}) AS BLOB)
FROM (SELECT * FROM questions
      WHERE id >= :prefix AND id < :prefix || char(1114111) AND (NOT :only_open OR state = 'open')
      ORDER BY asked_at, id LIMIT :limit)

-- name: define_first
-- A definition that nobody has made yet.
INSERT OR IGNORE INTO definitions (kind, name, body, due_at, revision) VALUES (?, ?, ?, ?, ?)

-- name: define_next
-- The next revision of a definition.
UPDATE definitions SET body = ?3, due_at = ?4, revision = ?5 WHERE kind = ?1 AND name = ?2 AND revision = ?5 - 1

-- name: is_defined
-- Whether this very definition is what is stored.
SELECT 1 FROM definitions WHERE kind = ? AND name = ? AND body = ? AND due_at IS ? AND revision = ?

-- name: definitions
-- Definitions of a kind.
SELECT CAST(json_group_array(json_array(kind, name, body, revision, due_at)) AS BLOB)
FROM (SELECT * FROM definitions WHERE kind = :kind ORDER BY name LIMIT :limit)

-- name: definitions_by_name
-- Definitions of a kind with these names.
SELECT CAST(json_group_array(json_array(kind, name, body, revision, due_at)) AS BLOB)
FROM (SELECT * FROM definitions WHERE kind = :kind AND name IN (SELECT value FROM json_each(:names))
        AND (:due IS NULL OR due_at <= :due)
      ORDER BY iif(:due IS NULL, 0, due_at), name LIMIT :limit)

-- name: definitions_due
-- Definitions of a kind that somebody has to look at.
SELECT CAST(json_group_array(json_array(kind, name, body, revision, due_at)) AS BLOB)
FROM (SELECT * FROM definitions INDEXED BY definitions_due
      WHERE kind = :kind AND due_at IS NOT NULL AND due_at <= :due ORDER BY due_at, name LIMIT :limit)

-- name: forget
-- Remove definitions; where bodies are given, only those that have them.
DELETE FROM definitions WHERE kind = ?1 AND name IN (SELECT value FROM json_each(?2))
    AND (?3 IS NULL OR body = (SELECT b.value FROM json_each(?2) AS n JOIN json_each(?3) AS b ON b.key = n.key
                               WHERE n.value = definitions.name))

-- fragment: wake_groups
-- All (queue, agent, status) that runs wait in: each found by one look into the index.
wake_groups (queue, agent, status) AS (
    SELECT * FROM (SELECT queue, agent, status FROM runs INDEXED BY runs_by_wake
                   WHERE owner IS NULL AND wake_at IS NOT NULL ORDER BY queue, agent, status LIMIT 1)
    UNION ALL
    SELECT found.queue, found.agent, found.status
    FROM wake_groups AS last CROSS JOIN runs AS found ON found.id = coalesce(
        (SELECT id FROM runs INDEXED BY runs_by_wake
         WHERE owner IS NULL AND wake_at IS NOT NULL AND queue = last.queue AND agent = last.agent
           AND status > last.status ORDER BY status LIMIT 1),
        (SELECT id FROM runs INDEXED BY runs_by_wake
         WHERE owner IS NULL AND wake_at IS NOT NULL AND queue = last.queue AND agent > last.agent
         ORDER BY agent, status LIMIT 1),
        (SELECT id FROM runs INDEXED BY runs_by_wake
         WHERE owner IS NULL AND wake_at IS NOT NULL AND queue > last.queue ORDER BY queue, agent, status LIMIT 1)))

-- fragment: asked_queues
-- Those of the queues that are asked for, and let runs go.
(:queues IS NULL OR queue IN (SELECT value FROM json_each(:queues)))
  AND queue NOT IN (SELECT value FROM json_each(:closed))

-- fragment: asked_groups
-- Those of the agents and queues that are asked for.
agent IN (SELECT value FROM json_each(:agents)) AND {asked_queues}

-- name: ready_parked
-- Parked runs whose time has come: the first of each group, of those the first of each queue, the second, and so on.
WITH RECURSIVE {wake_groups},
first (queue, id, wake_at) AS (
    SELECT queue, json_extract(found.value, '$[0]'), json_extract(found.value, '$[1]')
    FROM wake_groups, json_each((
        SELECT json_group_array(json_array(id, wake_at))
        FROM (SELECT id, wake_at FROM runs INDEXED BY runs_by_wake
              WHERE owner IS NULL AND wake_at IS NOT NULL AND wake_at <= :now AND queue = wake_groups.queue
                AND agent = wake_groups.agent AND status = wake_groups.status
              ORDER BY wake_at, id LIMIT :limit))) AS found
    WHERE status IN ('sleeping', 'waiting', 'in_doubt') AND {asked_groups})
SELECT CAST(json_group_array(id) AS BLOB)
FROM (SELECT id FROM first
      ORDER BY row_number() OVER (PARTITION BY queue ORDER BY wake_at, id), wake_at, id LIMIT :limit)

-- name: due_in_line
-- How many queued runs are due, counted up to a number in each group.
WITH RECURSIVE {wake_groups}
SELECT coalesce(sum((
    SELECT count(*)
    FROM (SELECT 1 FROM runs INDEXED BY runs_by_wake
          WHERE owner IS NULL AND wake_at IS NOT NULL AND wake_at <= :now AND queue = wake_groups.queue
            AND agent = wake_groups.agent AND status = 'queued' LIMIT :most))), 0)
FROM wake_groups WHERE status = 'queued' AND {asked_groups}

-- name: line_of_few
-- All queued runs that are due, each key's in the order of the line.
WITH RECURSIVE {wake_groups},
due (id) AS (
    SELECT found.value
    FROM wake_groups, json_each((
        SELECT json_group_array(id)
        FROM (SELECT id FROM runs INDEXED BY runs_by_wake
              WHERE owner IS NULL AND wake_at IS NOT NULL AND wake_at <= :now AND queue = wake_groups.queue
                AND agent = wake_groups.agent AND status = 'queued'))) AS found
    WHERE status = 'queued' AND {asked_groups})
SELECT CAST(json_group_array(json_array(queue, queue_key, id)) AS BLOB)
FROM (SELECT runs.queue, runs.queue_key, runs.id FROM due CROSS JOIN runs ON runs.id = due.id
      ORDER BY runs.priority DESC, runs.wake_at, runs.id)

-- fragment: in_line
-- A queued run that is due, of the agents that are asked for.
status = 'queued' AND owner IS NULL AND wake_at IS NOT NULL AND wake_at <= :now
  AND agent IN (SELECT value FROM json_each(:agents))

-- name: keys_in_line
-- Keys with a queued run that is due, each queue's from behind a key on, then from the start up to it.
WITH RECURSIVE
queues (queue) AS (
    SELECT min(queue) FROM runs INDEXED BY runs_in_line
    WHERE status = 'queued' AND owner IS NULL AND wake_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(queue) FROM runs INDEXED BY runs_in_line
            WHERE status = 'queued' AND owner IS NULL AND wake_at IS NOT NULL AND queue > queues.queue)
    FROM queues WHERE queue IS NOT NULL),
keys (queue, lap, key) AS (
    SELECT queue, 0, (SELECT min(queue_key) FROM runs INDEXED BY runs_in_line
                      WHERE {in_line} AND queue = queues.queue AND queue_key > :after)
    FROM queues
    WHERE queue IS NOT NULL AND {asked_queues}
    UNION ALL
    SELECT queue, iif(key IS NULL, 1, lap), CASE
        WHEN key IS NULL THEN (
            SELECT min(queue_key) FROM runs INDEXED BY runs_in_line
            WHERE {in_line} AND queue = keys.queue AND queue_key <= :after)
        WHEN lap = 0 THEN (
            SELECT min(queue_key) FROM runs INDEXED BY runs_in_line
            WHERE {in_line} AND queue = keys.queue AND queue_key > keys.key)
        ELSE (
            SELECT min(queue_key) FROM runs INDEXED BY runs_in_line
            WHERE {in_line} AND queue = keys.queue AND queue_key > keys.key AND queue_key <= :after)
        END
    FROM keys WHERE key IS NOT NULL OR lap = 0
    LIMIT :most + 2 * (SELECT count(*) FROM queues)) -- one of each queue, and the end of a first lap is a row too
SELECT CAST(json_group_array(json_array(queue, key)) AS BLOB) FROM keys WHERE key IS NOT NULL

-- name: line_of_keys
-- The first queued runs of each of these keys that are due, each key's in the order of the line.
SELECT CAST(json_group_array(json_array(queue, queue_key, id)) AS BLOB)
FROM (SELECT json_extract(wanted.value, '$[0]') AS queue, json_extract(wanted.value, '$[1]') AS queue_key,
             found.value AS id
      FROM json_each(:keys) AS wanted, json_each((
          SELECT json_group_array(id)
          FROM (SELECT id FROM runs INDEXED BY runs_in_line
                WHERE {in_line} AND queue = json_extract(wanted.value, '$[0]')
                  AND queue_key = json_extract(wanted.value, '$[1]')
                ORDER BY priority DESC, wake_at, id LIMIT :each))) AS found)

-- name: next_wake
-- The earliest time from which a run may be claimed.
WITH RECURSIVE {wake_groups}
SELECT min((SELECT min(wake_at) FROM runs INDEXED BY runs_by_wake
            WHERE owner IS NULL AND wake_at IS NOT NULL AND queue = wake_groups.queue AND agent = wake_groups.agent
              AND status = wake_groups.status))
FROM wake_groups WHERE status IN ('queued', 'sleeping', 'waiting', 'in_doubt')

-- name: run
-- One run.
SELECT CAST(json_group_array({run_json}) AS BLOB) FROM runs WHERE id = ?

-- name: runs_of_ids
-- Some runs.
SELECT CAST(json_group_array({run_json}) AS BLOB) FROM runs WHERE id IN (SELECT value FROM json_each(?))

-- name: records
-- The next records of a run, in order.
SELECT CAST(json_group_array(json_array({record_values})) AS BLOB)
FROM (SELECT * FROM records WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?)

-- name: records_of_runs
-- All records of some runs, each run's in order, with the run.
SELECT CAST(json_group_array(json_array({record_values}, CAST(run_id AS TEXT))) AS BLOB)
FROM (SELECT * FROM records WHERE run_id IN (SELECT value FROM json_each(?)) ORDER BY run_id, seq)

-- name: blobs
-- Chunks of large values, each value's in order; of those that are differences, also what they are differences to: its
-- name stands between the first byte, ~, and the x that compressed data begins with.
WITH RECURSIVE wanted (digest) AS (
    SELECT value FROM json_each(?2)
    UNION
    SELECT CAST(substr(b.data, 2, instr(substr(b.data, 1, 80), X'78') - 2) AS TEXT)
    FROM wanted CROSS JOIN blobs AS b
    WHERE b.run_id = ?1 AND b.digest = wanted.digest AND b.chunk = 0 AND substr(b.data, 1, 1) = X'7E'
)
SELECT digest, data FROM blobs WHERE run_id = ?1 AND digest IN (SELECT digest FROM wanted) ORDER BY digest, chunk
