-- min_version: 10
-- A part of a run is a turn of its loop, and is called so everywhere. Code that knows another name is refused from here on,
-- and so what only that code calls is gone.
ALTER TABLE {schema}.runs RENAME COLUMN generation TO turn;
ALTER TABLE {schema}.records RENAME COLUMN generation TO turn;

{append_3}

{create_2}

{claim_3}

{deliver_3}

DROP FUNCTION {schema}.append_1;
DROP FUNCTION {schema}.append_2;
DROP FUNCTION {schema}.create_1;
DROP FUNCTION {schema}.claim_1;
DROP FUNCTION {schema}.claim_2;
DROP FUNCTION {schema}.deliver_1;
DROP FUNCTION {schema}.deliver_2;
