-- Which runs a list has, by filters: a query for each index that a list may be read from. Written and read as queries.sql.
--
-- Each names the whole beginning of its index, in comparisons of rows and in the order, where SQLite's have = and INDEXED
-- BY. With = the planner may walk the index of another order, past all that does not fit, and once it has statistics it
-- does: of a status that it does not know yet it thinks that an average share of the runs has it.

-- fragment: tags
-- Those of all runs.
{schema}.tags

-- fragment: no_tags
-- What is read in their place where nobody has brought the tables up to date, and they have none.
(SELECT '' AS run_id, '' AS name, '' AS value, 0 AS at WHERE 1 = 0)

-- fragment: conditions
-- The conditions of model.RunFilter that no index was chosen for. A plain column would match its own index, and without
-- statistics the planner takes that one.
($2::text IS NULL OR runs.agent || '' = $2)
  AND ($3::text IS NULL OR runs.thread_id || '' = $3)
  AND ($4::text IS NULL OR runs.parent_id || '' = $4)
  AND ($5::text IS NULL OR runs.queue || '' = $5)
  AND ($10::text[] IS NULL OR runs.owner = ANY ($10))
  AND ($11::text IS NULL OR (runs.id || '' >= $11 AND runs.id || '' < $11 || chr(1114111)))
  AND ($12::text[] IS NULL OR NOT EXISTS (
      SELECT 1 FROM unnest($12, $13::text[]) AS wanted (name, value)
      WHERE NOT EXISTS (SELECT 1 FROM {tags} AS other
                        WHERE other.run_id = runs.id AND other.name = wanted.name AND other.value = wanted.value)))

-- fragment: filters
-- The same, the order, and where in it a list begins and ends: these are bounds of every index that has the order, so
-- they always have a value.
{conditions} AND created_at >= $6::bigint AND (created_at, id) < ($7::bigint, $8::text)
ORDER BY created_at DESC, id DESC LIMIT $9

-- fragment: of_statuses
-- The statuses of model.RunFilter, where the index has others in between.
($1::text[] IS NULL OR runs.status = ANY ($1))

-- name: cursor_position
-- Where a listing goes on.
SELECT created_at FROM {schema}.runs WHERE id = $1

-- name: sizes
-- How many entries of its index each filter leaves that a list has, up to a number; null for those it has not. Of
-- several, the index is taken that leaves least: the others would be walked from end to end if next to nothing fits.
SELECT
    CASE WHEN $9::text <> '' THEN (SELECT count(*) FROM (
        SELECT FROM {tags} AS tags
        WHERE name = $9 AND value = $10::text AND at >= $6::bigint AND at <= $7::bigint
        ORDER BY at DESC LIMIT $11) AS few) END AS runs_by_tag,
    CASE WHEN $8::text IS NOT NULL THEN (SELECT count(*) FROM (
        SELECT FROM {schema}.runs WHERE id >= $8 AND id < $8 || chr(1114111) ORDER BY id LIMIT $11) AS few)
        END AS runs_by_prefix,
    CASE WHEN $4::text IS NOT NULL THEN (SELECT count(*) FROM (
        SELECT FROM {schema}.runs
        WHERE (parent_id, created_at) >= ($4, $6::bigint) AND (parent_id, created_at) <= ($4, $7::bigint)
          AND parent_id IS NOT NULL
        ORDER BY parent_id, created_at LIMIT $11) AS few) END AS runs_by_parent,
    CASE WHEN $3::text IS NOT NULL THEN (SELECT count(*) FROM (
        SELECT FROM {schema}.runs
        WHERE (thread_id, created_at) >= ($3, $6::bigint) AND (thread_id, created_at) <= ($3, $7::bigint)
        ORDER BY thread_id, created_at LIMIT $11) AS few) END AS runs_by_thread,
    CASE WHEN $5::text IS NOT NULL THEN (SELECT count(*) FROM (
        SELECT FROM unnest($1::text[]) AS wanted (status) CROSS JOIN LATERAL (
            SELECT FROM {schema}.runs
            WHERE (queue, runs.status, created_at) >= ($5, wanted.status, $6::bigint)
              AND (queue, runs.status, created_at) <= ($5, wanted.status, $7::bigint) AND runs.status <> 'running'
            ORDER BY queue, runs.status, created_at LIMIT $11) AS few
        LIMIT $11) AS few) END AS runs_by_queue,
    CASE WHEN $2::text IS NOT NULL THEN (SELECT count(*) FROM (
        SELECT FROM unnest($1::text[]) AS wanted (status) CROSS JOIN LATERAL (
            SELECT FROM {schema}.runs
            WHERE (agent, runs.status, created_at) >= ($2, wanted.status, $6::bigint)
              AND (agent, runs.status, created_at) <= ($2, wanted.status, $7::bigint) AND runs.status <> 'running'
            ORDER BY agent, runs.status, created_at LIMIT $11) AS few
        LIMIT $11) AS few) END AS runs_by_agent,
    (SELECT count(*) FROM (
        SELECT FROM unnest($1::text[]) AS wanted (status) CROSS JOIN LATERAL (
            SELECT FROM {schema}.runs
            WHERE (runs.status, created_at) >= (wanted.status, $6::bigint)
              AND (runs.status, created_at) <= (wanted.status, $7::bigint)
            ORDER BY runs.status, created_at LIMIT $11) AS few
        LIMIT $11) AS few) AS runs_by_statuses

