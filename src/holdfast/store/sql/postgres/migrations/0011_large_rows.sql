-- min_version: 1
-- In SQLite, mail and large values get tables that are made for long rows. PostgreSQL keeps long values apart by itself,
-- compressed; what is compressed already need not be tried.
ALTER TABLE {schema}.blobs ALTER COLUMN data SET STORAGE EXTERNAL;
