-- Who executes runs, and who is dead. Written and read as queries.sql.

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
