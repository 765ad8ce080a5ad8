-- Runs that were dry: they have brought no files and no bytes, whatever their records said.
ALTER TABLE history ADD COLUMN dry_run INTEGER NOT NULL DEFAULT 0;
UPDATE history SET dry_run = 1, files = 0, bytes = 0, mean_bps = 0, peak_bps = 0
 WHERE job IN (SELECT id FROM jobs WHERE spec ->> '$.options.dry_run');
