-- Promises 1 and 2: a step is recorded at most once, positions are 0, 1, 2 ...  C-22, C-27, C-31.
-- Method: the journal's functions as somebody would call them in psql, one after another.
-- Control: a plain INSERT under a taken name or position is refused by the table itself.
SELECT seq, inserted, stored FROM bide.insert('run-1', 'model:0', '\x00ff');
SELECT seq, inserted, stored FROM bide.insert('run-1', 'tool:0', '');
SELECT seq, inserted, stored FROM bide.insert('run-1', 'model:0', 'another');
SELECT seq, inserted, stored FROM bide.insert_json('run-1', 'model:1', '{"path": "C:\\temp",  "text": "a\nb"}');
SELECT seq, inserted, stored FROM bide.insert_json('run-1', 'model:1', 'null');
SELECT name, seq, inserted FROM bide.insert_many('run-1', ARRAY['b', 'tool:0', 'a', 'b'], ARRAY['1', '2', '3', '4']::bytea[]);

SELECT seq, data, recorded_at IS NOT NULL AS dated FROM bide.get('run-1', 'tool:0');
SELECT seq, data FROM bide.get('run-1', 'never');
SELECT seq, name, pg_catalog.convert_from(data, 'UTF8') AS data FROM bide.load('run-1', after => 1, max_rows => 2);
SELECT bide.next_seq('run-1'), bide.next_seq('run-without-steps');

-- A position that rolls back is given again.
SET bide.transaction_block = allow;
BEGIN;
SELECT seq, inserted FROM bide.insert('run-2', 'rolled back', '');
ROLLBACK;
RESET bide.transaction_block;
SELECT seq, inserted FROM bide.insert('run-2', 'run:complete', '');
SELECT seq, inserted FROM bide.insert('run-10', 'model:0', '');
SELECT run_id FROM bide.runs();
SELECT run_id FROM bide.runs(after => 'run-1', max_rows => 1);
SELECT run_id FROM bide.runs(prefix => 'run-1');

SELECT bide.purge_finished(pg_catalog.now() - INTERVAL '1 day'), bide.purge_finished('infinity');
SELECT bide.purge_run('run-10', force => true), bide.purge_run('run-10');
SELECT run_id FROM bide.runs();

SELECT bide.from_cbor(bide.to_cbor('{"a": [1, 2.5, "x", null, true]}'));
SELECT bide.schema_version(), bide.check_schema(bide.schema_version());

\set VERBOSITY sqlstate
-- The control.
INSERT INTO bide.steps (run_id, seq, name, data) VALUES ('run-1', 99, 'model:0', '');
INSERT INTO bide.steps (run_id, seq, name, data) VALUES ('run-1', 0, 'new', '');

-- What is refused, and how.
SELECT bide.insert(NULL, 'n', '');
SELECT bide.insert('', 'n', '');
SELECT bide.insert(pg_catalog.repeat('r', 1025), 'n', '');
SELECT bide.insert('r', 'n', '', fence => -1);
SELECT bide.insert('r', 'n', '', fence => 1);
SELECT bide.insert('r', 'n', '', publish => 'topic');
SELECT bide.insert('r', 'n', '', wake => true);
SELECT bide.insert('r', 'n', '', store => 'none');
SELECT bide.insert_many('r', ARRAY['a'], ARRAY[]::bytea[]);
SELECT bide.load('r', max_rows => 0);
SELECT bide.purge_run('run-1');
SELECT bide.check_schema(-1);
BEGIN;
SELECT bide.insert('r', 'n', '');
ROLLBACK;
SELECT run_id FROM bide.runs();
