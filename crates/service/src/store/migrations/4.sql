-- A token reaches only what is named. Earlier, a token without prefixes reached everything, and a missing list of one kind everything of
-- that kind: whole tokens stay whole and are marked, so that people are warned; missing lists become empty ones.
ALTER TABLE tokens ADD COLUMN is_whole_by_default INTEGER NOT NULL DEFAULT 0;
UPDATE tokens SET is_whole_by_default = scopes NOT LIKE '%"admin"%', reach = '{"everything":true}'
    WHERE reach ->> 'local' IS NULL AND reach ->> 'peers' IS NULL;
UPDATE tokens SET reach = json_object(
        'local', json(coalesce(reach ->> 'local', '[]')), 'peers', json(coalesce(reach ->> 'peers', '{}')))
    WHERE reach ->> 'everything' IS NULL;
