// Calls bide through node-pg with ordinary parameters; prints what came back, as JSON, for test_node_pg.py.
// Argument: {"connection": {...}, "run": "...", "awkward": "..."}.
import { createRequire } from 'node:module';

// import knows nothing of NODE_PATH, require does.
const pg = createRequire(import.meta.url)('pg');

const { connection, run, awkward } = JSON.parse(process.argv[2]);
const client = new pg.Client(connection);
await client.connect();

const rows = async (text, values = []) => (await client.query(text, values)).rows;
const refusal = async (text, values = []) => {
  try {
    await client.query(text, values);
    return null;
  } catch (error) {
    return { code: error.code, detail: error.detail, hint: error.hint };
  }
};
const hex = (rows, key) => rows.map((row) => ({ ...row, [key]: row[key] && row[key].toString('hex') }));
const named = (name, text, values) => client.query({ name, text, values }).then((result) => result.rows);

const insert = 'SELECT seq, inserted, stored FROM bide.insert($1, $2, $3)';
const insertJson = 'SELECT seq, inserted, stored FROM bide.insert_json($1, $2, $3)';
const report = {};

report.insert = hex(await rows(insert, [run, 'bytes', Buffer.from([0, 255, 92])]), 'stored');
report.taken = hex(await rows(insert, [run, 'bytes', Buffer.from('other')]), 'stored');
report.empty = hex(await rows(insert, [run, 'no bytes', Buffer.alloc(0)]), 'stored');
report.prepared = hex(await named('insert', insert, [run, 'prepared', Buffer.from('p')]), 'stored');
report.prepared_again = hex(await named('insert', insert, [run, 'prepared 2', Buffer.from('p')]), 'stored');

// An object is sent as JSON by the driver; a string that is JSON already goes as it is.
report.json = await rows(insertJson, [run, 'json', { text: awkward }]);
report.json_taken = await rows(insertJson, [run, 'json', {}]);
report.json_text = await rows(insertJson, [run, 'json text', JSON.stringify(awkward)]);
report.json_text_bytes = hex(await rows('SELECT data FROM bide.get($1, $2)', [run, 'json text']), 'data');

report.many = await rows('SELECT name, seq, inserted FROM bide.insert_many($1, $2, $3)', [
  run, ['m1', 'bytes', awkward], [Buffer.from('1'), Buffer.alloc(0), Buffer.from([0, 34, 44, 92])],
]);
report.get = hex(await rows('SELECT seq, data, recorded_at FROM bide.get($1, $2)', [run, awkward]), 'data');
report.recorded_at_is_date = (await rows('SELECT recorded_at FROM bide.get($1, $2)', [run, 'm1']))[0].recorded_at instanceof Date;
report.load = hex(await rows('SELECT seq, name, data FROM bide.load($1, $2, $3)', [run, 5, 10]), 'data');
report.runs = await rows('SELECT run_id FROM bide.runs(after => $1, prefix => $2, exclude_holding => $3, lease_lapsed => $4, max_rows => $5)', ['', run, ['no such step'], false, 10]);
report.next_seq = await rows('SELECT bide.next_seq($1)', [run]);
report.schema_version = await rows('SELECT bide.schema_version()');
report.check_schema = (await rows('SELECT FROM bide.check_schema($1)', [1])).length;
report.version = await rows('SELECT bide.version()');
report.cbor = await rows('SELECT bide.from_cbor(bide.to_cbor($1)) AS value', [{ a: [1, 'é'] }]);
report.grant_access = (await rows('SELECT FROM bide.grant_access($1, $2)', ['pg_monitor', 'reader'])).length;

await client.query('BEGIN');
report.in_block = await refusal(insert, [run, 'in a block', Buffer.from('')]);
await client.query('ROLLBACK');
report.null_run = await refusal(insert, [null, 'step', Buffer.from('')]);

report.purge_finished = await rows('SELECT bide.purge_finished($1, $2)', [new Date(0), 10]);
report.purged = (await rows('SELECT bide.purge_run($1, $2)', [run, true])).length;
report.left = await rows('SELECT seq FROM bide.load($1)', [run]);

await client.end();
console.log(JSON.stringify(report));
