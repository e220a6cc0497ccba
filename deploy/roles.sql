-- Three roles for a PostgreSQL store, each with as little as it needs:
--
--     holdfast_owner    owns the schema and what is in it: for `holdfast migrate`, and for nothing else
--     holdfast_worker   reads and writes rows: for workers, for apps that start runs, for people who act on them
--     holdfast_reader   reads: for dashboards, and for people who look (`holdfast runs`, `holdfast show`)
--
-- As a superuser, or as the owner of the database with CREATEROLE:
--     psql --single-transaction --set ON_ERROR_STOP=1 --file roles.sql URL
-- Then give each of them a password (`\password holdfast_owner`), migrate as the owner
-- (`holdfast --db postgresql://holdfast_owner@HOST/DATABASE migrate`), and run this script once more: it takes the list of
-- migrations away from workers. It can be repeated at any time, also for a store that is in use.
--
-- Whoever writes rows can make a run do anything that its code can do: keep the worker's password as you keep the keys
-- of what your effects act on. Effects on your own tables (`hf.transaction()`) need grants of their own for
-- holdfast_worker. Tables in another schema: replace holdfast, where it stands alone, below.

DO $$
DECLARE
    role pg_catalog.name;
    made pg_catalog.record;
BEGIN
    -- Names below are PostgreSQL's own, whatever others have put into the schemas of the caller's path.
    SET LOCAL search_path = pg_catalog, pg_temp;

    FOREACH role IN ARRAY ARRAY['holdfast_owner', 'holdfast_worker', 'holdfast_reader'] LOOP
        IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = role) THEN
            EXECUTE format('CREATE ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION', role);
        END IF;
        EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), role);
    END LOOP;

    -- Others who use this database need a GRANT CONNECT of their own.
    EXECUTE format('REVOKE CONNECT, TEMPORARY, CREATE ON DATABASE %I FROM PUBLIC', current_database());
    IF to_regnamespace('public') IS NOT NULL THEN
        REVOKE CREATE ON SCHEMA public FROM PUBLIC;
    END IF;

    -- What is there, from before there were roles, becomes the owner's.
    IF to_regnamespace('holdfast') IS NULL THEN
        CREATE SCHEMA holdfast;
    END IF;
    ALTER SCHEMA holdfast OWNER TO holdfast_owner;
    FOR made IN SELECT relname AS name FROM pg_class
                WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p') LOOP
        EXECUTE format('ALTER TABLE holdfast.%I OWNER TO holdfast_owner', made.name);
    END LOOP;
    FOR made IN SELECT p.oid::regprocedure AS name FROM pg_proc AS p WHERE p.pronamespace = 'holdfast'::regnamespace LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO holdfast_owner', made.name);
    END LOOP;

    REVOKE ALL ON SCHEMA holdfast FROM PUBLIC;
    GRANT USAGE ON SCHEMA holdfast TO holdfast_worker, holdfast_reader;
    REVOKE ALL ON ALL TABLES IN SCHEMA holdfast FROM PUBLIC, holdfast_worker, holdfast_reader;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO holdfast_worker;
    GRANT SELECT ON ALL TABLES IN SCHEMA holdfast TO holdfast_reader;
    REVOKE ALL ON ALL FUNCTIONS IN SCHEMA holdfast FROM PUBLIC, holdfast_reader;
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast TO holdfast_worker;
    IF to_regclass('holdfast.migrations') IS NOT NULL THEN
        REVOKE INSERT, UPDATE, DELETE ON holdfast.migrations FROM holdfast_worker;
    END IF;

    -- What later migrations make.
    ALTER DEFAULT PRIVILEGES FOR ROLE holdfast_owner IN SCHEMA holdfast
        GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO holdfast_worker;
    ALTER DEFAULT PRIVILEGES FOR ROLE holdfast_owner IN SCHEMA holdfast GRANT SELECT ON TABLES TO holdfast_reader;
    ALTER DEFAULT PRIVILEGES FOR ROLE holdfast_owner REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
    ALTER DEFAULT PRIVILEGES FOR ROLE holdfast_owner IN SCHEMA holdfast
        GRANT EXECUTE ON FUNCTIONS TO holdfast_worker;
END $$;
