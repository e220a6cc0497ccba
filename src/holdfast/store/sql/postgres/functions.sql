-- Every function of the schema, in the order in which they were made. `-- function:` starts one, up to the next.
-- Migrations create them by name, as {name}, and never change them: one that changes gets the next number and a migration
-- that creates it, and the old one stays for as long as min_version allows code that calls it.
--
-- Their statements take row locks in the order of run ids; whoever needs other locks as well takes them before (queues,
-- in order) or after (questions, mail of a locked run). Those that are called from outside have a search_path of their
-- own (see store/postgres/path.py).

-- function: durable_1
-- The commit that follows is on disk before it is acknowledged, whatever server and role say. Stronger stays.
CREATE FUNCTION {schema}.durable_1() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- function: land_1
-- Say that an attempt of a call has changed the user's own tables, in the transaction that did. False: another one has,
-- or it was given up.
CREATE FUNCTION {schema}.land_1(run_id text, key text, attempt bigint, result text, at bigint)
RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {schema}.durable_1();
    INSERT INTO {schema}.landed AS l VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT ON CONSTRAINT landed_pkey
    DO UPDATE SET attempt = excluded.attempt, result = excluded.result, at = excluded.at
    WHERE l.result IS NULL AND l.attempt < excluded.attempt;
    RETURN FOUND;
END $$;

-- function: landed_1
-- The result of the attempt that landed. If none did, neither this one nor one before it can from now on. One that is
-- just being committed is waited for. In two statements: the second one sees what the first one waited for.
CREATE FUNCTION {schema}.landed_1(run_id text, key text, attempt bigint, at bigint)
RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {schema}.durable_1();
    INSERT INTO {schema}.landed AS l VALUES ($1, $2, $3, NULL, $4)
    ON CONFLICT ON CONSTRAINT landed_pkey
    DO UPDATE SET attempt = greatest(l.attempt, excluded.attempt), at = excluded.at
    WHERE l.result IS NULL;
    RETURN (SELECT l.result FROM {schema}.landed AS l WHERE l.run_id = $1 AND l.key = $2);
END $$;

