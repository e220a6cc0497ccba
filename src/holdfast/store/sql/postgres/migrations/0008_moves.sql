-- min_version: 1
-- Which transaction last changed a run's status, owner or epoch: what has moved since one looked is found by it. Numbers of
-- transactions are not in the order of commits: a reader begins again at the oldest that was under way. No append of a
-- running run changes it, so those stay on their page.
ALTER TABLE {schema}.runs ADD COLUMN moved bigint NOT NULL DEFAULT 0;
ALTER TABLE {schema}.runs ALTER COLUMN moved SET DEFAULT pg_current_xact_id()::text::bigint;
CREATE INDEX runs_moved ON {schema}.runs (moved, id);

{append_2}

{claim_2}

{deliver_2}
