-- name: family_use
-- What a run and all that came of it have used, without one of them: limit, tokens, cost, steps, how many, how many live.
WITH RECURSIVE family (id) AS (
    SELECT :owner
    UNION
    SELECT runs.id FROM family JOIN runs INDEXED BY runs_by_parent ON runs.parent_id = family.id)
SELECT CAST(json_group_array(json_array(
    (SELECT summary FROM runs WHERE id = :owner), tokens, cost, steps, count, live)) AS BLOB)
FROM (
    SELECT total(summary ->> '$.input_tokens') + total(summary ->> '$.output_tokens') AS tokens,
        total(summary ->> '$.cost') AS cost,
        total(summary ->> '$.steps') + total(summary ->> '$.effects') AS steps,
        count(*) AS count,
        count(*) FILTER (WHERE status NOT IN ('done', 'failed', 'cancelled')) AS live
    -- A row that is damaged holds up nobody but itself.
    FROM (SELECT status, CASE WHEN json_valid(summary) THEN summary ELSE '{}' END AS summary
          FROM family JOIN runs ON runs.id = family.id WHERE runs.id <> :asks))