-- name: runs_newest
-- Any runs.
SELECT {run_columns} FROM {schema}.runs WHERE {of_statuses} AND {filters}

-- fragment: running
-- Those that are running; an index by queue or by agent has all others.
SELECT running.*
FROM (SELECT * FROM {schema}.runs
      WHERE (status, created_at, id) >= ('running', $6::bigint, '')
        AND (status, created_at, id) < ('running', $7::bigint, $8::text) AND {conditions}
      ORDER BY status DESC, created_at DESC, id DESC LIMIT $9) AS running
WHERE 'running' = ANY ($1::text[])

-- name: runs_by_statuses
-- Runs of some statuses: the first of each, in the order of its index, and of those the first.
SELECT {run_columns}
FROM (SELECT found.*
      FROM unnest($1::text[]) AS wanted (status) CROSS JOIN LATERAL (
          SELECT * FROM {schema}.runs
          WHERE (runs.status, created_at, id) >= (wanted.status, $6::bigint, '')
            AND (runs.status, created_at, id) < (wanted.status, $7::bigint, $8::text) AND {conditions}
          ORDER BY runs.status DESC, created_at DESC, id DESC LIMIT $9) AS found) AS runs
ORDER BY created_at DESC, id DESC LIMIT $9

-- name: runs_by_queue
-- Runs of one queue, likewise. Those that are running are not in its index: there are only as many as workers have.
SELECT {run_columns}
FROM (SELECT found.*
      FROM unnest($1::text[]) AS wanted (status) CROSS JOIN LATERAL (
          SELECT * FROM {schema}.runs
          WHERE (queue, runs.status, created_at, id) >= ($5, wanted.status, $6::bigint, '')
            AND (queue, runs.status, created_at, id) < ($5, wanted.status, $7::bigint, $8::text)
            AND runs.status <> 'running' AND {conditions}
          ORDER BY queue DESC, runs.status DESC, created_at DESC, id DESC LIMIT $9) AS found
      UNION ALL
      {running}) AS runs
ORDER BY created_at DESC, id DESC LIMIT $9

-- name: runs_by_agent
-- Runs of one agent, likewise.
SELECT {run_columns}
FROM (SELECT found.*
      FROM unnest($1::text[]) AS wanted (status) CROSS JOIN LATERAL (
          SELECT * FROM {schema}.runs
          WHERE (agent, runs.status, created_at, id) >= ($2, wanted.status, $6::bigint, '')
            AND (agent, runs.status, created_at, id) < ($2, wanted.status, $7::bigint, $8::text)
            AND runs.status <> 'running' AND {conditions}
          ORDER BY agent DESC, runs.status DESC, created_at DESC, id DESC LIMIT $9) AS found
      UNION ALL
      {running}) AS runs
ORDER BY created_at DESC, id DESC LIMIT $9

-- name: runs_by_thread
-- Runs of one thread.
SELECT {run_columns} FROM {schema}.runs
WHERE (thread_id, created_at, id) >= ($3, $6::bigint, '') AND (thread_id, created_at, id) < ($3, $7::bigint, $8::text)
  AND {of_statuses} AND {conditions}
ORDER BY thread_id DESC, created_at DESC, id DESC LIMIT $9

-- name: runs_by_parent
-- Children of one run.
SELECT {run_columns} FROM {schema}.runs
WHERE (parent_id, created_at, id) >= ($4, $6::bigint, '') AND (parent_id, created_at, id) < ($4, $7::bigint, $8::text)
  AND parent_id IS NOT NULL AND {of_statuses} AND {conditions}
ORDER BY parent_id DESC, created_at DESC, id DESC LIMIT $9

-- name: runs_by_owner
-- Runs that these workers own.
SELECT {run_columns} FROM (SELECT * FROM {schema}.runs WHERE owner = ANY ($10::text[]) OFFSET 0) AS runs
WHERE {of_statuses} AND {filters}

-- name: runs_by_prefix
-- Runs whose id starts so; the upper end is the prefix with the last character there is.
SELECT {run_columns}
FROM (SELECT * FROM {schema}.runs WHERE id >= $11 AND id < $11 || chr(1114111) ORDER BY id OFFSET 0) AS runs
WHERE {of_statuses} AND {filters}

-- name: runs_of_prefix
-- The same where many ids start so: from the newest on.
SELECT {run_columns} FROM {schema}.runs WHERE {of_statuses} AND {filters}

-- name: runs_by_tag
-- Runs with some tags: those with the first one, in the order of its index, that have the others too.
SELECT {run_columns}
FROM (SELECT run_id, at FROM {schema}.tags
      WHERE name = $14 AND value = $15 AND at >= $6::bigint AND (at, run_id) < ($7::bigint, $8::text)
      ORDER BY at DESC, run_id DESC) AS tagged
CROSS JOIN LATERAL (
    SELECT * FROM {schema}.runs WHERE runs.id = tagged.run_id AND {of_statuses} AND {conditions} LIMIT 1) AS runs
ORDER BY tagged.at DESC, tagged.run_id DESC LIMIT $9
