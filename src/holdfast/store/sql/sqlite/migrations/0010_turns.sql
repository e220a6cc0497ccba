-- A part of a run is a turn of its loop, and is called so everywhere.
ALTER TABLE runs RENAME COLUMN generation TO turn;
ALTER TABLE records RENAME COLUMN generation TO turn;
