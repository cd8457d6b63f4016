# What is inserted at the executor's level is in the WAL like any row: logical decoding shows every step.
# C-31, C-38.
# Method: a cluster with wal_level = logical; a slot with test_decoding; small, empty and toasted payloads on
# both paths, and a rolled back block.
# Control: a plain INSERT by the owner is decoded in the same form.

import pytest

from calls import allow_block, insert, insert_many
from cluster import Cluster
from conftest import NOT_PLAIN


@pytest.mark.parametrize("alteration", ["", NOT_PLAIN], ids=["direct", "spi"])
def test_logical_decoding_shows_every_step(run, alteration):
    with Cluster("logical", conf={"wal_level": "logical"}) as own:
        own.psql(f"CREATE EXTENSION bide; {alteration};")
        with own.connect() as conn:
            conn.execute("SELECT pg_create_logical_replication_slot('steps', 'test_decoding')")
            large = bytes(n * n % 251 for n in range(200_000))
            insert(conn, run, "small", b"\x00\xff")
            insert_many(conn, run, ["empty", "large"], [b"", large])
            conn.execute("BEGIN")
            allow_block(conn)
            insert(conn, run, "rolled back")
            conn.execute("ROLLBACK")
            conn.execute("INSERT INTO bide.steps (run_id, seq, name, data) VALUES (%s, 3, 'plain', 'p')", (run,))
            changes = conn.execute("SELECT data FROM pg_logical_slot_get_changes('steps', NULL, NULL)").fetchall()
            rows = [text for (text,) in changes if text.startswith("table bide.steps: INSERT")]
            assert len(rows) == 4, rows
            for seq, (name, data) in enumerate(
                [("small", b"\x00\xff"), ("empty", b""), ("large", large), ("plain", b"p")]
            ):
                assert f"seq[bigint]:{seq} " in rows[seq] and f"name[text]:'{name}'" in rows[seq]
                assert f"'\\x{data.hex()}'" in rows[seq]
            conn.execute("SELECT pg_drop_replication_slot('steps')")
