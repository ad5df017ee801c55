-- Schema 1. Times are whole microseconds since 1970, so that they compare exactly; ids and JSON are text, so that a person
-- can read a queue with the sqlite3 shell. Everything has the prefix qo_: a queue may live in an application's own file.

CREATE TABLE qo_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE qo_tasks (
    pk INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    requires TEXT NOT NULL,            -- capabilities, sorted, joined by commas; '' for none
    state TEXT NOT NULL,
    ready INTEGER NOT NULL,            -- 1: pending and in the ready index. Due tasks are moved in by claim
    priority,                          -- 'high', 'medium', 'low' or an integer
    rank INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    scheduled_at INTEGER NOT NULL,
    available_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    started_at INTEGER,
    completed_at INTEGER,
    attempt INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    max_retries INTEGER NOT NULL,
    timeout REAL,
    retry TEXT,                        -- NULL: the default policy
    key TEXT,
    key_until INTEGER,
    tags TEXT NOT NULL,
    trace TEXT,
    unsaid TEXT,                       -- joined by commas, NULL for none
    lease_id TEXT,
    settled_lease TEXT,
    lease_expires_at INTEGER,
    worker_id TEXT,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    archived_from TEXT,
    version INTEGER NOT NULL,
    progress TEXT,
    input TEXT,                        -- NULL: large, kept in qo_inputs
    output TEXT,
    error TEXT
);

CREATE UNIQUE INDEX qo_tasks_id ON qo_tasks (id);
-- One lane after the other, each in the order of claiming.
CREATE INDEX qo_tasks_ready ON qo_tasks (queue, type, requires, rank, id, priority) WHERE ready = 1;
CREATE INDEX qo_tasks_delayed ON qo_tasks (queue, type, requires, available_at, priority) WHERE ready = 0 AND state = 'pending';
-- What runs, by lease. Expired ones are found by going through it: there are only as many as run at once, and an index
-- of its own would cost every task two more changes.
CREATE INDEX qo_tasks_lease ON qo_tasks (lease_id, lease_expires_at) WHERE lease_id IS NOT NULL;
CREATE INDEX qo_tasks_ended ON qo_tasks (queue, state, completed_at) WHERE completed_at IS NOT NULL;

-- SQLite writes a whole row anew with every update, so a large input stands aside: a renewal must not copy a megabyte.
CREATE TABLE qo_inputs (task INTEGER PRIMARY KEY, input TEXT NOT NULL);

-- One row a transition, except that the row which ends an attempt also tells when it was claimed: one insert a run
-- instead of two. The claim of a task that runs now is in qo_tasks.
CREATE TABLE qo_history (
    task INTEGER NOT NULL,
    version INTEGER NOT NULL,          -- of the record after the transition
    claimed_at INTEGER,                -- for the end of an attempt
    at INTEGER NOT NULL,
    was TEXT,
    became TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    lease_id TEXT,
    worker_id TEXT,
    actor TEXT,
    error TEXT,
    PRIMARY KEY (task, version)
) WITHOUT ROWID;

CREATE TABLE qo_keys (
    queue TEXT NOT NULL,
    key TEXT NOT NULL,
    task_id TEXT NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (queue, key)
) WITHOUT ROWID;

-- How many tasks there are of each kind, kept by every transaction, so that stats never count rows.
CREATE TABLE qo_counts (
    queue TEXT NOT NULL,
    type TEXT NOT NULL,
    priority,
    state TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (queue, type, priority, state)
) WITHOUT ROWID;

CREATE TABLE qo_records (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    version INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (kind, key)
) WITHOUT ROWID;
