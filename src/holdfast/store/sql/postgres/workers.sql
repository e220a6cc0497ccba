-- Who executes runs, and who is dead. Written and read as queries.sql.

-- fragment: server_start
-- When the sessions of this server began anew: it was started, or it lost them all in a crash, and its statistics too.
(SELECT (extract(epoch FROM greatest(pg_postmaster_start_time(), stats_reset)) * 1000000)::bigint FROM pg_stat_bgwriter)

-- fragment: server
-- This server and its clock: when it started, and now.
server (started_us, now_us) AS MATERIALIZED (
    SELECT {server_start}, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)

-- name: take_lock
-- Hold a worker's lock for as long as this session lives; who the session is.
SELECT pg_try_advisory_lock($1), pg_backend_pid(),
       (SELECT (extract(epoch FROM a.backend_start) * 1000000)::bigint
        FROM pg_stat_activity AS a WHERE a.pid = pg_backend_pid()),
       {server_start}

-- name: lock_holder
-- The session that has an advisory lock: one with this number, or else with the number of this name.
SELECT l.pid, a.usename, a.application_name
FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
  AND (l.classid::bigint << 32 | l.objid::bigint) = coalesce($1::bigint, hashtextextended($2::text, 0))
LIMIT 1

-- name: drop_lock
-- Let go of a worker's lock.
SELECT pg_advisory_unlock($1)

-- name: add_worker
-- A worker that starts, or that has a new session, and what it tells of itself.
WITH {synced}, told AS (
    INSERT INTO {schema}.definitions (kind, name, body, revision) VALUES ('worker', $1, $7, 1)
    ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body)
INSERT INTO {schema}.workers (id, pid, host, boot_id, started_at, lease_until_ms, lock_key, backend_pid,
                              backend_start, server_start, renewed_on)
SELECT $1, $2, $3, $4, $5, $6, $8, $9, $10, $11, {server_start} FROM durable
ON CONFLICT (id) DO UPDATE
SET lease_until_ms = excluded.lease_until_ms, renewed_on = excluded.renewed_on, lock_key = excluded.lock_key, backend_pid = excluded.backend_pid,
    backend_start = excluded.backend_start, server_start = excluded.server_start, let_go = false

-- name: move_worker
-- A worker has a new session; a removed worker has none.
WITH {synced}
UPDATE {schema}.workers SET lock_key = $2, backend_pid = $3, backend_start = $4, server_start = $5
FROM durable WHERE id = $1

-- name: renew_worker
-- Extend a lease; a removed worker has none. The database's clock.
WITH {synced}
UPDATE {schema}.workers SET lease_until_ms = $2, renewed_on = {server_start} FROM durable WHERE id = $1
RETURNING (extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: let_go
-- Workers whose process is gone and says so.
WITH {synced} UPDATE {schema}.workers SET let_go = true FROM durable WHERE id = ANY ($1::text[])

-- name: remove_worker
-- A worker that ended or is dead.
WITH {synced}, told AS (DELETE FROM {schema}.definitions WHERE kind = 'worker' AND name = $1)
DELETE FROM {schema}.workers USING durable WHERE id = $1

-- name: workers
-- All workers.
SELECT id, pid, host, boot_id, started_at, lease_until_ms FROM {schema}.workers ORDER BY started_at, id

-- name: worker_signs
-- Of each worker: its lease, whether that is over, and was renewed since this server started, whether it said it is
-- gone, its session, and whether that is absent from this server, which has been up for longer than a lease. The
-- session is looked up, never by taking its lock.
WITH {server}
SELECT w.id, w.lease_until_ms, w.lease_until_ms < server.now_us / 1000,
       coalesce(w.renewed_on = server.started_us, false), w.let_go, w.backend_pid, w.backend_start,
       w.lock_key IS NOT NULL AND w.server_start = server.started_us AND server.now_us - server.started_us > $1::bigint
       AND CASE
           WHEN EXISTS (SELECT 1 FROM pg_stat_activity AS a
                        WHERE a.pid = w.backend_pid
                          AND (extract(epoch FROM a.backend_start) * 1000000)::bigint = w.backend_start) THEN false
           ELSE NOT EXISTS (
               SELECT 1 FROM pg_locks AS l
               WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid = w.backend_pid
                 AND (l.classid::bigint << 32 | l.objid::bigint) = w.lock_key)
           END
FROM {schema}.workers AS w CROSS JOIN server

-- name: ownerless
-- Owners of unfinished runs that no worker row speaks for: from owner to owner through the index.
WITH RECURSIVE owners (owner) AS (
    (SELECT owner FROM {schema}.runs WHERE owner IS NOT NULL ORDER BY owner LIMIT 1)
    UNION ALL
    SELECT next.owner
    FROM owners AS last CROSS JOIN LATERAL (
        SELECT owner FROM {schema}.runs WHERE owner IS NOT NULL AND owner > last.owner ORDER BY owner LIMIT 1) AS next)
SELECT owner FROM owners
WHERE NOT EXISTS (SELECT 1 FROM {schema}.workers WHERE id = owners.owner)
  AND EXISTS (SELECT 1 FROM {schema}.runs
              WHERE runs.owner = owners.owner AND status NOT IN ('done', 'failed', 'cancelled'))

-- name: database_clock
-- The database's clock, in milliseconds.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: ping
-- Whether the server answers; on a connection that the user is lent.
SELECT 1
