-- min_version: 1
-- By status too, so that a page, a count and a histogram of an agent cost what they show. Without the runs that are
-- running, as runs_by_queue: most are so only for a moment.
DROP INDEX {schema}.runs_by_agent;
CREATE INDEX runs_by_agent ON {schema}.runs (agent, status, created_at, id) WHERE status <> 'running';
-- Pages of all questions.
CREATE INDEX questions_newest ON {schema}.questions (asked_at, id);
