-- Every statement the SQLite store executes, apart from BEGIN, COMMIT, SAVEPOINT and PRAGMA.
-- `-- name:` starts a query, `-- fragment:` a piece that others include as {name}; the next comment says its purpose.
-- [[ … ]] around a row of parameters means: repeated, with commas, for as many rows as are bound at once.
--
-- Reads return ONE row with one JSON array of rows, cast to a blob. The driver gives up the interpreter lock at each
-- row it steps to, and getting it back from a busy event loop takes up to 5 ms. A blob, because damaged text must not
-- fail to decode before the hash chain can say which record it is. CAST for the same reason: damage cannot change types.

-- fragment: run_json
-- A run, in the order of model.RunRow.
json_array(
    CAST(id AS TEXT), CAST(thread_id AS TEXT), CAST(agent AS TEXT), CAST(nonce AS TEXT), CAST(parent_id AS TEXT),
    CAST(created_at AS INTEGER), CAST(updated_at AS INTEGER), CAST(status AS TEXT), CAST(reason AS TEXT),
    CAST(generation AS INTEGER), CAST(epoch AS INTEGER), CAST(head_seq AS INTEGER), hex(head_hash),
    CAST(input_digest AS TEXT), CAST(summary AS TEXT), CAST(owner AS TEXT), CAST(claims AS INTEGER),
    CAST(mail AS INTEGER), CAST(digest AS TEXT))

-- fragment: record_json
-- A record, in the order of model.Record.
json_array(
    CAST(seq AS INTEGER), CAST(epoch AS INTEGER), CAST(generation AS INTEGER), CAST(key AS TEXT), CAST(kind AS TEXT),
    CAST(name AS TEXT), CAST(attempt AS INTEGER), CAST(tick AS INTEGER), CAST(at AS INTEGER), CAST(took AS INTEGER),
    CAST(args_digest AS TEXT), CAST(args AS TEXT), CAST(payload AS TEXT), hex(hash))

