-- Makes the tables of a PostgreSQL store that belong to runs into hash partitions by the run's id, and the messages of
-- threads by the thread's: eight of each.
--
-- Stop all workers, take a backup, make sure that there is space for a second copy, then:
--     psql --single-transaction --set ON_ERROR_STOP=1 --file partition.sql URL
--
-- The tables keep their names, owners and grants, so Holdfast needs no change. Tables in another schema: replace
-- holdfast below.

DO $$
DECLARE
    part pg_catalog.record;
    granted pg_catalog.record;
    owner pg_catalog.name;
    key_name pg_catalog.name;
BEGIN
    -- Names below are PostgreSQL's own, whatever others have put into the schemas of the caller's path.
    SET LOCAL search_path = pg_catalog, pg_temp;
    FOR part IN
        SELECT * FROM (VALUES ('runs', 'id', 'WITH (fillfactor = 60)'), ('records', 'run_id', ''),
                              ('blobs', 'run_id', ''), ('chunks', 'run_id', ''), ('mailbox', 'run_id', ''),
                              ('questions', 'run_id', ''), ('thread_messages', 'thread_id', ''))
            AS t (name, key, settings)
    LOOP
        EXECUTE format('ALTER TABLE holdfast.%I RENAME TO %I', part.name, part.name || '_before');
        EXECUTE format('CREATE TABLE holdfast.%I (LIKE holdfast.%I INCLUDING ALL) PARTITION BY HASH (%I)',
                       part.name, part.name || '_before', part.key);
        SELECT pg_get_userbyid(c.relowner) INTO STRICT owner
        FROM pg_class AS c WHERE c.oid = format('holdfast.%I', part.name || '_before')::regclass;
        EXECUTE format('ALTER TABLE holdfast.%I OWNER TO %I', part.name, owner);
        FOR remainder IN 0..7 LOOP
            EXECUTE format('CREATE TABLE holdfast.%I PARTITION OF holdfast.%I '
                           'FOR VALUES WITH (MODULUS 8, REMAINDER %s) %s',
                           part.name || '_' || remainder, part.name, remainder, part.settings);
            EXECUTE format('ALTER TABLE holdfast.%I OWNER TO %I', part.name || '_' || remainder, owner);
        END LOOP;
        FOR granted IN
            SELECT a.privilege_type AS what, a.is_grantable,
                   CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS whom
            FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
            WHERE c.oid = format('holdfast.%I', part.name || '_before')::regclass AND a.grantee <> c.relowner
        LOOP
            EXECUTE format('GRANT %s ON TABLE holdfast.%I TO %s %s', granted.what, part.name, granted.whom,
                           CASE WHEN granted.is_grantable THEN 'WITH GRANT OPTION' ELSE '' END);
        END LOOP;
        EXECUTE format('INSERT INTO holdfast.%I SELECT * FROM holdfast.%I', part.name, part.name || '_before');
        EXECUTE format('DROP TABLE holdfast.%I', part.name || '_before');
        SELECT conname INTO STRICT key_name FROM pg_constraint
        WHERE conrelid = ('holdfast.' || part.name)::regclass AND contype = 'p';
        EXECUTE format('ALTER TABLE holdfast.%I RENAME CONSTRAINT %I TO %I',
                       part.name, key_name, part.name || '_pkey'); -- functions of the schema know it by this name
    END LOOP;
END $$;
