-- Runs with turns: what a resume reads of them, and their checkpoints.

-- name: records_of_turn
-- What a resume reads of a run with turns: the prologue, and what follows on the last checkpoint.
SELECT {record_columns} FROM {schema}.records WHERE run_id = $1 AND seq <= $2
UNION ALL SELECT {record_columns} FROM {schema}.records WHERE run_id = $1 AND seq >= $3 ORDER BY seq

-- name: checkpoints
-- The next checkpoints of a run, or that of one turn, with the hash before each.
SELECT {record_columns}, (
    SELECT p.hash FROM {schema}.records AS p WHERE p.run_id = c.run_id AND p.seq = c.seq - 1)
FROM {schema}.records AS c
WHERE run_id = $1 AND kind = 'checkpoint' AND key = coalesce($2, key) AND seq > $3 ORDER BY seq LIMIT $4

-- name: mail_of_numbers
-- Some mail for a run, in the order of acceptance.
SELECT {mail_columns} FROM {schema}.mailbox WHERE run_id = $1 AND number = ANY ($2::bigint[]) ORDER BY number
