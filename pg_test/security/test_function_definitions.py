# Every function is defined as promised: arguments, defaults and result are frozen; VOLATILE, PARALLEL UNSAFE, not
# STRICT, with a pinned search_path, no overload, never SECURITY DEFINER.  C-155, C-162, C-250, C-251; design.md 4.
# Method: the catalog against functions.py, both ways: nothing is missing and nothing is there besides.
# Control: an overload made for the test is seen as one.

import pytest

from functions import FUNCTIONS

DEFINED = """
SELECT p.proname, pg_catalog.pg_get_function_arguments(p.oid) AS arguments,
    pg_catalog.pg_get_function_result(p.oid) AS result,
    p.provolatile::text AS volatile, p.proparallel::text AS parallel, p.proisstrict AS strict, p.prosecdef AS definer,
    p.proconfig AS config, p.proleakproof AS leakproof
FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = 'bide'::regnamespace
    AND p.prorettype <> 'pg_catalog.trigger'::regtype -- nobody can call those
ORDER BY 1
"""


@pytest.fixture
def defined(db):
    with db.connect() as owner:
        yield owner.execute(DEFINED).fetchall()


@pytest.mark.core
def test_the_functions_are_these_and_no_other(defined):
    assert [row[0] for row in defined] == sorted(f.name for f in FUNCTIONS)


@pytest.mark.core
def test_arguments_and_results_are_frozen(defined):
    found = {row[0]: (row[1].split(", "), row[2]) for row in defined}
    for function in FUNCTIONS:
        arguments = [
            f"{name} {kind}" + (f" DEFAULT {default}" if default else "")
            for name, kind, default in function.arguments
        ]
        assert found[function.name] == (arguments or [""], function.result), function.name


@pytest.mark.core
def test_functions_are_volatile_unsafe_not_strict_and_pinned(defined):
    for name, arguments, _, volatile, parallel, strict, definer, config, leakproof in defined:
        assert (volatile, parallel, definer, leakproof) == ("v", "u", False, False), name
        assert not (strict and arguments), f"{name} would answer NULL with NULL"
        assert [c.replace('"', "") for c in config or []] == ["search_path=pg_catalog, pg_temp"], name


def test_control_an_overload_is_seen(db):
    with db.connect() as owner:
        owner.execute("CREATE FUNCTION bide.insert(text) RETURNS int LANGUAGE sql AS 'SELECT 1'")
        names = [row[0] for row in owner.execute(DEFINED).fetchall()]
    assert len(names) != len(set(names))
