-- Bad input is a clear error with detail and hint, and changes nothing.  C-35, C-36, C-37, C-116, C-171.
-- Method: each refusal once, in full, as a user reads it; then the journal is still empty.
-- Control: the last call, without a fault, is recorded.
SELECT bide.insert(NULL, 'n', '');
SELECT bide.insert('r', NULL, '');
SELECT bide.insert('r', 'n', NULL);
SELECT bide.insert('', 'n', '');
SELECT bide.insert('r', pg_catalog.repeat('n', 1001), '');
SELECT bide.insert('r', 'n', '', fence => NULL);
SELECT bide.insert('r', 'n', '', fence => -1);
SELECT bide.insert('r', 'n', '', fence => 7);
SELECT bide.insert('r', 'n', '', publish => 'topic');
SELECT bide.insert('r', 'n', '', wake => true);
SELECT bide.insert('r', 'n', '', store => 'other');
SELECT bide.insert_many('r', ARRAY['a', 'b'], ARRAY['']::bytea[]);
SELECT bide.insert_many('r', ARRAY['a', NULL], ARRAY['', '']::bytea[]);
SELECT bide.load('r', max_rows => 0);
SELECT bide.runs(max_rows => 10001);
SELECT bide.purge_finished(NULL);
SELECT bide.check_schema(2);
SELECT bide.grant_access('nobody here', 'reader');
SELECT bide.grant_access('pg_monitor', 'owner');

SET bide.max_data = 4;
SELECT bide.insert('r', 'n', 'hello');
RESET bide.max_data;

BEGIN;
SELECT bide.insert('r', 'n', '');
ROLLBACK;
BEGIN READ ONLY;
SELECT bide.insert('r', 'n', '');
ROLLBACK;

SET bide.transaction_block = allow;
SET bide.max_run_locks = 2;
SELECT count(*) FROM pg_catalog.generate_series(1, 3) AS g, bide.insert('r' || g, 'n', '');
RESET bide.max_run_locks;
RESET bide.transaction_block;

SELECT bide.from_cbor('\x8201');
SELECT bide.from_cbor('\x4100');
SELECT bide.from_cbor('\xf97e00');
SELECT bide.to_cbor('0.10000000000000000000001');
SELECT bide.to_cbor((pg_catalog.repeat('[', 200) || pg_catalog.repeat(']', 200))::jsonb);

SELECT count(*) FROM bide.steps;

-- The reasons that lie in the tables.
UPDATE bide.schema_version SET version = 2;
SELECT bide.insert('r', 'n', '');
UPDATE bide.schema_version SET version = 0;
SELECT bide.insert('r', 'n', '');
DELETE FROM bide.schema_version;
SELECT bide.insert('r', 'n', '');
INSERT INTO bide.schema_version (id, version) VALUES (1, 1);
ALTER TABLE bide.steps DROP CONSTRAINT steps_run_id_seq_key;
SELECT bide.insert('r', 'n', '');
ALTER TABLE bide.steps ADD CONSTRAINT steps_run_id_seq_key UNIQUE (run_id, seq);
ALTER TABLE bide.steps SET UNLOGGED;
SELECT bide.insert('r', 'n', '');
ALTER TABLE bide.steps SET LOGGED;
SELECT seq, inserted FROM bide.insert('r', 'n', '\x00');
SELECT seq, inserted, stored FROM bide.insert_json('r', 'n', '1');
SELECT bide.purge_run('r');
SELECT bide.purge_run('r', force => true);
