# psql calls every function: typed in, with its variables quoted, and prepared; a string survives insert_json
# byte for byte.  C-31, C-116; design.md 4.
# Method: scripts to psql's standard input, as a person or a shell script has them; what it printed is compared.
# Control: the same insert after BEGIN is refused, with the hint on the screen.

import json

import pytest

from calls import get, load_all
from functions import AWKWARD


@pytest.mark.core
def test_every_function_typed_in(cluster, conn, run):
    script = f"""
\\set run '{run}'
SELECT seq, inserted, stored FROM bide.insert(:'run', 'bytes', '\\x00ff5c');
SELECT seq, inserted, stored FROM bide.insert(:'run', 'bytes', 'other');
SELECT seq, inserted, stored FROM bide.insert(run_id => :'run', name => 'named', data => '', store => 'bide');
SELECT seq, inserted, stored FROM bide.insert_json(:'run', 'json', '{{"a":  1}}');
SELECT seq, inserted, stored FROM bide.insert_json(:'run', 'json', 'null');
SELECT name, seq, inserted
    FROM bide.insert_many(:'run', ARRAY['m1', 'json', 'm2'], ARRAY['\\x01', '', '\\xff']::bytea[]);
SELECT seq, data, recorded_at <= now() FROM bide.get(:'run', 'm2');
SELECT seq, name, data FROM bide.load(:'run', after => 2);
SELECT run_id FROM bide.runs(prefix => :'run');
SELECT bide.next_seq(:'run');
SELECT bide.schema_version();
SELECT 'ok' FROM bide.check_schema(1);
SELECT bide.version() <> '';
SELECT bide.from_cbor(bide.to_cbor('{{"a": [1, null]}}'));
SELECT 'ok' FROM bide.grant_access('pg_monitor', 'reader');
SELECT bide.purge_finished('1999-01-01');
SELECT bide.purge_run(:'run', force => true) > 0;
SELECT count(*) FROM bide.load(:'run');
"""
    assert cluster.psql(script).split("\n") == [
        "0|t|",
        "0|f|\\x00ff5c",
        "1|t|",
        "2|t|",
        '2|f|{"a":  1}',
        "m1|3|t",
        "json|2|f",
        "m2|4|t",
        "4|\\xff|t",
        "3|m1|\\x01",
        "4|m2|\\xff",
        run,
        "5",
        "1",
        "ok",
        "t",
        '{"a": [1, null]}',
        "ok",
        "0",
        "t",
        "0",
    ]


@pytest.mark.core
def test_a_string_survives_insert_json_byte_for_byte(cluster, conn, run):
    """As a variable that psql quotes, and as a dollar-quoted literal."""
    text = json.dumps(AWKWARD, ensure_ascii=False)
    single = text.replace("\\", "\\\\").replace("'", "\\'")
    script = f"\\set text '{single}'\nSELECT inserted FROM bide.insert_json('{run}', 'variable', :'text');\n"
    script += f"SELECT inserted FROM bide.insert_json('{run}', 'literal', $json${text}$json$);\n"
    assert cluster.psql(script) == "t\nt"
    for name in ("variable", "literal"):
        assert get(conn, run, name).data == text.encode()


@pytest.mark.core
def test_prepared_statements(cluster, conn, run):
    cluster.psql(f"""
PREPARE record AS SELECT seq, inserted, stored FROM bide.insert($1, $2, $3);
EXECUTE record('{run}', 'first', '\\x01');
EXECUTE record('{run}', 'second', '\\x02');
PREPARE many (text, text[], bytea[]) AS SELECT name, seq, inserted FROM bide.insert_many($1, $2, $3);
EXECUTE many('{run}', '{{third,fourth}}', '{{"\\\\x03","\\\\x04"}}');
""")
    assert [(step.name, step.data) for step in load_all(conn, run)] == [
        ("first", b"\x01"),
        ("second", b"\x02"),
        ("third", b"\x03"),
        ("fourth", b"\x04"),
    ]


@pytest.mark.core
def test_bind_sends_parameters_where_psql_knows_it(cluster, conn, run, major):
    if major < 16:
        assert "invalid command \\bind" in cluster.psql("SELECT 1 \\bind \\g", check=False)
        return
    cluster.psql(f"SELECT seq FROM bide.insert($1, $2, $3) \\bind '{run}' 'step' '\\\\x00ff' \\g")
    assert get(conn, run, "step").data == b"\x00\xff"


@pytest.mark.core
def test_control_after_begin_it_is_refused_with_the_hint(cluster, conn, run):
    said = cluster.psql(f"BEGIN; SELECT seq FROM bide.insert('{run}', 'step', '');", check=False)
    assert "ERROR" in said and "HINT:  Use autocommit" in said
    assert load_all(conn, run) == []
    allowed = (
        "BEGIN; SET LOCAL bide.transaction_block = allow; SELECT seq FROM bide.insert('{}', 'step', ''); COMMIT;"
    )
    assert cluster.psql(allowed.format(run)) == "0"
    assert len(load_all(conn, run)) == 1
