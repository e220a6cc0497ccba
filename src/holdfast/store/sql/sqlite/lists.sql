-- Which runs a list has, by filters: a query for each index that a list may be read from. Written and read as queries.sql.

-- fragment: tags
-- Those of all runs.
tags

-- fragment: no_tags
-- What is read in their place where nobody has brought the tables up to date, and they have none.
(SELECT '' AS run_id, '' AS name, '' AS value, 0 AS at WHERE 1 = 0)

-- fragment: conditions
-- The conditions of model.RunFilter that no index was chosen for.
(:agent IS NULL OR runs.agent = :agent)
  AND (:thread_id IS NULL OR runs.thread_id = :thread_id)
  AND (:parent_id IS NULL OR runs.parent_id = :parent_id)
  AND (:queue IS NULL OR runs.queue = :queue)
  AND (:owners IS NULL OR runs.owner IN (SELECT value FROM json_each(:owners)))
  AND (:prefix IS NULL OR (runs.id >= :prefix AND runs.id < :prefix || char(1114111)))
  AND (:tags IS NULL OR NOT EXISTS (
      SELECT 1 FROM json_each(:tags) AS wanted
      WHERE NOT EXISTS (SELECT 1 FROM {tags} AS other
                        WHERE other.run_id = runs.id AND other.name = wanted.value ->> 0
                          AND other.value = wanted.value ->> 1)))

-- fragment: filters
-- The same, the order, and where in it a list begins and ends: these are bounds of every index that has the order, so
-- they always have a value.
{conditions} AND created_at >= :since AND (created_at, id) < (:before_at, :before_id)
ORDER BY created_at DESC, id DESC LIMIT :limit

-- fragment: of_statuses
-- The statuses of model.RunFilter, where the index has others in between.
(:statuses IS NULL OR runs.status IN (SELECT value FROM json_each(:statuses)))

-- name: cursor_position
-- Where a listing goes on.
SELECT created_at FROM runs WHERE id = ?

-- fragment: entries
-- The entries of an index that a list may have to walk past.
created_at >= :since AND created_at <= :before_at LIMIT :most

-- name: sizes
-- How many entries of its index each filter leaves that a list has, up to a number; nothing for those it has not. Of
-- several, the index is taken that leaves least: the others would be walked from end to end if next to nothing fits.
SELECT CAST(json_object(
    'runs_by_tag', iif(:tag = '', NULL, (SELECT count(*) FROM (
        SELECT 1 FROM {tags}
        WHERE name = :tag AND value = :tag_value AND at >= :since AND at <= :before_at LIMIT :most))),
    'runs_by_prefix', iif(:prefix IS NULL, NULL, (SELECT count(*) FROM (
        SELECT 1 FROM runs WHERE id >= :prefix AND id < :prefix || char(1114111) LIMIT :most))),
    'runs_by_parent', iif(:parent_id IS NULL, NULL, (SELECT count(*) FROM (
        SELECT 1 FROM runs INDEXED BY runs_by_parent WHERE parent_id = :parent_id AND {entries}))),
    'runs_by_thread', iif(:thread_id IS NULL, NULL, (SELECT count(*) FROM (
        SELECT 1 FROM runs INDEXED BY runs_by_thread WHERE thread_id = :thread_id AND {entries}))),
    'runs_by_queue', iif(:queue IS NULL, NULL, (SELECT count(*) FROM (
        SELECT 1 FROM json_each(:statuses) AS wanted CROSS JOIN runs INDEXED BY runs_by_queue
        WHERE queue = :queue AND status = wanted.value AND status <> 'running' AND {entries}))),
    'runs_by_agent', iif(:agent IS NULL, NULL, (SELECT count(*) FROM (
        SELECT 1 FROM json_each(:statuses) AS wanted CROSS JOIN runs INDEXED BY runs_by_agent
        WHERE agent = :agent AND status = wanted.value AND status <> 'running' AND {entries}))),
    'runs_by_statuses', (SELECT count(*) FROM (
        SELECT 1 FROM json_each(:statuses) AS wanted CROSS JOIN runs INDEXED BY runs_by_status
        WHERE status = wanted.value AND {entries}))) AS BLOB)

-- name: runs_newest
-- Any runs.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT * FROM runs INDEXED BY runs_newest WHERE {of_statuses} AND {filters})

