-- The base: what a store of version 7 has. Stores of earlier versions are not read any more.

CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    priority INTEGER NOT NULL,
    position INTEGER NOT NULL,
    peer TEXT,
    steering TEXT NOT NULL,
    figures TEXT NOT NULL,
    submitted_ms INTEGER NOT NULL,
    due_ms INTEGER,
    finish_by_ms INTEGER,
    run INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    began_ms INTEGER,
    ended_ms INTEGER,
    error TEXT,
    changed_ms INTEGER NOT NULL,
    kept_bytes INTEGER NOT NULL DEFAULT 0,
    places TEXT,
    head TEXT,
    node_ms INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX jobs_by_state ON jobs (state, id);

CREATE TABLE labels (
    job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (job, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX labels_by_value ON labels (name, value, job);

CREATE TABLE history (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    job TEXT,
    run INTEGER,
    owner TEXT NOT NULL,
    direction TEXT NOT NULL,
    source TEXT NOT NULL,
    destination TEXT NOT NULL,
    peer TEXT,
    state TEXT NOT NULL,
    began_ms INTEGER NOT NULL,
    ended_ms INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    files INTEGER NOT NULL,
    files_failed INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    wire_bytes INTEGER NOT NULL,
    mean_bps REAL NOT NULL,
    peak_bps REAL NOT NULL,
    loss_fraction REAL NOT NULL,
    rtt_ms REAL NOT NULL,
    verdict TEXT NOT NULL,
    tree_root TEXT,
    error_code TEXT,
    error TEXT,
    report TEXT,
    curve TEXT,
    receipt TEXT,
    dry_run INTEGER NOT NULL DEFAULT 0,
    node_ms INTEGER NOT NULL DEFAULT 0,
    deleted INTEGER NOT NULL DEFAULT 0,
    UNIQUE (job, run)
) STRICT;
CREATE INDEX history_by_end ON history (ended_ms);

CREATE TABLE log (
    job TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    level TEXT NOT NULL,
    text TEXT NOT NULL,
    event TEXT NOT NULL,
    PRIMARY KEY (job, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    hash BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    reach TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    revoked_ms INTEGER,
    is_whole_by_default INTEGER NOT NULL DEFAULT 0,
    expires_node_ms INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE logins (
    hash BLOB PRIMARY KEY,
    token TEXT REFERENCES tokens (id) ON DELETE CASCADE,
    scopes TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    expires_node_ms INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX logins_by_token ON logins (token, created_ms);
CREATE INDEX logins_by_end ON logins (expires_ms);

CREATE TABLE caps (
    name TEXT PRIMARY KEY,
    spec TEXT NOT NULL,
    changed_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE watches (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    spec TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    reach TEXT NOT NULL DEFAULT '{}'
) STRICT, WITHOUT ROWID;

CREATE TABLE watch_entries (
    watch TEXT NOT NULL REFERENCES watches (id) ON DELETE CASCADE,
    path TEXT NOT NULL,
    state TEXT NOT NULL,
    entry TEXT NOT NULL,
    PRIMARY KEY (watch, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX watch_entries_by_state ON watch_entries (watch, state);

CREATE TABLE deliveries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    job TEXT NOT NULL,
    run INTEGER NOT NULL,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    body TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    due_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    outcome TEXT
) STRICT;
CREATE INDEX deliveries_open ON deliveries (kind, due_ms) WHERE ended_ms IS NULL;
CREATE INDEX deliveries_ended ON deliveries (ended_ms) WHERE ended_ms IS NOT NULL;

CREATE TABLE feeds (
    id TEXT PRIMARY KEY,
    job TEXT NOT NULL,
    run INTEGER NOT NULL,
    hook TEXT NOT NULL,
    serial INTEGER NOT NULL,
    told INTEGER NOT NULL,
    from_at INTEGER NOT NULL,
    to_at INTEGER,
    is_over INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX feeds_by_job ON feeds (job, run);

CREATE TABLE idempotency (
    owner TEXT NOT NULL,
    key TEXT NOT NULL,
    body_hash BLOB NOT NULL,
    job TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_by_time ON idempotency (at_ms);

CREATE TABLE documents (
    job TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    spec TEXT NOT NULL,
    reach TEXT NOT NULL DEFAULT '{}'
) STRICT;
CREATE INDEX jobs_to_fill ON jobs (id) WHERE head IS NULL;
CREATE INDEX history_by_job ON history (job);

CREATE TABLE clock (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    boot TEXT NOT NULL,
    boot_ms INTEGER NOT NULL,
    wall_ms INTEGER NOT NULL,
    node_ms INTEGER NOT NULL,
    jumped_ms INTEGER
) STRICT;
CREATE INDEX history_by_age ON history (node_ms);
