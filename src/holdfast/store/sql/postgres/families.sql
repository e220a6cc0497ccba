-- name: family_use
-- What a run and all that came of it have used, without one of them: limit, tokens, cost, steps, how many, how many live.
WITH RECURSIVE family (id) AS (
    SELECT $1::text COLLATE "C"
    UNION
    SELECT runs.id FROM family JOIN {schema}.runs AS runs ON runs.parent_id = family.id),
used (said, status) AS (
    SELECT runs.summary::json, runs.status
    FROM family JOIN {schema}.runs AS runs ON runs.id = family.id WHERE runs.id <> $2)
SELECT (SELECT summary FROM {schema}.runs WHERE id = $1),
    coalesce(sum((said ->> 'input_tokens')::float8), 0) + coalesce(sum((said ->> 'output_tokens')::float8), 0),
    coalesce(sum((said ->> 'cost')::float8), 0),
    coalesce(sum((said ->> 'steps')::float8), 0) + coalesce(sum((said ->> 'effects')::float8), 0),
    count(*),
    count(*) FILTER (WHERE status NOT IN ('done', 'failed', 'cancelled'))
FROM used

-- name: family_rows
-- A run and all that came of it, each with its summary and status: for a family with a row that cannot be summed here.
WITH RECURSIVE family (id) AS (
    SELECT $1::text COLLATE "C"
    UNION
    SELECT runs.id FROM family JOIN {schema}.runs AS runs ON runs.parent_id = family.id)
SELECT runs.id, runs.summary, runs.status FROM family JOIN {schema}.runs AS runs ON runs.id = family.id
