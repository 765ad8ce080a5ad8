PRAGMA foreign_keys = OFF;
PRAGMA application_id = 1181248098;
PRAGMA user_version = 7;
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
    changed_ms INTEGER NOT NULL
, kept_bytes INTEGER NOT NULL DEFAULT 0, places TEXT, head TEXT, node_ms INTEGER) STRICT, WITHOUT ROWID;
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
    receipt TEXT, dry_run INTEGER NOT NULL DEFAULT 0, node_ms INTEGER NOT NULL DEFAULT 0, deleted INTEGER NOT NULL DEFAULT 0,
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
    revoked_ms INTEGER
, is_whole_by_default INTEGER NOT NULL DEFAULT 0, expires_node_ms INTEGER) STRICT, WITHOUT ROWID;
CREATE TABLE logins (
    hash BLOB PRIMARY KEY,
    token TEXT REFERENCES tokens (id) ON DELETE CASCADE,
    scopes TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL
, expires_node_ms INTEGER) STRICT, WITHOUT ROWID;
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
    created_ms INTEGER NOT NULL
, reach TEXT NOT NULL DEFAULT '{}') STRICT, WITHOUT ROWID;
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
    reach TEXT NOT NULL DEFAULT '{}') STRICT;
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
INSERT INTO jobs VALUES ('0000000000000000', 'local', 'copy', 'queued', 5, 1767225600000, NULL, '{}', '{"files":0,"bytes":0,"deleted":0,"wire_bytes":0,"seconds":0.0,"peak_bps":0.0}', 1767225600000, NULL, NULL, 1, 0, NULL, NULL, NULL, 1767225600000, 1142, 'lzero:1000
lnull:', '{"kind":"copy","sources":["zero:1000"],"source_count":1,"destination":"null:","direction":"local","policy":"fair","dry_run":false,"smooth":false,"labels":{"run":"0"},"webhook_dry_run":false}', NULL);
INSERT INTO jobs VALUES ('0000000000000001', 'token:0707070707', 'copy', 'waiting', 5, 1767225600000, NULL, '{}', '{"files":0,"bytes":0,"deleted":0,"wire_bytes":0,"seconds":0.0,"peak_bps":0.0}', 1767225600000, 1767225660000, NULL, 1, 0, NULL, NULL, NULL, 1767225600000, 1156, 'lzero:1000
lnull:', '{"kind":"copy","sources":["zero:1000"],"source_count":1,"destination":"null:","direction":"local","policy":"fair","dry_run":false,"smooth":false,"labels":{"run":"1"},"webhook_dry_run":false}', NULL);
INSERT INTO jobs VALUES ('0000000000000002', 'local', 'copy', 'running', 5, 1767225600000, NULL, '{"rate_bps":null}', '{"files":1,"bytes":1000,"deleted":0,"wire_bytes":0,"seconds":0.0,"peak_bps":0.0}', 1767225600000, NULL, NULL, 1, 1, 1767225600001, NULL, NULL, 1767225600000, 1142, 'lzero:1000
lnull:', '{"kind":"copy","sources":["zero:1000"],"source_count":1,"destination":"null:","direction":"local","policy":"fair","dry_run":false,"smooth":false,"labels":{"run":"2"},"webhook_dry_run":false}', NULL);
INSERT INTO jobs VALUES ('0000000000000003', 'token:0707070707', 'copy', 'paused', 5, 1767225600000, NULL, '{}', '{"files":1,"bytes":1000,"deleted":0,"wire_bytes":0,"seconds":0.0,"peak_bps":0.0}', 1767225600000, NULL, NULL, 1, 1, 1767225600001, NULL, NULL, 1767225600000, 1204, 'lzero:1000
lnull:', '{"kind":"copy","sources":["zero:1000"],"source_count":1,"destination":"null:","direction":"local","policy":"fair","dry_run":false,"smooth":false,"labels":{"run":"3"},"webhook_dry_run":false,"repeat":{"every":"1h"}}', NULL);
INSERT INTO jobs VALUES ('0000000000000004', 'local', 'copy', 'retrying', 5, 1767225600000, NULL, '{}', '{"files":1,"bytes":1000,"deleted":0,"wire_bytes":0,"seconds":0.0,"peak_bps":0.0}', 1767225600000, 1767225660000, NULL, 1, 1, 1767225600001, NULL, '{"text":"no space left","code":"FH-NO-SPACE","blame":"host","exit_code":6,"retryable":false,"hint":"make some"}', 1767225600000, 1142, 'lzero:1000
lnull:', '{"kind":"copy","sources":["zero:1000"],"source_count":1,"destination":"null:","direction":"local","policy":"fair","dry_run":false,"smooth":false,"labels":{"run":"4"},"webhook_dry_run":false}', NULL);
INSERT INTO jobs VALUES ('0000000000000005', 'token:0707070707', 'copy', 'done', 5, 1767225600000, NULL, '{}', '{"files":1,"bytes":1000,"deleted":0,"wire_bytes":0,"seconds":0.0,"peak_bps":0.0}', 1767225600000, NULL, NULL, 1, 1, 1767225600001, 1767225600002, NULL, 1767225600000, 1156, 'lzero:1000
lnull:', '{"kind":"copy","sources":["zero:1000"],"source_count":1,"destination":"null:","direction":"local","policy":"fair","dry_run":false,"smooth":false,"labels":{"run":"5"},"webhook_dry_run":false}', 1767225600002);
INSERT INTO jobs VALUES ('0000000000000006', 'local', 'copy', 'partly_failed', 5, 1767225600000, NULL, '{}', '{"files":1,"bytes":1000,"deleted":0,"wire_bytes":0,"seconds":0.0,"peak_bps":0.0}', 1767225600000, NULL, NULL, 1, 1, 1767225600001, 1767225600002, NULL, 1767225600000, 1142, 'lzero:1000
lnull:', '{"kind":"copy","sources":["zero:1000"],"source_count":1,"destination":"null:","direction":"local","policy":"fair","dry_run":false,"smooth":false,"labels":{"run":"6"},"webhook_dry_run":false}', 1767225600002);
INSERT INTO jobs VALUES ('0000000000000007', 'token:0707070707', 'copy', 'failed', 5, 1767225600000, NULL, '{}', '{"files":1,"bytes":1000,"deleted":0,"wire_bytes":0,"seconds":0.0,"peak_bps":0.0}', 1767225600000, NULL, NULL, 1, 1, 1767225600001, 1767225600002, '{"text":"no space left","code":"FH-NO-SPACE","blame":"host","exit_code":6,"retryable":false,"hint":"make some"}', 1767225600000, 1156, 'lzero:1000
lnull:', '{"kind":"copy","sources":["zero:1000"],"source_count":1,"destination":"null:","direction":"local","policy":"fair","dry_run":false,"smooth":false,"labels":{"run":"7"},"webhook_dry_run":false}', 1767225600002);
INSERT INTO jobs VALUES ('0000000000000008', 'local', 'copy', 'cancelled', 5, 1767225600000, NULL, '{}', '{"files":1,"bytes":1000,"deleted":0,"wire_bytes":0,"seconds":0.0,"peak_bps":0.0}', 1767225600000, NULL, NULL, 1, 1, 1767225600001, 1767225600002, NULL, 1767225600000, 1142, 'lzero:1000
lnull:', '{"kind":"copy","sources":["zero:1000"],"source_count":1,"destination":"null:","direction":"local","policy":"fair","dry_run":false,"smooth":false,"labels":{"run":"8"},"webhook_dry_run":false}', 1767225600002);
INSERT INTO jobs VALUES ('0000000000000009', 'token:0707070707', 'copy', 'stopped', 5, 1767225600000, NULL, '{}', '{"files":1,"bytes":1000,"deleted":0,"wire_bytes":0,"seconds":0.0,"peak_bps":0.0}', 1767225600000, NULL, NULL, 1, 1, 1767225600001, 1767225600002, NULL, 1767225600000, 1156, 'lzero:1000
lnull:', '{"kind":"copy","sources":["zero:1000"],"source_count":1,"destination":"null:","direction":"local","policy":"fair","dry_run":false,"smooth":false,"labels":{"run":"9"},"webhook_dry_run":false}', 1767225600002);
INSERT INTO labels VALUES ('0000000000000000', 'run', '0');
INSERT INTO labels VALUES ('0000000000000001', 'run', '1');
INSERT INTO labels VALUES ('0000000000000002', 'run', '2');
INSERT INTO labels VALUES ('0000000000000003', 'run', '3');
INSERT INTO labels VALUES ('0000000000000004', 'run', '4');
INSERT INTO labels VALUES ('0000000000000005', 'run', '5');
INSERT INTO labels VALUES ('0000000000000006', 'run', '6');
INSERT INTO labels VALUES ('0000000000000007', 'run', '7');
INSERT INTO labels VALUES ('0000000000000008', 'run', '8');
INSERT INTO labels VALUES ('0000000000000009', 'run', '9');
INSERT INTO history VALUES (1, '0000000000000005', 1, 'token:0707070707', 'local', 'zero:1000', 'null:', NULL, 'done', 1767225600001, 1767225600002, 1, 1, 0, 1000, 0, 0.0, 0.0, 0.0, 0.0, '', '0000000000000000000000000000000000000000000000000000000000000000', NULL, NULL, '{"schema":1,"files":1}', '[]', '{"receipt":1}', 0, 1767225600000, 2);
INSERT INTO history VALUES (2, '0000000000000006', 1, 'local', 'local', 'zero:1000', 'null:', NULL, 'partly_failed', 1767225600001, 1767225600002, 1, 1, 0, 1000, 0, 0.0, 0.0, 0.0, 0.0, '', '0000000000000000000000000000000000000000000000000000000000000000', NULL, NULL, '{"schema":1,"files":1}', '[]', '{"receipt":1}', 0, 1767225600000, 2);
INSERT INTO history VALUES (3, '0000000000000007', 1, 'token:0707070707', 'local', 'zero:1000', 'null:', NULL, 'failed', 1767225600001, 1767225600002, 1, 1, 0, 1000, 0, 0.0, 0.0, 0.0, 0.0, '', '0000000000000000000000000000000000000000000000000000000000000000', NULL, NULL, '{"schema":1,"files":1}', '[]', '{"receipt":1}', 0, 1767225600000, 2);
INSERT INTO history VALUES (4, '0000000000000008', 1, 'local', 'local', 'zero:1000', 'null:', NULL, 'cancelled', 1767225600001, 1767225600002, 1, 1, 0, 1000, 0, 0.0, 0.0, 0.0, 0.0, '', '0000000000000000000000000000000000000000000000000000000000000000', NULL, NULL, '{"schema":1,"files":1}', '[]', '{"receipt":1}', 0, 1767225600000, 2);
INSERT INTO history VALUES (5, '0000000000000009', 1, 'token:0707070707', 'local', 'zero:1000', 'null:', NULL, 'stopped', 1767225600001, 1767225600002, 1, 1, 0, 1000, 0, 0.0, 0.0, 0.0, 0.0, '', '0000000000000000000000000000000000000000000000000000000000000000', NULL, NULL, '{"schema":1,"files":1}', '[]', '{"receipt":1}', 0, 1767225600000, 2);
INSERT INTO history VALUES (6, NULL, NULL, 'SHA256:x', 'push', '', '', '192.0.2.7', 'done', 0, 1767225600000, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, '', NULL, NULL, NULL, NULL, NULL, NULL, 0, 1767225600000, 0);
INSERT INTO log VALUES ('0000000000000000', 1, 1767225600000, 'info', 'it was accepted', '{"event":"job"}');
INSERT INTO log VALUES ('0000000000000001', 1, 1767225600000, 'info', 'it was accepted', '{"event":"job"}');
INSERT INTO log VALUES ('0000000000000002', 1, 1767225600000, 'info', 'it was accepted', '{"event":"job"}');
INSERT INTO log VALUES ('0000000000000003', 1, 1767225600000, 'info', 'it was accepted', '{"event":"job"}');
INSERT INTO log VALUES ('0000000000000004', 1, 1767225600000, 'info', 'it was accepted', '{"event":"job"}');
INSERT INTO log VALUES ('0000000000000005', 1, 1767225600000, 'info', 'it was accepted', '{"event":"job"}');
INSERT INTO log VALUES ('0000000000000006', 1, 1767225600000, 'info', 'it was accepted', '{"event":"job"}');
INSERT INTO log VALUES ('0000000000000007', 1, 1767225600000, 'info', 'it was accepted', '{"event":"job"}');
INSERT INTO log VALUES ('0000000000000008', 1, 1767225600000, 'info', 'it was accepted', '{"event":"job"}');
INSERT INTO log VALUES ('0000000000000009', 1, 1767225600000, 'info', 'it was accepted', '{"event":"job"}');
INSERT INTO tokens VALUES ('0707070707', X'0707070707070707070707070707070707070707070707070707070707070707', 'ci', '["submit","read"]', '{"everything":false,"local":["/projects/a"],"peers":{},"identities":[]}', 'local', 1767225600000, NULL, NULL, 0, NULL);
INSERT INTO logins VALUES (X'0909090909090909090909090909090909090909090909090909090909090909', NULL, '["read"]', 1767225600000, 9223372036854775807, NULL);
INSERT INTO caps VALUES ('campus', '{"rate_bps":8000000000,"peers":[],"networks":[],"principals":[],"weight":1.0,"schedule":[]}', 1767225600000);
INSERT INTO watches VALUES ('watch', 'local', '{"folder":"/nowhere/in","destination":"fh://hpc/incoming","settle":"30s","include":[],"exclude":[],"hidden":false,"after":"keep","labels":{},"options":{"network":{"cipher":"aes-128-gcm","policy":"fair","rate_bps":null,"rate_min_bps":null,"flows":1,"paths":[],"auto_paths":false,"further_paths":0,"mtu":null,"memory_bytes":268435456,"udp_only":false,"udp_ports":[33001,33100]},"files":{"overwrite":"different","delta":null,"in_place":false,"follow_growth_secs":null,"announce":false,"hard_links":null,"keep_setuid":false,"modify_window_secs":0,"no_perms":false,"no_times":false,"omit_dir_times":false,"xattrs":false,"acls":false,"specials":false,"devices":false,"follow":false,"safe_links":false,"no_links":false,"keep_dirlinks":false},"select":{"rules":[],"one_file_system":false},"integrity":{"verify":"digest","durable":"no","manifest":null},"spread":[],"dry_run":false}}', 1767225600000, '{"everything":false,"local":["/nowhere"],"peers":{},"identities":[]}');
INSERT INTO watch_entries VALUES ('watch', 'a', 'new', '{"name":"a","version":{"inode":1,"size":2,"mtime_ns":3,"ctime_ns":4},"state":"new","since_ms":1767225600000}');
INSERT INTO watch_entries VALUES ('watch', 'b', 'done', '{"name":"b","version":{"inode":1,"size":2,"mtime_ns":3,"ctime_ns":4},"state":"done","job":"0000000000000005","since_ms":1767225600000}');
INSERT INTO deliveries VALUES (1, 'delivery1', '0000000000000005', 1, 'webhook', '{}', '{}', 1, 1767225600000, NULL, NULL);
INSERT INTO deliveries VALUES (2, 'delivery2', '0000000000000005', 1, 'webhook', '{}', '', 2, 1767225600000, 1767225600000, '200');
INSERT INTO deliveries VALUES (3, 'delivery3', '0000000000000005', 1, 'program', '{}', '{}', 1, 1767225600000, NULL, NULL);
INSERT INTO feeds VALUES ('feed', '0000000000000006', 1, '{"on":"file","program":"/bin/true","args":["a"],"limit_s":60,"labels":{},"dry_run":false,"batch":{"count":1000,"bytes":262144,"wait_s":5}}', 1, 0, 0, NULL, 0);
INSERT INTO idempotency VALUES ('local', 'key', X'0101010101010101010101010101010101010101010101010101010101010101', '0000000000000000', 1767225600000);
INSERT INTO documents VALUES ('0000000000000000', '{"schema":1,"kind":"copy","sources":["zero:1000"],"destination":"null:","options":{"network":{"cipher":"aes-128-gcm","policy":"fair","rate_bps":null,"rate_min_bps":null,"flows":1,"paths":[],"auto_paths":false,"further_paths":0,"mtu":null,"memory_bytes":268435456,"udp_only":false,"udp_ports":[33001,33100]},"files":{"overwrite":"different","delta":null,"in_place":false,"follow_growth_secs":null,"announce":false,"hard_links":null,"keep_setuid":false,"modify_window_secs":0,"no_perms":false,"no_times":false,"omit_dir_times":false,"xattrs":false,"acls":false,"specials":false,"devices":false,"follow":false,"safe_links":false,"no_links":false,"keep_dirlinks":false},"select":{"rules":[],"one_file_system":false},"integrity":{"verify":"digest","durable":"no","manifest":null},"spread":[],"dry_run":false},"priority":5,"labels":{"run":"0"},"webhook_dry_run":false,"receipt":false}', '{"everything":true,"local":[],"peers":{},"identities":[]}');
INSERT INTO documents VALUES ('0000000000000001', '{"schema":1,"kind":"copy","sources":["zero:1000"],"destination":"null:","options":{"network":{"cipher":"aes-128-gcm","policy":"fair","rate_bps":null,"rate_min_bps":null,"flows":1,"paths":[],"auto_paths":false,"further_paths":0,"mtu":null,"memory_bytes":268435456,"udp_only":false,"udp_ports":[33001,33100]},"files":{"overwrite":"different","delta":null,"in_place":false,"follow_growth_secs":null,"announce":false,"hard_links":null,"keep_setuid":false,"modify_window_secs":0,"no_perms":false,"no_times":false,"omit_dir_times":false,"xattrs":false,"acls":false,"specials":false,"devices":false,"follow":false,"safe_links":false,"no_links":false,"keep_dirlinks":false},"select":{"rules":[],"one_file_system":false},"integrity":{"verify":"digest","durable":"no","manifest":null},"spread":[],"dry_run":false},"priority":5,"labels":{"run":"1"},"webhook_dry_run":false,"receipt":false}', '{"everything":false,"local":["/projects/a"],"peers":{},"identities":[]}');
INSERT INTO documents VALUES ('0000000000000002', '{"schema":1,"kind":"copy","sources":["zero:1000"],"destination":"null:","options":{"network":{"cipher":"aes-128-gcm","policy":"fair","rate_bps":null,"rate_min_bps":null,"flows":1,"paths":[],"auto_paths":false,"further_paths":0,"mtu":null,"memory_bytes":268435456,"udp_only":false,"udp_ports":[33001,33100]},"files":{"overwrite":"different","delta":null,"in_place":false,"follow_growth_secs":null,"announce":false,"hard_links":null,"keep_setuid":false,"modify_window_secs":0,"no_perms":false,"no_times":false,"omit_dir_times":false,"xattrs":false,"acls":false,"specials":false,"devices":false,"follow":false,"safe_links":false,"no_links":false,"keep_dirlinks":false},"select":{"rules":[],"one_file_system":false},"integrity":{"verify":"digest","durable":"no","manifest":null},"spread":[],"dry_run":false},"priority":5,"labels":{"run":"2"},"webhook_dry_run":false,"receipt":false}', '{"everything":true,"local":[],"peers":{},"identities":[]}');
INSERT INTO documents VALUES ('0000000000000003', '{"schema":1,"kind":"copy","sources":["zero:1000"],"destination":"null:","options":{"network":{"cipher":"aes-128-gcm","policy":"fair","rate_bps":null,"rate_min_bps":null,"flows":1,"paths":[],"auto_paths":false,"further_paths":0,"mtu":null,"memory_bytes":268435456,"udp_only":false,"udp_ports":[33001,33100]},"files":{"overwrite":"different","delta":null,"in_place":false,"follow_growth_secs":null,"announce":false,"hard_links":null,"keep_setuid":false,"modify_window_secs":0,"no_perms":false,"no_times":false,"omit_dir_times":false,"xattrs":false,"acls":false,"specials":false,"devices":false,"follow":false,"safe_links":false,"no_links":false,"keep_dirlinks":false},"select":{"rules":[],"one_file_system":false},"integrity":{"verify":"digest","durable":"no","manifest":null},"spread":[],"dry_run":false},"priority":5,"labels":{"run":"3"},"webhook_dry_run":false,"repeat":{"every":"1h"},"receipt":false}', '{"everything":false,"local":["/projects/a"],"peers":{},"identities":[]}');
INSERT INTO documents VALUES ('0000000000000004', '{"schema":1,"kind":"copy","sources":["zero:1000"],"destination":"null:","options":{"network":{"cipher":"aes-128-gcm","policy":"fair","rate_bps":null,"rate_min_bps":null,"flows":1,"paths":[],"auto_paths":false,"further_paths":0,"mtu":null,"memory_bytes":268435456,"udp_only":false,"udp_ports":[33001,33100]},"files":{"overwrite":"different","delta":null,"in_place":false,"follow_growth_secs":null,"announce":false,"hard_links":null,"keep_setuid":false,"modify_window_secs":0,"no_perms":false,"no_times":false,"omit_dir_times":false,"xattrs":false,"acls":false,"specials":false,"devices":false,"follow":false,"safe_links":false,"no_links":false,"keep_dirlinks":false},"select":{"rules":[],"one_file_system":false},"integrity":{"verify":"digest","durable":"no","manifest":null},"spread":[],"dry_run":false},"priority":5,"labels":{"run":"4"},"webhook_dry_run":false,"receipt":false}', '{"everything":true,"local":[],"peers":{},"identities":[]}');
INSERT INTO documents VALUES ('0000000000000005', '{"schema":1,"kind":"copy","sources":["zero:1000"],"destination":"null:","options":{"network":{"cipher":"aes-128-gcm","policy":"fair","rate_bps":null,"rate_min_bps":null,"flows":1,"paths":[],"auto_paths":false,"further_paths":0,"mtu":null,"memory_bytes":268435456,"udp_only":false,"udp_ports":[33001,33100]},"files":{"overwrite":"different","delta":null,"in_place":false,"follow_growth_secs":null,"announce":false,"hard_links":null,"keep_setuid":false,"modify_window_secs":0,"no_perms":false,"no_times":false,"omit_dir_times":false,"xattrs":false,"acls":false,"specials":false,"devices":false,"follow":false,"safe_links":false,"no_links":false,"keep_dirlinks":false},"select":{"rules":[],"one_file_system":false},"integrity":{"verify":"digest","durable":"no","manifest":null},"spread":[],"dry_run":false},"priority":5,"labels":{"run":"5"},"webhook_dry_run":false,"receipt":false}', '{"everything":false,"local":["/projects/a"],"peers":{},"identities":[]}');
INSERT INTO documents VALUES ('0000000000000006', '{"schema":1,"kind":"copy","sources":["zero:1000"],"destination":"null:","options":{"network":{"cipher":"aes-128-gcm","policy":"fair","rate_bps":null,"rate_min_bps":null,"flows":1,"paths":[],"auto_paths":false,"further_paths":0,"mtu":null,"memory_bytes":268435456,"udp_only":false,"udp_ports":[33001,33100]},"files":{"overwrite":"different","delta":null,"in_place":false,"follow_growth_secs":null,"announce":false,"hard_links":null,"keep_setuid":false,"modify_window_secs":0,"no_perms":false,"no_times":false,"omit_dir_times":false,"xattrs":false,"acls":false,"specials":false,"devices":false,"follow":false,"safe_links":false,"no_links":false,"keep_dirlinks":false},"select":{"rules":[],"one_file_system":false},"integrity":{"verify":"digest","durable":"no","manifest":null},"spread":[],"dry_run":false},"priority":5,"labels":{"run":"6"},"webhook_dry_run":false,"receipt":false}', '{"everything":true,"local":[],"peers":{},"identities":[]}');
INSERT INTO documents VALUES ('0000000000000007', '{"schema":1,"kind":"copy","sources":["zero:1000"],"destination":"null:","options":{"network":{"cipher":"aes-128-gcm","policy":"fair","rate_bps":null,"rate_min_bps":null,"flows":1,"paths":[],"auto_paths":false,"further_paths":0,"mtu":null,"memory_bytes":268435456,"udp_only":false,"udp_ports":[33001,33100]},"files":{"overwrite":"different","delta":null,"in_place":false,"follow_growth_secs":null,"announce":false,"hard_links":null,"keep_setuid":false,"modify_window_secs":0,"no_perms":false,"no_times":false,"omit_dir_times":false,"xattrs":false,"acls":false,"specials":false,"devices":false,"follow":false,"safe_links":false,"no_links":false,"keep_dirlinks":false},"select":{"rules":[],"one_file_system":false},"integrity":{"verify":"digest","durable":"no","manifest":null},"spread":[],"dry_run":false},"priority":5,"labels":{"run":"7"},"webhook_dry_run":false,"receipt":false}', '{"everything":false,"local":["/projects/a"],"peers":{},"identities":[]}');
INSERT INTO documents VALUES ('0000000000000008', '{"schema":1,"kind":"copy","sources":["zero:1000"],"destination":"null:","options":{"network":{"cipher":"aes-128-gcm","policy":"fair","rate_bps":null,"rate_min_bps":null,"flows":1,"paths":[],"auto_paths":false,"further_paths":0,"mtu":null,"memory_bytes":268435456,"udp_only":false,"udp_ports":[33001,33100]},"files":{"overwrite":"different","delta":null,"in_place":false,"follow_growth_secs":null,"announce":false,"hard_links":null,"keep_setuid":false,"modify_window_secs":0,"no_perms":false,"no_times":false,"omit_dir_times":false,"xattrs":false,"acls":false,"specials":false,"devices":false,"follow":false,"safe_links":false,"no_links":false,"keep_dirlinks":false},"select":{"rules":[],"one_file_system":false},"integrity":{"verify":"digest","durable":"no","manifest":null},"spread":[],"dry_run":false},"priority":5,"labels":{"run":"8"},"webhook_dry_run":false,"receipt":false}', '{"everything":true,"local":[],"peers":{},"identities":[]}');
INSERT INTO documents VALUES ('0000000000000009', '{"schema":1,"kind":"copy","sources":["zero:1000"],"destination":"null:","options":{"network":{"cipher":"aes-128-gcm","policy":"fair","rate_bps":null,"rate_min_bps":null,"flows":1,"paths":[],"auto_paths":false,"further_paths":0,"mtu":null,"memory_bytes":268435456,"udp_only":false,"udp_ports":[33001,33100]},"files":{"overwrite":"different","delta":null,"in_place":false,"follow_growth_secs":null,"announce":false,"hard_links":null,"keep_setuid":false,"modify_window_secs":0,"no_perms":false,"no_times":false,"omit_dir_times":false,"xattrs":false,"acls":false,"specials":false,"devices":false,"follow":false,"safe_links":false,"no_links":false,"keep_dirlinks":false},"select":{"rules":[],"one_file_system":false},"integrity":{"verify":"digest","durable":"no","manifest":null},"spread":[],"dry_run":false},"priority":5,"labels":{"run":"9"},"webhook_dry_run":false,"receipt":false}', '{"everything":false,"local":["/projects/a"],"peers":{},"identities":[]}');
INSERT INTO clock VALUES (1, 'boot', 1000, 1767225600000, 1767225600000, NULL);