-- name: runs_by_statuses
-- Runs of some statuses: the first of each, in the order of its index, and of those the first.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT runs.*
      FROM json_each(:statuses) AS wanted
      CROSS JOIN json_each((SELECT json_group_array(id) FROM (
          SELECT id FROM runs INDEXED BY runs_by_status WHERE status = wanted.value AND {filters}))) AS found
      CROSS JOIN runs ON runs.id = found.value
      ORDER BY runs.created_at DESC, runs.id DESC LIMIT :limit)

-- name: runs_by_queue
-- Runs of one queue, likewise. Those that are running are not in its index: there are only as many as workers have.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT runs.*
      FROM json_each(:statuses) AS wanted
      CROSS JOIN json_each(iif(
          wanted.value = 'running',
          (SELECT json_group_array(id) FROM (
              SELECT id FROM runs INDEXED BY runs_by_status WHERE status = 'running' AND {filters})),
          (SELECT json_group_array(id) FROM (
              SELECT id FROM runs INDEXED BY runs_by_queue
              WHERE queue = :queue AND status = wanted.value AND status <> 'running' AND {filters})))) AS found
      CROSS JOIN runs ON runs.id = found.value
      ORDER BY runs.created_at DESC, runs.id DESC LIMIT :limit)

-- name: runs_by_agent
-- Runs of one agent, likewise.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT runs.*
      FROM json_each(:statuses) AS wanted
      CROSS JOIN json_each(iif(
          wanted.value = 'running',
          (SELECT json_group_array(id) FROM (
              SELECT id FROM runs INDEXED BY runs_by_status WHERE status = 'running' AND {filters})),
          (SELECT json_group_array(id) FROM (
              SELECT id FROM runs INDEXED BY runs_by_agent
              WHERE agent = :agent AND status = wanted.value AND status <> 'running' AND {filters})))) AS found
      CROSS JOIN runs ON runs.id = found.value
      ORDER BY runs.created_at DESC, runs.id DESC LIMIT :limit)

-- name: runs_by_thread
-- Runs of one thread.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT * FROM runs INDEXED BY runs_by_thread WHERE thread_id = :thread_id AND {of_statuses} AND {filters})

-- name: runs_by_parent
-- Children of one run.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT * FROM runs INDEXED BY runs_by_parent WHERE parent_id = :parent_id AND {of_statuses} AND {filters})

-- name: runs_by_owner
-- Runs that these workers own.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT * FROM runs INDEXED BY runs_by_owner
      WHERE owner IN (SELECT value FROM json_each(:owners)) AND {of_statuses} AND {filters})

-- name: runs_by_prefix
-- Runs whose id starts so; the upper end is the prefix with the last character there is. The order is told in a way that
-- no index has: with it, SQLite goes through all runs in that order.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT * FROM runs
      WHERE id >= :prefix AND id < :prefix || char(1114111) AND {of_statuses} AND {conditions}
        AND +created_at >= :since AND (+created_at, +id) < (:before_at, :before_id)
      ORDER BY +created_at DESC, +id DESC LIMIT :limit)

-- name: runs_of_prefix
-- The same where many ids start so: from the newest on. Of those that do not, the index tells, without the run.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT runs.*
      FROM runs AS place INDEXED BY runs_newest CROSS JOIN runs ON runs.id = place.id
      WHERE place.id >= :prefix AND place.id < :prefix || char(1114111)
        AND place.created_at >= :since AND (place.created_at, place.id) < (:before_at, :before_id)
        AND {of_statuses} AND {conditions}
      ORDER BY place.created_at DESC, place.id DESC LIMIT :limit)

-- name: runs_by_tag
-- Runs with some tags: those with the first one, in the order of its index, that have the others too.
SELECT CAST(json_group_array({run_json}) AS BLOB)
FROM (SELECT runs.*
      FROM tags INDEXED BY tags_by_value CROSS JOIN runs ON runs.id = tags.run_id
      WHERE tags.name = :tag AND tags.value = :tag_value
        AND tags.at >= :since AND (tags.at, tags.run_id) < (:before_at, :before_id)
        AND {of_statuses} AND {conditions}
      ORDER BY tags.at DESC, tags.run_id DESC LIMIT :limit)
