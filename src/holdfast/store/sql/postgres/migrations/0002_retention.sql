-- min_version: 1
-- When a run was emptied; NULL: it has all it had.
ALTER TABLE {schema}.runs ADD COLUMN pruned_at bigint;

-- What can be pruned. By created_at, which no append changes: so appends do not touch this index.
CREATE INDEX runs_ended ON {schema}.runs (agent, created_at, id)
    WHERE status IN ('done', 'failed', 'cancelled') AND pruned_at IS NULL;
-- What can be forgotten.
CREATE INDEX runs_pruned ON {schema}.runs (id, pruned_at, agent) WHERE pruned_at IS NOT NULL;
