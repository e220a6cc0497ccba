-- min_version: 1
-- What was said in threads. A thread belongs to no run; its messages are numbered in the order of acceptance.
CREATE TABLE {schema}.thread_heads (
    id         text COLLATE "C" NOT NULL PRIMARY KEY,
    last       bigint NOT NULL, -- number of its last message
    summary    bigint NOT NULL, -- number of its last summary, 0 for none
    covers     bigint NOT NULL, -- up to where that goes
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
);

CREATE TABLE {schema}.thread_messages (
    thread_id text COLLATE "C" NOT NULL,
    number    bigint NOT NULL,
    body      text COLLATE "C" NOT NULL,
    at        bigint NOT NULL,
    author    text COLLATE "C" NOT NULL, -- the run that said it, or who else did
    covers    bigint, -- of a summary: up to where it goes
    dedup     text COLLATE "C" NOT NULL, -- of all that were said together
    digest    text COLLATE "C" NOT NULL,
    PRIMARY KEY (thread_id, number)
);

CREATE INDEX thread_heads_by_time ON {schema}.thread_heads (updated_at, id);
CREATE INDEX thread_messages_by_dedup ON {schema}.thread_messages (thread_id, dedup, number);

{append_messages_1}
