-- A job and a watch keep what their owner may reach, here and at peers: one value, as in the table of tokens. Before, they
-- kept the directories of this host alone. The reach of a token never changes, so it is still what it was. What belongs to
-- a token that is not known any more reaches nothing.
ALTER TABLE documents ADD COLUMN reach TEXT NOT NULL DEFAULT '{}';
UPDATE documents SET reach = coalesce((
    SELECT coalesce(
        (SELECT tokens.reach FROM tokens WHERE 'token:' || tokens.id = jobs.owner),
        iif(jobs.owner LIKE 'token:%' OR documents.confined IS NOT NULL, '{}', '{"everything":true}'))
    FROM jobs WHERE jobs.id = documents.job), '{}');
ALTER TABLE documents DROP COLUMN confined;

ALTER TABLE watches ADD COLUMN reach TEXT NOT NULL DEFAULT '{}';
UPDATE watches SET reach = coalesce(
    (SELECT tokens.reach FROM tokens WHERE 'token:' || tokens.id = watches.owner),
    iif(owner LIKE 'token:%' OR confined IS NOT NULL, '{}', '{"everything":true}'));
ALTER TABLE watches DROP COLUMN confined;
