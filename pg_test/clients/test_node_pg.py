# node-pg calls every function with ordinary JavaScript values, plain and as named (prepared) statements. It
# opens no transaction by itself, so nothing needs to be switched on.  C-31; design.md 4.
# Method: node_client.mjs makes the calls and prints what came back; it is compared here.
# Control: inside BEGIN the same insert is refused with 25001 and the hint.

import json
import os
import subprocess
from pathlib import Path

import pytest

from cluster import PORT, SUPERUSER
from functions import AWKWARD

DEADLINE_S = 60
RUN = "run of node-pg"


@pytest.fixture(scope="module")
def report(cluster):
    argument = {
        "connection": {"host": str(cluster.socket_dir), "port": PORT, "user": SUPERUSER, "database": "postgres"},
        "run": RUN,
        "awkward": AWKWARD,
    }
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
    done = subprocess.run(
        ["node", str(Path(__file__).parent / "node_client.mjs"), json.dumps(argument)],
        text=True,
        capture_output=True,
        timeout=DEADLINE_S,
        env=environment,
    )
    assert done.returncode == 0, (
        f"the Node client failed (does NODE_PATH name a folder that holds pg?): {done.stderr}"
    )
    return json.loads(done.stdout)


def hexed(data: bytes) -> str:
    return data.hex()


def test_insert_takes_buffers(report):
    assert report["insert"] == [{"seq": "0", "inserted": True, "stored": None}]
    assert report["taken"] == [{"seq": "0", "inserted": False, "stored": hexed(b"\x00\xff\\")}]
    assert report["empty"] == [{"seq": "1", "inserted": True, "stored": None}]


def test_insert_works_as_a_named_statement(report):
    assert [report[key][0]["seq"] for key in ("prepared", "prepared_again")] == ["2", "3"]


def test_insert_json_takes_objects_and_text(report):
    assert report["json"] == [{"seq": "4", "inserted": True, "stored": None}]
    assert report["json_taken"] == [{"seq": "4", "inserted": False, "stored": {"text": AWKWARD}}]


def test_a_string_survives_insert_json_byte_for_byte(report):
    # JSON.stringify leaves what is not ASCII as it is, and so does this.
    sent = json.dumps(AWKWARD, ensure_ascii=False)
    assert report["json_text"] == [{"seq": "5", "inserted": True, "stored": None}]
    assert bytes.fromhex(report["json_text_bytes"][0]["data"]) == sent.encode()


def test_insert_many_takes_arrays_of_strings_and_buffers(report):
    assert report["many"] == [
        {"name": "m1", "seq": "6", "inserted": True},
        {"name": "bytes", "seq": "0", "inserted": False},
        {"name": AWKWARD, "seq": "7", "inserted": True},
    ]
    assert report["get"][0]["data"] == hexed(b'\x00",\\')


def test_reads_give_buffers_dates_and_strings(report):
    assert report["get"][0]["seq"] == "7" and report["recorded_at_is_date"]
    assert report["load"] == [
        {"seq": "6", "name": "m1", "data": hexed(b"1")},
        {"seq": "7", "name": AWKWARD, "data": hexed(b'\x00",\\')},
    ]
    assert report["runs"] == [{"run_id": RUN}]


def test_all_other_functions_answer(report):
    assert report["next_seq"] == [{"next_seq": "8"}]
    assert report["schema_version"] == [{"schema_version": 1}]
    assert report["version"][0]["version"]
    assert report["check_schema"] == report["grant_access"] == 1
    assert report["cbor"] == [{"value": {"a": [1, "é"]}}]
    assert report["purge_finished"] == [{"purge_finished": "0"}]
    assert report["purged"] == 1 and report["left"] == []


def test_refusals_arrive_with_code_detail_and_hint(report):
    assert report["in_block"]["code"] == "25001", "control"
    assert "SET LOCAL bide.transaction_block = allow" in report["in_block"]["hint"]
    assert report["null_run"]["code"] == "22004" and report["null_run"]["detail"] and report["null_run"]["hint"]
