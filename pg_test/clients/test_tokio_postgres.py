# The Rust client works against a server: every method, payloads byte for byte, refusals, retries.  C-31, C-129.
# Method: the program pg_test/clients/tokio_postgres.rs, built and run by cargo against the tests' server.
# Control: in that program, a collision with a writer that skips the run lock is 23505 without the retry.

import os
import re
import subprocess
from pathlib import Path

import pytest

from cluster import PORT

REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND = "cargo test --no-default-features --features client --test client"


@pytest.mark.timeout(900)  # the first time it compiles
def test_the_client_against_a_server(cluster):
    environment = {name: value for name, value in os.environ.items() if name != "RUST_BACKTRACE"}
    dsn = f"host={cluster.socket_dir} port={PORT} user=postgres dbname=postgres"
    answer = subprocess.run(
        COMMAND.split(), cwd=REPOSITORY, env=environment | {"BIDE_DSN": dsn}, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    passed = re.search(r"^test result: ok\. (\d+) passed; 0 failed; 0 ignored", answer.stdout, re.MULTILINE)
    assert passed and int(passed[1]) >= 8, answer.stdout