-- fragment: filters
-- The conditions of model.RunFilter that no index was chosen for, the cursor, and the order.
(:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
  AND (:agent IS NULL OR agent = :agent)
  AND (:thread_id IS NULL OR thread_id = :thread_id)
  AND (:parent_id IS NULL OR parent_id = :parent_id)
  AND (:since IS NULL OR created_at >= :since)
  AND (:before_at IS NULL OR (created_at, id) < (:before_at, :before_id))
ORDER BY created_at DESC, id DESC LIMIT :limit

-- name: append_keep
-- Appends of running runs that stay so: status and owner, and with them their indexes, are left alone.
UPDATE runs
SET updated_at = v.column2, reason = v.column3, generation = v.column4, head_seq = v.column5, head_hash = v.column6,
    summary = v.column7, digest = v.column8, claims = iif(v.column9, 0, claims)
FROM (VALUES [[(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)]]) AS v
WHERE runs.id = v.column1 AND runs.epoch = v.column10 AND runs.head_seq = v.column11 AND runs.head_hash = v.column12
  AND runs.status = v.column13

-- name: append_keep_one
-- The same for one append, without the join: the inline path.
UPDATE runs
SET updated_at = ?2, reason = ?3, generation = ?4, head_seq = ?5, head_hash = ?6, summary = ?7, digest = ?8,
    claims = iif(?9, 0, claims)
WHERE id = ?1 AND epoch = ?10 AND head_seq = ?11 AND head_hash = ?12 AND status = ?13

-- name: append_move
-- Appends that change the status or give up ownership.
UPDATE runs
SET updated_at = v.column2, reason = v.column3, generation = v.column4, head_seq = v.column5, head_hash = v.column6,
    summary = v.column7, digest = v.column8, claims = iif(v.column9, 0, claims),
    status = v.column13, owner = iif(v.column14, NULL, owner)
FROM (VALUES [[(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)]]) AS v
WHERE runs.id = v.column1 AND runs.epoch = v.column10 AND runs.head_seq = v.column11 AND runs.head_hash = v.column12

-- name: append_move_one
-- The same for one append.
UPDATE runs
SET updated_at = ?2, reason = ?3, generation = ?4, head_seq = ?5, head_hash = ?6, summary = ?7, digest = ?8,
    claims = iif(?9, 0, claims), status = ?13, owner = iif(?14, NULL, owner)
WHERE id = ?1 AND epoch = ?10 AND head_seq = ?11 AND head_hash = ?12

-- name: append_records
-- The records of appends whose run matched in this transaction; a seq that exists is an error, never replaced.
INSERT INTO records (run_id, seq, epoch, generation, key, kind, name, attempt, tick, at, took, args_digest, args,
                     payload, hash)
VALUES [[(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)]]

-- name: append_blob
-- One chunk of a large value; the digest names the content, so one that is there already is the same.
INSERT OR IGNORE INTO blobs (run_id, digest, chunk, data) VALUES (?, ?, ?, ?)

-- name: head
-- What an append that did not match is compared with.
SELECT epoch, head_seq, head_hash FROM runs WHERE id = ?

-- name: touch_run
-- Write a run's row again as it is, so that the commit that follows has something to sync.
UPDATE runs SET updated_at = updated_at WHERE id = ?

-- name: create_runs
-- New runs, except those whose id exists.
INSERT OR IGNORE INTO runs (id, thread_id, agent, nonce, parent_id, created_at, updated_at, status, reason, generation,
                            epoch, head_seq, head_hash, input_digest, summary, owner, claims, mail, digest)
VALUES [[(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)]]

-- name: claim_run
-- Take a run over. The epoch only rises, and the head must be the one that the new row was made from.
UPDATE runs
SET updated_at = :updated_at, status = :status, reason = :reason, generation = :generation, epoch = :epoch,
    summary = :summary, digest = :digest, owner = :owner, claims = claims + 1
WHERE id = :id AND epoch = :expected_epoch AND :epoch > :expected_epoch AND owner IS :expected_owner
  AND head_seq = :head_seq AND head_hash = :head_hash

-- name: is_claimed
-- Whether this very claim is what is stored.
SELECT 1 FROM runs WHERE id = :id AND epoch = :epoch AND owner = :owner AND digest = :digest

-- name: set_status
-- Write an unowned run's row.
UPDATE runs
SET updated_at = :updated_at, status = :status, reason = :reason, generation = :generation, epoch = :epoch,
    summary = :summary, digest = :digest
WHERE id = :id AND epoch = :expected_epoch AND owner IS NULL AND head_seq = :head_seq AND head_hash = :head_hash

-- name: is_status_set
-- Whether this very row is what is stored.
SELECT 1 FROM runs WHERE id = :id AND epoch = :epoch AND owner IS NULL AND digest = :digest AND status = :status

-- name: quarantine_run
-- Take a run out of service, whatever its row says; the epoch fences whoever has it.
UPDATE runs SET status = 'quarantined', owner = NULL, epoch = epoch + 1, reason = :reason, updated_at = :now
WHERE id = :id AND status <> 'quarantined'

-- name: mail_count
-- The number of the last mail for a run.
SELECT mail FROM runs WHERE id = ?

-- name: count_mail
-- The number of the next mail for a run.
UPDATE runs SET mail = mail + 1 WHERE id = ? RETURNING mail

-- name: insert_mail
-- Store mail under its number.
INSERT INTO mailbox (run_id, number, kind, key, body, at, digest) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: find_mail
-- The number under which this very mail was accepted.
SELECT max(number) FROM mailbox WHERE run_id = ? AND kind = ? AND key = ? AND body = ? AND at = ? AND digest = ?

-- name: mail
-- Mail for a run after a number, in the order of acceptance.
SELECT CAST(json_group_array(json_array(CAST(run_id AS TEXT), CAST(number AS INTEGER), CAST(kind AS TEXT),
    CAST(key AS TEXT), CAST(body AS TEXT), CAST(at AS INTEGER), CAST(digest AS TEXT))) AS BLOB)
FROM (SELECT * FROM mailbox WHERE run_id = ? AND number > ? ORDER BY number)

-- name: run
-- One run.
SELECT CAST(json_group_array({run_json}) AS BLOB) FROM runs WHERE id = ?

-- name: records
-- The next records of a run, in order.
SELECT CAST(json_group_array({record_json}) AS BLOB)
FROM (SELECT * FROM records WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?)

-- name: blobs
-- Chunks of large values, each value's in order.
SELECT digest, data FROM blobs WHERE run_id = ? AND digest IN (SELECT value FROM json_each(?)) ORDER BY digest, chunk

-- name: cursor_position
-- Where a listing goes on.
SELECT created_at FROM runs WHERE id = ?

-- name: runs_newest
-- Any runs.
SELECT CAST(json_group_array({run_json}) AS BLOB) FROM (SELECT * FROM runs WHERE {filters})

-- name: runs_by_status
-- Runs of one status, in the order of its index.
SELECT CAST(json_group_array({run_json}) AS BLOB) FROM (SELECT * FROM runs WHERE status = :status AND {filters})

-- name: runs_by_statuses
-- Runs of several statuses, each few: through the index, then sorted.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT * FROM runs INDEXED BY runs_by_status
      WHERE status IN (SELECT value FROM json_each(:statuses)) AND {filters})

