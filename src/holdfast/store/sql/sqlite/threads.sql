-- What was said in threads. Written and read as queries.sql.

-- fragment: message_json
-- A message, in the order of model.Message.
json_array(
    CAST(thread_id AS TEXT), CAST(number AS INTEGER), CAST(body AS TEXT), CAST(at AS INTEGER), CAST(author AS TEXT),
    CAST(covers AS INTEGER), CAST(dedup AS TEXT), CAST(digest AS TEXT))

-- fragment: thread_json
-- A thread, in the order of model.ThreadRow.
json_array(
    CAST(id AS TEXT), CAST(last AS INTEGER), CAST(summary AS INTEGER), CAST(covers AS INTEGER),
    CAST(created_at AS INTEGER), CAST(updated_at AS INTEGER))

-- name: open_thread
-- A thread, unless it is there.
INSERT INTO thread_heads (id, last, summary, covers, created_at, updated_at) VALUES (?1, 0, 0, 0, ?2, ?2)
ON CONFLICT (id) DO NOTHING

-- name: known_messages
-- First and last number of what was said in a thread under a dedup id.
SELECT min(number), max(number) FROM thread_messages WHERE thread_id = ? AND dedup = ?

-- name: advance_thread
-- A thread after something was said in it: its last number, its last summary and up to where that goes, and when.
UPDATE thread_heads SET last = ?2, summary = coalesce(?3, summary), covers = coalesce(?4, covers), updated_at = ?5
WHERE id = ?1

-- name: touch_thread
-- Write something to a thread, so that the commit syncs what was committed before it.
UPDATE thread_heads SET updated_at = updated_at WHERE id = ?

-- name: insert_messages
-- Store messages under their numbers.
INSERT INTO thread_messages (thread_id, number, body, at, author, covers, dedup, digest) VALUES [[(?, ?, ?, ?, ?, ?, ?, ?)]]

-- name: put_thread
-- The row of a thread that has more messages now.
INSERT INTO thread_heads (id, last, summary, covers, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET last = excluded.last, summary = excluded.summary, covers = excluded.covers,
                               updated_at = excluded.updated_at
WHERE thread_heads.last < excluded.last

-- name: thread
-- One thread.
SELECT CAST(json_group_array({thread_json}) AS BLOB) FROM thread_heads WHERE id = ?

-- name: threads
-- Threads whose id starts so, in the order of ids.
SELECT CAST(json_group_array({thread_json}) AS BLOB)
FROM (SELECT * FROM thread_heads WHERE id >= ?1 AND id < ?1 || char(1114111) AND id > ?2 ORDER BY id LIMIT ?3)

-- name: messages
-- Messages of a thread after a number and up to another, the first ones.
SELECT CAST(json_group_array({message_json}) AS BLOB)
FROM (SELECT * FROM thread_messages WHERE thread_id = ? AND number > ? AND number <= ? ORDER BY number LIMIT ?)

-- name: messages_newest
-- The same, the last ones, backwards.
SELECT CAST(json_group_array({message_json}) AS BLOB)
FROM (SELECT * FROM thread_messages WHERE thread_id = ? AND number > ? AND number <= ? ORDER BY number DESC LIMIT ?)

-- fragment: is_idle
-- Whether nothing was said in a thread since a time, and no run with anything left is part of it. One that no run ever
-- was part of counts if it says so.
(thread_heads.updated_at < :before
 AND NOT EXISTS (SELECT 1 FROM runs INDEXED BY runs_by_thread
                 WHERE runs.thread_id = thread_heads.id AND runs.pruned_at IS NULL)
 AND (:strays OR EXISTS (SELECT 1 FROM runs INDEXED BY runs_by_thread WHERE runs.thread_id = thread_heads.id)))

-- name: idle_threads
-- Threads that nobody needs any more, those that were idle for longest first.
SELECT CAST(json_group_array(id) AS BLOB)
FROM (SELECT id FROM thread_heads INDEXED BY thread_heads_by_time WHERE {is_idle} ORDER BY updated_at, id LIMIT :limit)

-- name: forget_thread
-- Remove a thread, if it is idle.
DELETE FROM thread_heads WHERE id = :id AND {is_idle}

-- name: forget_messages
-- Remove what was said in a thread.
DELETE FROM thread_messages WHERE thread_id = :id
