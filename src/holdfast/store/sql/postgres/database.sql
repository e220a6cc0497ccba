-- What `doctor` and the migrations want to know of the database itself. Written and read as queries.sql.

-- name: counts
-- How much there is.
SELECT (SELECT count(*) FROM {schema}.runs), (SELECT count(*) FROM {schema}.records),
       (SELECT count(*) FROM {schema}.blobs), (SELECT count(*) FROM {schema}.mailbox),
       (SELECT count(*) FROM {schema}.workers)

-- name: largest_runs
-- The runs that take most, with their bytes. Only those that have most records, or most large values, are measured.
WITH candidate AS (
    (SELECT id FROM {schema}.runs ORDER BY head_seq DESC LIMIT 20)
    UNION (SELECT run_id FROM {schema}.blobs GROUP BY run_id ORDER BY count(*) DESC LIMIT 20))
SELECT runs.id, runs.head_seq,
       (coalesce((SELECT sum(octet_length(coalesce(args, '')) + octet_length(coalesce(payload, '')))
                  FROM {schema}.records WHERE run_id = runs.id), 0)
        + coalesce((SELECT sum(octet_length(data)) FROM {schema}.blobs WHERE run_id = runs.id), 0)
        + coalesce((SELECT sum(octet_length(body)) FROM {schema}.mailbox WHERE run_id = runs.id), 0))::bigint AS bytes
FROM candidate JOIN {schema}.runs USING (id) ORDER BY bytes DESC, runs.id LIMIT $1

-- name: server_facts
-- What `doctor` wants to know of the server.
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'),
       current_setting('synchronous_commit'), pg_is_in_recovery(),
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
           - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
       (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
        WHERE c.relnamespace = to_regnamespace($1) AND c.relkind = 'r'),
       pg_database_size(current_database()), current_setting('synchronous_standby_names')

-- name: creators
-- Who may create in `public`, if that is everybody, and who besides its owner in the schema of the store; and what
-- ends it.
SELECT found.schema, found.whom, format('REVOKE CREATE ON SCHEMA %I FROM %s;', found.schema, found.whom)
FROM (SELECT n.nspname AS schema,
             CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS whom
      FROM pg_namespace AS n CROSS JOIN LATERAL aclexplode(n.nspacl) AS a
      WHERE a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner
        AND (n.nspname = 'public' AND a.grantee = 0 OR n.nspname = $1)) AS found
ORDER BY found.schema, found.whom

-- name: durability
-- The settings that keep what is committed.
SELECT current_setting('fsync'), current_setting('full_page_writes'), pg_is_in_recovery()

-- name: has_migrations
-- Whether the first migration was applied.
SELECT to_regclass($1) IS NOT NULL

-- name: migrations
-- What was applied.
SELECT number, name, sha256, min_version FROM {schema}.migrations ORDER BY number

-- name: add_migration
-- Say that a migration was applied.
INSERT INTO {schema}.migrations (number, name, applied_at, sha256, min_version) VALUES ($1, $2, $3, $4, $5)

-- name: lock_migrating
-- One at a time brings a schema up to date; whether that is us. It does not wait for ever for tables either.
SELECT pg_try_advisory_xact_lock(hashtextextended('holdfast migration ' || $1, 0)), set_config('lock_timeout', $2, true)

-- name: has_schema
-- Whether the schema is there.
SELECT to_regnamespace($1) IS NOT NULL

-- name: create_schema
-- The schema that the tables are in.
CREATE SCHEMA IF NOT EXISTS {schema}

-- name: schema_parts
-- What the schema is made of, as far as it can stand in the place of a table or change one: kind, name, its table.
SELECT CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'f' THEN 'foreign table'
       ELSE 'table' END AS kind, c.relname::text AS name, c.relname::text AS about
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
UNION ALL
SELECT 'trigger', t.tgname::text, c.relname::text
FROM pg_catalog.pg_trigger AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND NOT t.tgisinternal
UNION ALL
SELECT 'rule', r.rulename::text, c.relname::text
FROM pg_catalog.pg_rewrite AS r JOIN pg_catalog.pg_class AS c ON c.oid = r.ev_class
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND r.rulename <> '_RETURN'