-- function: append_3
-- Append to runs, each where epoch, owner and head match. What became of each, by its place:
-- 0 committed, 1 was committed before, 2 fenced, 3 diverged, 4 unread, 5 refused (an amendment).
-- `seizes`: NULL for an owner's append; else an amendment of a run that nobody owns, or, if true, that somebody does.
-- `again`: an earlier commit of the same appends may have succeeded.
-- Ids must come in order. Records and blobs say by place whose they are.
CREATE FUNCTION {schema}.append_3(
    ids text[], updated_ats bigint[], reasons text[], turns bigint[], head_seqs bigint[], head_hashes bytea[],
    summaries text[], digests text[], progresses boolean[], epochs bigint[], base_seqs bigint[], base_hashes bytea[],
    owners text[], statuses text[], wake_ats bigint[], releases boolean[], mails bigint[], seizes boolean[],
    again boolean,
    record_places int[], record_seqs bigint[], record_epochs bigint[], record_turns bigint[], record_keys text[],
    record_kinds text[], record_names text[], record_attempts bigint[], record_ticks bigint[], record_ats bigint[],
    record_tooks bigint[], record_args_digests text[], record_args text[], record_payloads text[],
    record_hashes bytea[],
    blob_places int[], blob_digests text[], blob_chunks bigint[], blob_data bytea[]
) RETURNS smallint[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    a record;
    stored record;
    outcomes smallint[];
    outcome smallint;
    written int[];
    is_stored boolean;
BEGIN
    PERFORM {schema}.durable_1();
    FOR a IN
        SELECT * FROM unnest(ids, updated_ats, reasons, turns, head_seqs, head_hashes, summaries, digests,
                             progresses, epochs, base_seqs, base_hashes, owners, statuses, wake_ats, releases, mails,
                             seizes) WITH ORDINALITY
            AS v (id, updated_at, reason, turn, head_seq, head_hash, summary, digest, progress, epoch, base_seq,
                  base_hash, owner, status, wake_at, release, mail, seize, place)
    LOOP
        IF a.seize IS NULL THEN
            UPDATE {schema}.runs AS r
            SET updated_at = a.updated_at, reason = a.reason, turn = a.turn, head_seq = a.head_seq,
                head_hash = a.head_hash, summary = a.summary, digest = a.digest,
                claims = CASE WHEN a.progress THEN 0 ELSE r.claims END, status = a.status, wake_at = a.wake_at,
                owner = CASE WHEN a.release THEN NULL ELSE r.owner END,
                moved = CASE WHEN r.status = a.status AND NOT a.release THEN r.moved ELSE pg_current_xact_id()::text::bigint END
            WHERE r.id = a.id AND r.epoch = a.epoch AND r.head_seq = a.base_seq AND r.head_hash = a.base_hash
              AND r.owner = a.owner AND r.mail = coalesce(a.mail, r.mail);
        ELSE
            UPDATE {schema}.runs AS r
            SET updated_at = a.updated_at, reason = a.reason, turn = a.turn, head_seq = a.head_seq,
                head_hash = a.head_hash, summary = a.summary, digest = a.digest, claims = 0, epoch = a.epoch,
                status = a.status, wake_at = a.wake_at, owner = NULL, moved = pg_current_xact_id()::text::bigint
            WHERE r.id = a.id AND r.epoch = a.epoch - 1 AND r.head_seq = a.base_seq AND r.head_hash = a.base_hash
              AND (a.seize OR r.owner IS NULL) AND r.mail = coalesce(a.mail, r.mail);
        END IF;
        IF FOUND THEN
            outcome := 0;
            written := written || a.place::int;
        ELSE
            SELECT r.epoch, r.head_seq, r.head_hash, r.owner, r.digest INTO stored
            FROM {schema}.runs AS r WHERE r.id = a.id;
            -- Its own head is stored: it was committed before, by a commit whose outcome nobody learned. Without
            -- records the head says nothing. Only its owner gives a run up, so that is what an earlier commit did.
            is_stored := FOUND AND stored.epoch = a.epoch AND stored.head_seq = a.head_seq
                AND stored.head_hash = a.head_hash
                AND (a.base_seq <> a.head_seq OR stored.digest = a.digest
                     OR (again AND a.seize IS NULL AND a.release AND stored.owner IS NULL));
            -- So it was if the next one of the same batch is there already.
            IF NOT is_stored AND stored.epoch = a.epoch AND a.seize IS NULL AND stored.head_seq > a.head_seq
               AND a.base_seq <> a.head_seq THEN
                is_stored := EXISTS (SELECT 1 FROM {schema}.records AS l
                                     WHERE l.run_id = a.id AND l.seq = a.head_seq AND l.hash = a.head_hash);
            END IF;
            IF a.seize IS NOT NULL THEN
                outcome := CASE WHEN again AND is_stored THEN 1 ELSE 5 END;
            ELSIF stored.epoch IS NULL OR stored.epoch <> a.epoch THEN
                outcome := 2;
            ELSIF is_stored THEN
                outcome := 1;
                -- Known to be on disk is only what a later commit has synced, so this one writes something.
                UPDATE {schema}.runs AS r SET updated_at = r.updated_at WHERE r.id = a.id;
            ELSIF stored.owner IS NULL OR stored.owner IS DISTINCT FROM a.owner THEN
                outcome := 2;
            ELSIF stored.head_seq = a.base_seq AND stored.head_hash = a.base_hash THEN
                outcome := 4;
            ELSE
                outcome := 3;
            END IF;
        END IF;
        outcomes := outcomes || outcome;
    END LOOP;
    IF written IS NULL THEN
        RETURN outcomes;
    END IF;
    INSERT INTO {schema}.records (run_id, seq, epoch, turn, key, kind, name, attempt, tick, at, took,
                                  args_digest, args, payload, hash)
    SELECT ids[v.place], v.seq, v.epoch, v.turn, v.key, v.kind, v.name, v.attempt, v.tick, v.at, v.took,
           v.args_digest, v.args, v.payload, v.hash
    FROM unnest(record_places, record_seqs, record_epochs, record_turns, record_keys, record_kinds, record_names,
                record_attempts, record_ticks, record_ats, record_tooks, record_args_digests, record_args,
                record_payloads, record_hashes)
        AS v (place, seq, epoch, turn, key, kind, name, attempt, tick, at, took, args_digest, args, payload, hash)
    WHERE cardinality(written) = cardinality(ids) OR v.place = ANY (written);
    IF cardinality(blob_places) > 0 THEN
        -- The digest names the content, so one that is there already is the same.
        INSERT INTO {schema}.blobs (run_id, digest, chunk, data)
        SELECT ids[v.place], v.digest, v.chunk, v.data
        FROM unnest(blob_places, blob_digests, blob_chunks, blob_data) AS v (place, digest, chunk, data)
        WHERE v.place = ANY (written)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN outcomes;
END $$;

-- function: create_2
-- Store new runs with their records. By place: 0 stored, 1 the id exists, 2 the run it is done for is somebody else's.
-- Ids must come in order, each once.
CREATE FUNCTION {schema}.create_2(
    ids text[], thread_ids text[], agents text[], nonces text[], parent_ids text[], queues text[], queue_keys text[],
    priorities bigint[], created_ats bigint[], updated_ats bigint[], statuses text[], reasons text[],
    wake_ats bigint[], turns bigint[], epochs bigint[], head_seqs bigint[], head_hashes bytea[],
    input_digests text[], summaries text[], owners text[], claims_of bigint[], mails bigint[], digests text[],
    fence_ids text[], fence_epochs bigint[], fence_owners text[],
    record_places int[], record_seqs bigint[], record_epochs bigint[], record_turns bigint[], record_keys text[],
    record_kinds text[], record_names text[], record_attempts bigint[], record_ticks bigint[], record_ats bigint[],
    record_tooks bigint[], record_args_digests text[], record_args text[], record_payloads text[],
    record_hashes bytea[],
    blob_places int[], blob_digests text[], blob_chunks bigint[], blob_data bytea[]
) RETURNS smallint[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    outcomes smallint[] := array_fill(0::smallint, ARRAY[cardinality(ids)]);
    made text[];
    fenced int[];
    written int[];
BEGIN
    PERFORM {schema}.durable_1();
    IF cardinality(array_remove(fence_ids, NULL)) > 0 THEN
        -- Locked before anything is stored, and in order: nobody takes such a run over until this is committed.
        PERFORM 1 FROM {schema}.runs WHERE id = ANY (fence_ids) ORDER BY id FOR SHARE;
        SELECT array_agg(v.place) INTO fenced
        FROM unnest(fence_ids, fence_epochs, fence_owners) WITH ORDINALITY AS v (id, epoch, owner, place)
        WHERE v.id IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM {schema}.runs AS r
            WHERE r.id = v.id AND r.epoch = v.epoch AND r.owner IS NOT DISTINCT FROM v.owner);
    END IF;
    WITH new AS (
        INSERT INTO {schema}.runs (id, thread_id, agent, nonce, parent_id, queue, queue_key, priority, created_at,
                                   updated_at, status, reason, wake_at, turn, epoch, head_seq, head_hash,
                                   input_digest, summary, owner, claims, mail, digest)
        SELECT v.id, v.thread_id, v.agent, v.nonce, v.parent_id, v.queue, v.queue_key, v.priority, v.created_at,
               v.updated_at, v.status, v.reason, v.wake_at, v.turn, v.epoch, v.head_seq, v.head_hash,
               v.input_digest, v.summary, v.owner, v.claims, v.mail, v.digest
        FROM unnest(ids, thread_ids, agents, nonces, parent_ids, queues, queue_keys, priorities, created_ats,
                    updated_ats, statuses, reasons, wake_ats, turns, epochs, head_seqs, head_hashes,
                    input_digests, summaries, owners, claims_of, mails, digests) WITH ORDINALITY
            AS v (id, thread_id, agent, nonce, parent_id, queue, queue_key, priority, created_at, updated_at, status,
                  reason, wake_at, turn, epoch, head_seq, head_hash, input_digest, summary, owner, claims, mail,
                  digest, place)
        WHERE fenced IS NULL OR v.place <> ALL (fenced)
        ON CONFLICT DO NOTHING
        RETURNING id)
    SELECT array_agg(id) INTO made FROM new;
    IF made IS NOT NULL AND cardinality(made) = cardinality(ids) THEN
        INSERT INTO {schema}.records (run_id, seq, epoch, turn, key, kind, name, attempt, tick, at, took,
                                      args_digest, args, payload, hash)
        SELECT ids[v.place], v.seq, v.epoch, v.turn, v.key, v.kind, v.name, v.attempt, v.tick, v.at, v.took,
               v.args_digest, v.args, v.payload, v.hash
        FROM unnest(record_places, record_seqs, record_epochs, record_turns, record_keys, record_kinds,
                    record_names, record_attempts, record_ticks, record_ats, record_tooks, record_args_digests,
                    record_args, record_payloads, record_hashes)
            AS v (place, seq, epoch, turn, key, kind, name, attempt, tick, at, took, args_digest, args, payload,
                  hash);
        SELECT array_agg(place) INTO written FROM generate_series(1, cardinality(ids)) AS place;
    ELSE
        SELECT array_agg(CASE WHEN v.id = ANY (made) THEN 0 WHEN v.place = ANY (fenced) THEN 2 ELSE 1 END::smallint
                         ORDER BY v.place),
               array_agg(v.place) FILTER (WHERE v.id = ANY (made))
        INTO outcomes, written
        FROM unnest(ids) WITH ORDINALITY AS v (id, place);
        INSERT INTO {schema}.records (run_id, seq, epoch, turn, key, kind, name, attempt, tick, at, took,
                                      args_digest, args, payload, hash)
        SELECT ids[v.place], v.seq, v.epoch, v.turn, v.key, v.kind, v.name, v.attempt, v.tick, v.at, v.took,
               v.args_digest, v.args, v.payload, v.hash
        FROM unnest(record_places, record_seqs, record_epochs, record_turns, record_keys, record_kinds,
                    record_names, record_attempts, record_ticks, record_ats, record_tooks, record_args_digests,
                    record_args, record_payloads, record_hashes)
            AS v (place, seq, epoch, turn, key, kind, name, attempt, tick, at, took, args_digest, args, payload,
                  hash)
        WHERE v.place = ANY (written);
    END IF;
    IF cardinality(blob_places) > 0 THEN
        INSERT INTO {schema}.blobs (run_id, digest, chunk, data)
        SELECT ids[v.place], v.digest, v.chunk, v.data
        FROM unnest(blob_places, blob_digests, blob_chunks, blob_data) AS v (place, digest, chunk, data)
        WHERE v.place = ANY (written)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN outcomes;
END $$;

-- function: claim_3
-- Take runs over, each if its own conditions hold, in the order given; by place, whether it was. NULL: its queue is locked.
-- `waits`: for runs that somebody is writing to; else those are left. `again` as for append_1.
-- Limits are by queue: of a limited queue only one claimer decides at a time, in the whole database, for milliseconds.
CREATE FUNCTION {schema}.claim_3(
    ids text[], queues text[], queue_keys text[], updated_ats bigint[], statuses text[], reasons text[],
    wake_ats bigint[], turns bigint[], epochs bigint[], head_seqs bigint[], head_hashes bytea[],
    summaries text[], digests text[], expected_epochs bigint[], expected_owners text[],
    claimer text, waits boolean, again boolean, limit_queues text[], limit_alls bigint[], limit_keys bigint[]
) RETURNS boolean[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    won boolean[] := array_fill(false, ARRAY[cardinality(ids)]);
    fitting int[];
    taken int[];
    taken_ids text[] := '{}';
    limited text[];
    locked text[] := '{}';
    give_up timestamptz := clock_timestamp() + interval '1 second';
    in_queue jsonb := '{}';
    in_key jsonb := '{}';
    c record;
    place int;
    found_queue bigint;
    found_key bigint;
BEGIN
    PERFORM {schema}.durable_1();
    SELECT array_agg(DISTINCT queue COLLATE "C" ORDER BY queue COLLATE "C") INTO limited
    FROM unnest(queues) AS queue WHERE queue = ANY (limit_queues);
    IF limited IS NOT NULL THEN
        FOR place IN 1 .. cardinality(limited) LOOP
            WHILE NOT pg_try_advisory_xact_lock(hashtextextended('holdfast queue {schema} ' || limited[place], 0)) LOOP
                IF clock_timestamp() > give_up THEN -- whoever has it is no claimer
                    locked := locked || limited[place];
                    EXIT;
                END IF;
                PERFORM pg_sleep(0.001);
            END LOOP;
        END LOOP;
        SELECT coalesce(jsonb_object_agg(of_queue.queue, of_queue.owned), '{}') INTO in_queue
        FROM (SELECT r.queue, count(*) AS owned FROM {schema}.runs AS r
              WHERE r.owner IS NOT NULL AND r.queue = ANY (limited) GROUP BY r.queue) AS of_queue;
        SELECT coalesce(jsonb_object_agg(of_key.name, of_key.owned), '{}') INTO in_key
        FROM (SELECT r.queue || chr(1) || r.queue_key AS name, count(*) AS owned FROM {schema}.runs AS r
              WHERE r.owner IS NOT NULL AND r.queue = ANY (limited) AND r.queue_key = ANY (queue_keys)
              GROUP BY r.queue, r.queue_key) AS of_key;
    END IF;
    IF again THEN
        FOR place IN
            SELECT v.place
            FROM unnest(ids, epochs, digests) WITH ORDINALITY AS v (id, epoch, digest, place)
            JOIN {schema}.runs AS r ON r.id = v.id AND r.epoch = v.epoch AND r.owner = claimer AND r.digest = v.digest
        LOOP
            won[place] := true;
        END LOOP;
    END IF;
    IF waits THEN
        PERFORM 1 FROM {schema}.runs WHERE id = ANY (ids) ORDER BY id FOR NO KEY UPDATE;
    END IF;
    SELECT array_agg(f.place) INTO fitting
    FROM (SELECT v.place
          FROM unnest(ids, epochs, head_seqs, head_hashes, expected_epochs, expected_owners) WITH ORDINALITY
              AS v (id, epoch, head_seq, head_hash, expected_epoch, expected_owner, place)
          JOIN {schema}.runs AS r
            ON r.id = v.id AND v.epoch > v.expected_epoch AND r.epoch = v.expected_epoch
           AND r.owner IS NOT DISTINCT FROM v.expected_owner AND r.head_seq = v.head_seq AND r.head_hash = v.head_hash
          FOR NO KEY UPDATE OF r SKIP LOCKED) AS f;
    IF fitting IS NULL THEN
        RETURN won;
    END IF;
    FOR c IN
        SELECT v.id, v.queue, v.queue_key, v.expected_owner, v.place, l.most, l.most_of_key,
               l.queue IS NOT NULL AS is_limited
        FROM unnest(ids, queues, queue_keys, expected_owners) WITH ORDINALITY
            AS v (id, queue, queue_key, expected_owner, place)
        LEFT JOIN unnest(limit_queues, limit_alls, limit_keys) AS l (queue, most, most_of_key) ON l.queue = v.queue
        WHERE v.place = ANY (fitting)
        ORDER BY v.place
    LOOP
        CONTINUE WHEN c.id = ANY (taken_ids); -- of several claims of one run, the first that fits is the one
        IF c.is_limited AND c.expected_owner IS NULL THEN -- a run that changes hands is counted already
            IF c.queue = ANY (locked) THEN
                won[c.place] := NULL;
                CONTINUE;
            END IF;
            found_queue := coalesce((in_queue ->> c.queue)::bigint, 0);
            found_key := coalesce((in_key ->> (c.queue || chr(1) || c.queue_key))::bigint, 0);
            CONTINUE WHEN found_queue >= c.most OR found_key >= c.most_of_key;
            in_queue := in_queue || jsonb_build_object(c.queue, found_queue + 1);
            in_key := in_key || jsonb_build_object(c.queue || chr(1) || c.queue_key, found_key + 1);
        END IF;
        taken_ids := taken_ids || c.id;
        taken := taken || c.place::int;
        won[c.place] := true;
    END LOOP;
    UPDATE {schema}.runs AS r
    SET updated_at = v.updated_at, status = v.status, reason = v.reason, wake_at = v.wake_at,
        turn = v.turn, epoch = v.epoch, summary = v.summary, digest = v.digest, owner = claimer,
        claims = r.claims + 1, moved = pg_current_xact_id()::text::bigint
    FROM unnest(ids, updated_ats, statuses, reasons, wake_ats, turns, epochs, summaries, digests) WITH ORDINALITY
        AS v (id, updated_at, status, reason, wake_at, turn, epoch, summary, digest, place)
    WHERE r.id = v.id AND v.place = ANY (taken);
    RETURN won;
END $$;

-- function: deliver_3
-- Write what was decided about mail for runs that this transaction has locked.
CREATE FUNCTION {schema}.deliver_3(
    mail_ids text[], mail_numbers bigint[], mail_kinds text[], mail_keys text[], mail_bodies text[], mail_ats bigint[],
    mail_digests text[], mail_dedups text[],
    counted_ids text[], counts bigint[],
    woken_ids text[], woken_mails bigint[], updated_ats bigint[], statuses text[], reasons text[], wake_ats bigint[],
    turns bigint[], summaries text[], digests text[],
    question_ids text[], question_keys text[], states text[], decided_ats bigint[], decided_bys text[], notes text[]
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO {schema}.mailbox (run_id, number, kind, key, body, at, digest, dedup)
    SELECT * FROM unnest(mail_ids, mail_numbers, mail_kinds, mail_keys, mail_bodies, mail_ats, mail_digests,
                         mail_dedups);
    IF cardinality(counted_ids) > 0 THEN
        UPDATE {schema}.runs AS r SET mail = v.mail
        FROM unnest(counted_ids, counts) AS v (id, mail) WHERE r.id = v.id;
    END IF;
    IF cardinality(woken_ids) > 0 THEN
        UPDATE {schema}.runs AS r
        SET mail = v.mail, updated_at = v.updated_at, status = v.status, reason = v.reason, wake_at = v.wake_at,
            turn = v.turn, summary = v.summary, digest = v.digest, moved = pg_current_xact_id()::text::bigint
        FROM unnest(woken_ids, woken_mails, updated_ats, statuses, reasons, wake_ats, turns, summaries, digests)
            AS v (id, mail, updated_at, status, reason, wake_at, turn, summary, digest)
        WHERE r.id = v.id AND r.owner IS NULL;
    END IF;
    IF cardinality(question_ids) > 0 THEN
        UPDATE {schema}.questions AS q
        SET state = v.state, decided_at = v.decided_at, decided_by = v.decided_by, note = v.note
        FROM unnest(question_ids, question_keys, states, decided_ats, decided_bys, notes)
            AS v (run_id, key, state, decided_at, decided_by, note)
        WHERE q.run_id = v.run_id AND q.key = v.key AND q.state = 'open';
    END IF;
END $$;

-- function: is_owned_1
-- Whether a run is this owner's in this epoch, and stays so until the commit.
CREATE FUNCTION {schema}.is_owned_1(run_id text, of_epoch bigint, by_owner text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    stored record;
BEGIN
    SELECT r.epoch, r.owner INTO stored FROM {schema}.runs AS r WHERE r.id = run_id FOR SHARE;
    RETURN FOUND AND stored.epoch = of_epoch AND stored.owner IS NOT DISTINCT FROM by_owner;
END $$;

-- function: open_question_1
-- Store a question; one that is open and shows something else is changed, any other is left. False: fenced.
CREATE FUNCTION {schema}.open_question_1(
    id text, run_id text, key text, body text, shown text, asked_at bigint, due_at bigint, state text,
    decided_at bigint, decided_by text, note text, digest text, fence_id text, fence_epoch bigint, fence_owner text
) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {schema}.durable_1();
    IF fence_id IS NOT NULL AND NOT {schema}.is_owned_1(fence_id, fence_epoch, fence_owner) THEN
        RETURN false;
    END IF;
    INSERT INTO {schema}.questions AS q
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
    ON CONFLICT ON CONSTRAINT questions_pkey DO UPDATE
    SET id = excluded.id, body = excluded.body, shown = excluded.shown, asked_at = excluded.asked_at,
        due_at = excluded.due_at, digest = excluded.digest
    WHERE q.state = 'open' AND q.shown <> excluded.shown;
    RETURN true;
END $$;

-- function: close_question_1
-- Decide a question that is still open. False: fenced.
CREATE FUNCTION {schema}.close_question_1(
    of_run text, of_key text, new_state text, at bigint, fence_id text, fence_epoch bigint, fence_owner text
) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {schema}.durable_1();
    IF fence_id IS NOT NULL AND NOT {schema}.is_owned_1(fence_id, fence_epoch, fence_owner) THEN
        RETURN false;
    END IF;
    UPDATE {schema}.questions AS q SET state = new_state, decided_at = at, decided_by = NULL, note = ''
    WHERE q.run_id = of_run AND q.key = of_key AND q.state = 'open';
    RETURN true;
END $$;

-- function: define_1
-- Write definitions, each over the revision it was made from; by place, whether it was.
CREATE FUNCTION {schema}.define_1(
    kinds text[], names text[], bodies text[], due_ats bigint[], revisions bigint[], again boolean
) RETURNS boolean[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    d record;
    won boolean[] := array_fill(false, ARRAY[cardinality(kinds)]);
BEGIN
    PERFORM {schema}.durable_1();
    -- Locked in order first; then written in the order given, which may have two revisions of one name.
    PERFORM 1 FROM {schema}.definitions AS t
    JOIN (SELECT DISTINCT * FROM unnest(kinds, names)) AS v (kind, name) ON t.kind = v.kind AND t.name = v.name
    ORDER BY t.kind, t.name FOR UPDATE OF t;
    FOR d IN
        SELECT * FROM unnest(kinds, names, bodies, due_ats, revisions) WITH ORDINALITY
            AS v (kind, name, body, due_at, revision, place)
    LOOP
        IF d.revision = 1 THEN
            INSERT INTO {schema}.definitions (kind, name, body, due_at, revision)
            VALUES (d.kind, d.name, d.body, d.due_at, d.revision) ON CONFLICT DO NOTHING;
        ELSE
            UPDATE {schema}.definitions AS t SET body = d.body, due_at = d.due_at, revision = d.revision
            WHERE t.kind = d.kind AND t.name = d.name AND t.revision = d.revision - 1;
        END IF;
        won[d.place] := FOUND OR (again AND EXISTS (
            SELECT 1 FROM {schema}.definitions AS t
            WHERE t.kind = d.kind AND t.name = d.name AND t.body = d.body AND t.due_at IS NOT DISTINCT FROM d.due_at
              AND t.revision = d.revision));
    END LOOP;
    RETURN won;
END $$;

-- function: append_messages_1
-- Say something in a thread, all of it under the next numbers. First and last number, and 1; 0 instead if it was said
-- before, under this dedup id. NULL: fenced. The thread's row is locked after the run that it is done for.
CREATE FUNCTION {schema}.append_messages_1(
    of_thread text, bodies text[], at bigint, by_whom text, upto bigint, said_as text, digests text[],
    fence_id text, fence_epoch bigint, fence_owner text
) RETURNS bigint[] LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    before bigint;
    known record;
BEGIN
    PERFORM {schema}.durable_1();
    IF fence_id IS NOT NULL AND NOT {schema}.is_owned_1(fence_id, fence_epoch, fence_owner) THEN
        RETURN NULL;
    END IF;
    LOOP -- it may be removed between the two
        INSERT INTO {schema}.thread_heads (id, last, summary, covers, created_at, updated_at)
        VALUES (of_thread, 0, 0, 0, at, at) ON CONFLICT ON CONSTRAINT thread_heads_pkey DO NOTHING;
        SELECT t.last INTO before FROM {schema}.thread_heads AS t WHERE t.id = of_thread FOR UPDATE;
        EXIT WHEN FOUND;
    END LOOP;
    SELECT min(m.number) AS first, max(m.number) AS last INTO known
    FROM {schema}.thread_messages AS m WHERE m.thread_id = of_thread AND m.dedup = said_as;
    IF known.first IS NOT NULL THEN
        -- Known to be on disk is only what a later commit has synced, so this one writes something.
        UPDATE {schema}.thread_heads AS t SET updated_at = t.updated_at WHERE t.id = of_thread;
        RETURN ARRAY[known.first, known.last, 0];
    END IF;
    INSERT INTO {schema}.thread_messages AS m (thread_id, number, body, at, author, covers, dedup, digest)
    SELECT of_thread, before + v.place, v.body, $3, by_whom, upto, said_as, v.digest
    FROM unnest(bodies, digests) WITH ORDINALITY AS v (body, digest, place);
    UPDATE {schema}.thread_heads AS t
    SET last = before + cardinality(bodies), updated_at = at,
        summary = CASE WHEN upto IS NULL THEN t.summary ELSE before + cardinality(bodies) END,
        covers = coalesce(upto, t.covers)
    WHERE t.id = of_thread;
    RETURN ARRAY[before + 1, before + cardinality(bodies), 1];
END $$;
