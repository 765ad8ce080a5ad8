-- A job's document may be large, and is read only when the job begins or when somebody asks for it: it lies in a table of its
-- own. What lists show, and what decides who sees the job, stands beside the job. The service fills both in (`jobs::fill`).
CREATE TABLE documents (
    job TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    spec TEXT NOT NULL,
    confined TEXT
) STRICT;
INSERT INTO documents (job, spec, confined) SELECT id, spec, confined FROM jobs;
ALTER TABLE jobs DROP COLUMN spec;
ALTER TABLE jobs DROP COLUMN confined;
-- The bytes that are kept for the job: document, places and head.
ALTER TABLE jobs ADD COLUMN kept_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN places TEXT;
ALTER TABLE jobs ADD COLUMN head TEXT;
CREATE INDEX jobs_to_fill ON jobs (id) WHERE head IS NULL;
CREATE INDEX history_by_job ON history (job);
