-- Without the runs that are running: most runs are so only for a moment, and each would be entered and taken out again.
DROP INDEX runs_by_queue;
CREATE INDEX runs_by_queue ON runs (queue, status, created_at, id) WHERE status <> 'running';
