-- min_version: 1
-- Times are microseconds since the epoch; hashes are 16 bytes; reason and summary are JSON text, not jsonb: what comes
-- back must be what was hashed, and jsonb refuses \u0000. Text is compared by its bytes, as everywhere else.
-- The key of every table that belongs to a run starts with the run's id, so all of them can be distributed by it.
--
-- Functions have a version in their name: one that changes gets a new name, and the old one stays for as long as
-- min_version allows code that calls it. Their statements take row locks in the order of run ids; whoever needs other
-- locks as well takes them before (queues, in order) or after (questions, mail of a locked run).
-- Those that are called from outside have a search_path of their own (see store/postgres_path.py).

CREATE TABLE {schema}.migrations (
    number      bigint PRIMARY KEY,
    name        text NOT NULL,
    applied_at  bigint NOT NULL,
    sha256      text NOT NULL,
    min_version bigint NOT NULL -- the oldest code, by the last migration it knows, that may still work with this schema
);

CREATE TABLE {schema}.runs (
    id           text COLLATE "C" NOT NULL PRIMARY KEY,
    thread_id    text COLLATE "C" NOT NULL,
    agent        text COLLATE "C" NOT NULL,
    nonce        text COLLATE "C" NOT NULL,
    parent_id    text COLLATE "C",
    queue        text COLLATE "C" NOT NULL,
    queue_key    text COLLATE "C" NOT NULL,
    priority     bigint NOT NULL,
    created_at   bigint NOT NULL,
    updated_at   bigint NOT NULL,
    status       text COLLATE "C" NOT NULL, -- no CHECK: it would be a tenth of the cost of an append, and a reader knows
    reason       text COLLATE "C",
    wake_at      bigint,
    generation   bigint NOT NULL,
    epoch        bigint NOT NULL,
    head_seq     bigint NOT NULL,
    head_hash    bytea NOT NULL,
    input_digest text COLLATE "C" NOT NULL,
    summary      text COLLATE "C" NOT NULL,
    owner        text COLLATE "C",
    claims       bigint NOT NULL DEFAULT 0,
    mail         bigint NOT NULL DEFAULT 0,
    digest       text COLLATE "C" NOT NULL
) WITH (fillfactor = 60); -- an append changes no column that an index has, so there is room for it on the same page

CREATE INDEX runs_newest ON {schema}.runs (created_at, id);
CREATE INDEX runs_by_status ON {schema}.runs (status, created_at, id);
CREATE INDEX runs_by_queue ON {schema}.runs (queue, status, created_at, id);
CREATE INDEX runs_by_agent ON {schema}.runs (agent, created_at, id);
CREATE INDEX runs_by_thread ON {schema}.runs (thread_id, created_at, id);
CREATE INDEX runs_by_parent ON {schema}.runs (parent_id, created_at, id) WHERE parent_id IS NOT NULL;
CREATE INDEX runs_by_owner ON {schema}.runs (owner) WHERE owner IS NOT NULL;
-- What the limits of queues count.
CREATE INDEX runs_owned ON {schema}.runs (queue, queue_key) WHERE owner IS NOT NULL;
-- The order in which the runs of a key are claimed.
CREATE INDEX runs_in_line ON {schema}.runs (queue, queue_key, priority DESC, wake_at, id, agent)
    WHERE status = 'queued' AND owner IS NULL AND wake_at IS NOT NULL;
-- Who may be claimed from when.
CREATE INDEX runs_by_wake ON {schema}.runs (queue, agent, status, wake_at, id)
    WHERE owner IS NULL AND wake_at IS NOT NULL;

CREATE TABLE {schema}.records (
    run_id      text COLLATE "C" NOT NULL,
    seq         bigint NOT NULL,
    epoch       bigint NOT NULL,
    generation  bigint NOT NULL,
    key         text COLLATE "C" NOT NULL,
    kind        text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    attempt     bigint NOT NULL,
    tick        bigint NOT NULL,
    at          bigint NOT NULL,
    took        bigint NOT NULL,
    args_digest text COLLATE "C" NOT NULL,
    args        text COLLATE "C",
    payload     text COLLATE "C",
    hash        bytea NOT NULL,
    PRIMARY KEY (run_id, seq)
);

CREATE TABLE {schema}.blobs (
    run_id text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    chunk  bigint NOT NULL,
    data   bytea NOT NULL,
    PRIMARY KEY (run_id, digest, chunk)
);
ALTER TABLE {schema}.blobs ALTER COLUMN data SET STORAGE EXTERNAL; -- compressed before it comes here

-- Effects on the user's own tables: the attempt that changed them, with its result; without one, those up to this
-- attempt were given up.
CREATE TABLE {schema}.landed (
    run_id  text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    attempt bigint NOT NULL,
    result  text COLLATE "C",
    at      bigint NOT NULL,
    PRIMARY KEY (run_id, key)
);

CREATE TABLE {schema}.mailbox (
    run_id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    kind   text COLLATE "C" NOT NULL,
    key    text COLLATE "C" NOT NULL,
    body   text COLLATE "C" NOT NULL,
    at     bigint NOT NULL,
    digest text COLLATE "C" NOT NULL,
    dedup  text COLLATE "C",
    PRIMARY KEY (run_id, number)
);

CREATE UNIQUE INDEX mailbox_by_dedup ON {schema}.mailbox (run_id, dedup) WHERE dedup IS NOT NULL;

CREATE TABLE {schema}.questions (
    id         text COLLATE "C" NOT NULL,
    run_id     text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    body       text COLLATE "C" NOT NULL,
    shown      text COLLATE "C" NOT NULL,
    asked_at   bigint NOT NULL,
    due_at     bigint,
    state      text COLLATE "C" NOT NULL CHECK (state IN ('open', 'answered', 'declined', 'expired', 'withdrawn')),
    decided_at bigint,
    decided_by text COLLATE "C",
    note       text COLLATE "C" NOT NULL,
    digest     text COLLATE "C" NOT NULL,
    PRIMARY KEY (run_id, key)
);

CREATE INDEX questions_by_id ON {schema}.questions (id);
CREATE INDEX questions_open ON {schema}.questions (asked_at, id) WHERE state = 'open';

-- What follows belongs to no run: every node of a distributed database would have all of it.

CREATE TABLE {schema}.definitions (
    kind     text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL,
    body     text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    due_at   bigint,
    PRIMARY KEY (kind, name)
);

CREATE INDEX definitions_due ON {schema}.definitions (kind, due_at, name) WHERE due_at IS NOT NULL;

CREATE TABLE {schema}.workers (
    id             text COLLATE "C" NOT NULL PRIMARY KEY,
    pid            bigint NOT NULL,
    host           text COLLATE "C" NOT NULL,
    boot_id        text COLLATE "C" NOT NULL,
    started_at     bigint NOT NULL,
    lease_until_ms bigint NOT NULL, -- by this database's clock
    renewed_on     bigint,          -- the start of the server that the lease was renewed on
    lock_key       bigint,          -- of the advisory lock that the worker's own session holds; NULL: it has none
    backend_pid    bigint,          -- that session …
    backend_start  bigint,
    server_start   bigint,          -- … and the server it is of
    let_go         boolean NOT NULL DEFAULT false -- its process said that it is gone
) WITH (fillfactor = 50);

{durable_1}

{land_1}

{landed_1}

{append_1}

{create_1}

{claim_1}

{deliver_1}

{is_owned_1}

{open_question_1}

{close_question_1}

{define_1}