-- name: runs_by_agent
-- Runs of one agent.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT * FROM runs INDEXED BY runs_by_agent WHERE agent = :agent AND {filters})

-- name: runs_by_thread
-- Runs of one thread.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT * FROM runs INDEXED BY runs_by_thread WHERE thread_id = :thread_id AND {filters})

-- name: runs_by_parent
-- Children of one run.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT * FROM runs INDEXED BY runs_by_parent WHERE parent_id = :parent_id AND {filters})

-- name: runs_by_owner
-- Runs that these workers own.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT * FROM runs INDEXED BY runs_by_owner
      WHERE owner IN (SELECT value FROM json_each(:owners)) AND {filters})

-- name: runs_by_prefix
-- Runs whose id starts so; the upper end is the prefix with the last character there is.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT * FROM runs WHERE id >= :prefix AND id < :prefix || char(1114111)
      AND (:owners IS NULL OR owner IN (SELECT value FROM json_each(:owners))) AND {filters})

-- name: add_worker
-- A worker that starts.
INSERT INTO workers (id, pid, host, boot_id, started_at, lease_until_ms) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET lease_until_ms = excluded.lease_until_ms

-- name: renew_worker
-- Extend a lease; a removed worker has none.
UPDATE workers SET lease_until_ms = ? WHERE id = ?

-- name: remove_worker
-- A worker that ended or is dead.
DELETE FROM workers WHERE id = ?

-- name: workers
-- All workers.
SELECT CAST(json_group_array(json_array(id, pid, host, boot_id, started_at, lease_until_ms)) AS BLOB)
FROM (SELECT * FROM workers ORDER BY started_at, id)

-- name: ownerless
-- Owners of unfinished runs that no worker row speaks for.
SELECT CAST(json_group_array(DISTINCT owner) AS BLOB) FROM runs
WHERE owner IS NOT NULL AND status NOT IN ('done', 'failed', 'cancelled') AND owner NOT IN (SELECT id FROM workers)

-- name: counts
-- How much there is.
SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM records), (SELECT count(*) FROM blobs),
       (SELECT count(*) FROM mailbox), (SELECT count(*) FROM workers)

-- name: has_tables
-- Whether anything was ever created in this file.
SELECT EXISTS (SELECT 1 FROM sqlite_schema)

-- name: has_migrations
-- Whether the first migration was applied.
SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migrations')

-- name: migrations
-- What was applied.
SELECT number, name, sha256 FROM migrations ORDER BY number

-- name: add_migration
-- Say that a migration was applied.
INSERT INTO migrations (number, name, applied_at, sha256) VALUES (?, ?, ?, ?)

-- name: schema
-- The schema as SQLite has it.
SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type <> 'table', name
