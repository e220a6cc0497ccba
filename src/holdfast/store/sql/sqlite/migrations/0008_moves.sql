-- Which commit last changed a run's status, owner or epoch: what has moved since one looked is found by it. There is one
-- writer at a time, so numbers are in the order of commits. No append of a running run writes it.
ALTER TABLE runs ADD COLUMN moved INTEGER NOT NULL DEFAULT 0;
CREATE INDEX runs_moved ON runs (moved, id);
