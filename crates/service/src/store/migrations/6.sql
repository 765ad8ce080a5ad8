-- Ages are counted in the time that the node has seen, which no setting of the wall clock changes. What was there before has the
-- wall clock's times, with which the time seen begins.
CREATE TABLE clock (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    boot TEXT NOT NULL,
    boot_ms INTEGER NOT NULL,
    wall_ms INTEGER NOT NULL,
    node_ms INTEGER NOT NULL,
    jumped_ms INTEGER
) STRICT;
ALTER TABLE history ADD COLUMN node_ms INTEGER NOT NULL DEFAULT 0;
UPDATE history SET node_ms = ended_ms;
CREATE INDEX history_by_age ON history (node_ms);
ALTER TABLE jobs ADD COLUMN node_ms INTEGER;
UPDATE jobs SET node_ms = ended_ms;
ALTER TABLE tokens ADD COLUMN expires_node_ms INTEGER;
ALTER TABLE logins ADD COLUMN expires_node_ms INTEGER;
-- The ends of deliveries and the times of idempotency keys are times seen from now on.
