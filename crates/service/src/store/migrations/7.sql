-- A record says how many entries a sync has deleted.
ALTER TABLE history ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0;
