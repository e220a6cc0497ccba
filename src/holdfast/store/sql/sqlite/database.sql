-- What `doctor` and the migrations want to know of the database itself. Written and read as queries.sql.

-- name: counts
-- How much there is.
SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM records), (SELECT count(*) FROM blobs),
       (SELECT count(*) FROM mailbox), (SELECT count(*) FROM workers)

-- name: largest_runs
-- The runs that take most, with their bytes. Only those that have most records, or most large values, are measured.
WITH candidate AS (
    SELECT id FROM (SELECT id FROM runs ORDER BY head_seq DESC LIMIT 20)
    UNION SELECT run_id FROM (SELECT run_id FROM blobs GROUP BY run_id ORDER BY count(*) DESC LIMIT 20))
SELECT runs.id, runs.head_seq,
       coalesce((SELECT sum(octet_length(coalesce(args, '')) + octet_length(coalesce(payload, '')))
                 FROM records WHERE run_id = runs.id), 0)
       + coalesce((SELECT sum(octet_length(data)) FROM blobs WHERE run_id = runs.id), 0)
       + coalesce((SELECT sum(octet_length(body)) FROM mailbox WHERE run_id = runs.id), 0) AS bytes
FROM candidate JOIN runs USING (id) ORDER BY bytes DESC, runs.id LIMIT ?

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

-- name: schema_parts
-- What the schema is made of: kind, name, the table that it is about, and its text. Statistics are SQLite's own.
SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'
