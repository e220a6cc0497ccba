-- What was said in threads. Written and read as queries.sql.

-- fragment: message_columns
-- A message, in the order of model.Message.
thread_id, number, body, at, author, covers, dedup, digest

-- fragment: thread_columns
-- A thread, in the order of model.ThreadRow.
id, last, summary, covers, created_at, updated_at

-- name: append_messages
-- Say something in a thread: first and last number, and whether it is new.
SELECT {schema}.append_messages_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: insert_messages
-- Store messages under their numbers.
INSERT INTO {schema}.thread_messages ({message_columns})
SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::text[],
                     $8::text[])

-- name: put_thread
-- The row of a thread that has more messages now.
INSERT INTO {schema}.thread_heads ({thread_columns}) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (id) DO UPDATE SET last = excluded.last, summary = excluded.summary, covers = excluded.covers,
                               updated_at = excluded.updated_at
WHERE thread_heads.last < excluded.last

-- name: lock_thread
-- Keep others from saying something in a thread until the transaction ends; its row.
SELECT {thread_columns} FROM {schema}.thread_heads WHERE id = $1 FOR UPDATE

-- name: thread
-- One thread.
SELECT {thread_columns} FROM {schema}.thread_heads WHERE id = $1

-- name: threads
-- Threads whose id starts so, in the order of ids.
SELECT {thread_columns} FROM {schema}.thread_heads
WHERE id >= $1 AND id < $1 || chr(1114111) AND id > $2 ORDER BY id LIMIT $3

-- name: messages
-- Messages of a thread after a number and up to another, the first ones.
SELECT {message_columns} FROM {schema}.thread_messages
WHERE thread_id = $1 AND number > $2 AND number <= $3 ORDER BY number LIMIT $4

-- name: messages_newest
-- The same, the last ones, backwards.
SELECT {message_columns} FROM {schema}.thread_messages
WHERE thread_id = $1 AND number > $2 AND number <= $3 ORDER BY number DESC LIMIT $4

-- fragment: is_idle
-- Whether nothing was said in a thread since a time, and no run with anything left is part of it. One that no run ever
-- was part of counts if it says so.
(thread_heads.updated_at < $1::bigint
 AND NOT EXISTS (SELECT 1 FROM {schema}.runs WHERE runs.thread_id = thread_heads.id AND runs.pruned_at IS NULL)
 AND ($2::boolean OR EXISTS (SELECT 1 FROM {schema}.runs WHERE runs.thread_id = thread_heads.id)))

-- name: idle_threads
-- Threads that nobody needs any more, those that were idle for longest first.
SELECT id FROM {schema}.thread_heads WHERE {is_idle} ORDER BY updated_at, id LIMIT $3

-- name: forget_thread
-- Remove a thread, if it is idle.
DELETE FROM {schema}.thread_heads WHERE id = $3 AND {is_idle} RETURNING id

-- name: forget_messages
-- Remove what was said in a thread.
DELETE FROM {schema}.thread_messages WHERE thread_id = $1
