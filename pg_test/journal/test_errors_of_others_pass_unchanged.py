# Errors of others pass through unchanged: SQLSTATE (private ones too), detail, hint, context, the names of
# constraint and table.  C-128, C-248.
# Method: a trigger on steps raises; the same trigger on a plain table raises beside it; all fields are compared.
# Control: the plain table's error is what "unchanged" means; a private SQLSTATE is not one that pgrx knows.

import psycopg
import pytest

from calls import get

FIELDS = ("sqlstate", "message_primary", "message_detail", "message_hint", "schema_name", "table_name",
          "column_name", "datatype_name", "constraint_name", "internal_query", "internal_position")

RAISING = """
CREATE TABLE public.taken (a int CONSTRAINT taken_once PRIMARY KEY);
INSERT INTO public.taken VALUES (1);
CREATE TABLE public.plain (name text);
CREATE FUNCTION public.raises() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    CASE NEW.name
    WHEN 'private' THEN
        RAISE EXCEPTION 'no' USING ERRCODE = 'ZZ001', DETAIL = 'd', HINT = 'h', SCHEMA = 's', TABLE = 't',
            COLUMN = 'c', DATATYPE = 'y', CONSTRAINT = 'k';
    WHEN 'unique' THEN INSERT INTO public.taken VALUES (1);
    WHEN 'syntax' THEN EXECUTE 'SELECT 1 2 3';
    WHEN 'serialization' THEN RAISE EXCEPTION 'again' USING ERRCODE = '40001';
    ELSE RAISE EXCEPTION 'bide' USING ERRCODE = 'BD001';
    END CASE;
    RETURN NEW;
END $$;
CREATE TRIGGER raises AFTER INSERT ON bide.steps FOR EACH ROW EXECUTE FUNCTION public.raises();
CREATE TRIGGER raises AFTER INSERT ON public.plain FOR EACH ROW EXECUTE FUNCTION public.raises();
"""


def refusal(conn, sql, *params) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(sql, params)
    return caught.value


@pytest.mark.core
@pytest.mark.parametrize("name", ["private", "unique", "syntax", "serialization", "bide"])
def test_every_field_is_what_it_is_without_bide(db, name):
    db.psql(RAISING)
    with db.connect() as conn:
        plain = refusal(conn, "INSERT INTO public.plain VALUES (%s)", name)
        ours = refusal(conn, "SELECT seq FROM bide.insert('run', %s, '')", name)
        for field in FIELDS:
            assert getattr(ours.diag, field) == getattr(plain.diag, field), field
        assert "function public.raises() line" in ours.diag.context
        assert get(conn, "run", name) is None
        # The session goes on, and the next error is its own.
        again = refusal(conn, "SELECT seq FROM bide.insert('', 'n', '')")
        assert (again.diag.sqlstate, again.diag.constraint_name, again.diag.context) == ("22023", None, None)


@pytest.mark.core
def test_a_handled_error_leaves_nothing_behind(db):
    """An error that a caller catches does not colour the next one."""
    db.psql(RAISING)
    with db.connect() as conn:
        conn.execute("SET bide.transaction_block = allow")
        conn.execute("""
            DO $$
            DECLARE state text; name text;
            BEGIN
                BEGIN
                    PERFORM bide.insert('run', 'unique', '');
                EXCEPTION WHEN unique_violation THEN
                    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, name = CONSTRAINT_NAME;
                    ASSERT state = '23505' AND name = 'taken_once', state || name;
                END;
                BEGIN
                    PERFORM bide.insert('run', NULL, '');
                EXCEPTION WHEN null_value_not_allowed THEN
                    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, name = CONSTRAINT_NAME;
                    ASSERT state = '22004' AND name = '', state || name;
                END;
            END $$""")
