-- Runs with turns: what a resume reads of them, and their checkpoints.

-- name: records_of_turn
-- What a resume reads of a run with turns: the prologue, and what follows on the last checkpoint.
SELECT CAST(json_group_array(json_array({record_values})) AS BLOB)
FROM (SELECT * FROM records WHERE run_id = ?1 AND seq <= ?2
      UNION ALL SELECT * FROM records WHERE run_id = ?1 AND seq >= ?3 ORDER BY seq)

-- name: checkpoints
-- The next checkpoints of a run, or that of one turn, with the hash before each.
SELECT CAST(json_group_array(json_array({record_values}, (
    SELECT hex(p.hash) FROM records AS p WHERE p.run_id = c.run_id AND p.seq = c.seq - 1))) AS BLOB)
FROM (SELECT * FROM records
      WHERE run_id = ? AND kind = 'checkpoint' AND key = coalesce(?, key) AND seq > ? ORDER BY seq LIMIT ?) AS c

-- name: mail_of_numbers
-- Some mail for a run, in the order of acceptance.
SELECT CAST(json_group_array({mail_json}) AS BLOB)
FROM (SELECT * FROM mailbox WHERE run_id = ? AND number IN (SELECT value FROM json_each(?)) ORDER BY number)
