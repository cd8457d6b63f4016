#!/usr/bin/env bash
# A run that survives a crash: records the steps of agent runs in bide, stops the server hard in the
# middle, starts it again, does all steps again and shows what the journal holds. Uses the Makefile:
#
#     demo.sh run [FILE]   FILE has a run a line: {"run_id": "...", "steps": [{"name": "...", "data": ...}, ...]}
#     demo.sh psql         psql on what the last demo left
#
# The server is the demo's own; it listens on a socket in the work folder (see setup.sh) and nowhere else.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=../setup.sh
. "$here/../setup.sh"

demo_psql() { cluster_psql "$main_major" "$cluster" "$@"; }

# --- recording --------------------------------------------------------------------------------

# The client is psql with a file of statements, one a step, each a transaction of its own. Between
# two steps it waits as long as `pause` says: an agent thinks, and the crash needs a middle.
#
# write_client FILE SECONDS
write_client() {
    demo_psql demo -qAt -v "pause=$2" >"$1" <<'SQL'
SELECT pg_catalog.format(
           $$SELECT %s, %L, %L, seq, inserted, pg_catalog.translate(pg_catalog.left(stored::text, 60), E'\t\r\n', '   ')$$
           || $$ FROM bide.insert_json(%L, %L, %L);$$,
           n, run_id, name, run_id, name, data)
       || CASE WHEN :'pause' <> '0' THEN E'\n\\! sleep ' || :'pause' ELSE '' END
FROM demo.steps
ORDER BY n;
SQL
}

# client FILE: prints a line a step: number, run, name, position, inserted, stored
client() { demo_psql demo -qAt -F $'\t' -f "$1" 2>"$logs/demo-client.log"; }

bold="" dim="" plain=""
if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' plain=$'\e[0m'; fi

# show RUN NAME SEQ INSERTED STORED: what a caller is told about a step
shown_run=""
show() {
    if [ "$1" != "$shown_run" ]; then
        shown_run=$1
        printf '  %s%s%s\n' "$bold" "$1" "$plain"
    fi
    if [ "$4" = t ]; then
        printf '  %5s  %-14s recorded\n' "$3" "$2"
    else
        printf '  %5s  %-14s already there: %s%s%s\n' "$3" "$2" "$dim" "$5" "$plain"
    fi
}

# --- the demo ---------------------------------------------------------------------------------

load_file() {
    demo_psql postgres -q -c "CREATE DATABASE demo"
    demo_psql demo -q <<'SQL' || die "CREATE EXTENSION bide failed"
CREATE EXTENSION bide;
CREATE SCHEMA demo;
CREATE TABLE demo.input (line_number bigint GENERATED ALWAYS AS IDENTITY, line json);
SQL
    # COPY takes a line as it is: in its text format backslashes would be lost, and as csv with a quote
    # and a delimiter that JSON cannot contain there is nothing to interpret.
    demo_psql demo -q -c "COPY demo.input (line) FROM STDIN (FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')" <"$file" ||
        die "$file is not JSON, a run a line"
    demo_psql demo -q <<'SQL' || die "$file: each line must be {\"run_id\": text, \"steps\": [{\"name\": text, \"data\": ...}, ...]}"
SET client_min_messages = error;
DELETE FROM demo.input WHERE line IS NULL;
-- A step that the file names twice is one step, with the first value.
CREATE TABLE demo.steps AS
SELECT pg_catalog.row_number() OVER (ORDER BY line_number, position) AS n, run_id, name, data
FROM (SELECT DISTINCT ON (line ->> 'run_id', step ->> 'name')
             line_number, position, line ->> 'run_id' AS run_id, step ->> 'name' AS name, step -> 'data' AS data
      FROM demo.input, pg_catalog.json_array_elements(line -> 'steps') WITH ORDINALITY AS s (step, position)
      ORDER BY line ->> 'run_id', step ->> 'name', line_number, position) AS first;
ALTER TABLE demo.steps ALTER run_id SET NOT NULL, ALTER name SET NOT NULL, ALTER data SET NOT NULL, ADD PRIMARY KEY (n);
-- What the second attempt was told about each step.
CREATE TABLE demo.told (n bigint PRIMARY KEY, inserted boolean NOT NULL);
-- The journal, read as an application reads it: page after page until one is empty.
CREATE FUNCTION demo.journal() RETURNS TABLE (run_id text, seq bigint, name text, data bytea, recorded_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
    after_run text := '';
    last_run text;
    after bigint;
    last bigint;
BEGIN
    LOOP
        last_run := NULL;
        FOR last_run IN SELECT r.run_id FROM bide.runs(after => after_run) AS r LOOP
            after := -1;
            LOOP
                last := NULL;
                FOR run_id, seq, name, data, recorded_at IN
                    SELECT last_run, l.seq, l.name, l.data, l.recorded_at FROM bide.load(last_run, after => after) AS l
                LOOP
                    last := seq;
                    RETURN NEXT;
                END LOOP;
                EXIT WHEN last IS NULL;
                after := last;
            END LOOP;
            after_run := last_run;
        END LOOP;
        EXIT WHEN last_run IS NULL;
    END LOOP;
END $$;
SQL
}

run_demo() {
    local total target pause acknowledged=0 found n run name seq inserted stored stop_after last_run last_seq bad

    total=$(demo_psql demo -qAt -c "SELECT pg_catalog.count(*) FROM demo.steps")
    [ "$total" -gt 0 ] || die "$file has no steps"
    # The middle of the run that comes after half of all steps, so that a run is cut in two.
    target=$(demo_psql demo -qAt -c "
        SELECT pg_catalog.min(n) + pg_catalog.count(*) / 2 - 1 FROM demo.steps
        WHERE run_id = (SELECT run_id FROM demo.steps WHERE n = $total / 2 + 1)")
    [ "$target" -gt 0 ] || target=1
    pause=$(awk -v n="$target" 'BEGIN { p = 3 / n; if (p > 0.15) p = 0.15; printf "%.3f", p }')

    say "recording $total steps, each by one statement:"
    printf "\n  SELECT seq, inserted, stored FROM bide.insert_json('run', 'step', '{...}')\n\n"
    write_client "$demo/first.sql" "$pause"
    while IFS=$'\t' read -r n run name seq inserted stored; do
        show "$run" "$name" "$seq" "$inserted" "$stored"
        acknowledged=$n last_run=$run last_seq=$seq
        if [ "$n" = "$target" ]; then
            printf '\n  %s--- pg_ctl stop -m immediate, while the client goes on ---%s\n\n' "$bold" "$plain"
            cluster_stop "$main_major" "$cluster" immediate
        fi
    done < <(client "$demo/first.sql" || true)
    stop_after=$(head -n 1 "$logs/demo-client.log" | sed 's/^psql:[^ ]* //')
    printf '\n'
    say "the client has lost its server${stop_after:+ ($stop_after)}; $acknowledged of $total steps were confirmed to it"

    say "starting the server again"
    cluster_start "$main_major" "$cluster" || die "the server does not start again"

    say "resuming: all steps again, from the first one"
    printf '\n'
    shown_run=""
    write_client "$demo/second.sql" 0
    while IFS=$'\t' read -r n run name seq inserted stored; do
        show "$run" "$name" "$seq" "$inserted" "$stored"
        printf '%s\t%s\n' "$n" "$inserted" >&3
    done 3>"$demo/told" < <(client "$demo/second.sql" || true)
    printf '\n'
    [ "$(wc -l <"$demo/told")" = "$total" ] || { cat "$logs/demo-client.log" >&2 && die "the second attempt ended early"; }
    demo_psql demo -q -c "COPY demo.told FROM STDIN" <"$demo/told"
    found=$(demo_psql demo -qAt -c "SELECT pg_catalog.count(*) FROM demo.told WHERE NOT inserted")

    say "the journal of the run that was cut in two (the steps near the cut, if it is long):"
    printf '\n'
    demo_psql demo -q -P footer=off -v "run=$last_run" -v "cut=$last_seq" <<'SQL'
SELECT j.seq AS position, j.name AS step, pg_catalog.to_char(j.recorded_at, 'HH24:MI:SS.MS') AS "recorded at",
       CASE WHEN t.inserted THEN 'after the restart' ELSE 'before the crash' END AS "when",
       pg_catalog.rpad(pg_catalog.left(pg_catalog.convert_from(j.data, 'UTF8'), 44), 44) AS data
FROM demo.journal() AS j
JOIN demo.steps AS s USING (run_id, name)
JOIN demo.told AS t USING (n)
WHERE j.run_id = :'run' AND j.seq BETWEEN :cut - 12 AND :cut + 12
ORDER BY j.seq;
SQL
    say "all runs, read back with bide.runs and bide.load and compared with the file:"
    printf '\n'
    demo_psql demo -q <<'SQL'
CREATE TABLE demo.result AS
SELECT e.run_id, pg_catalog.count(*) AS steps, pg_catalog.min(j.seq) AS first, pg_catalog.max(j.seq) AS last,
       pg_catalog.count(*) FILTER (WHERE NOT t.inserted) AS found, pg_catalog.count(*) FILTER (WHERE t.inserted) AS added,
       pg_catalog.bool_and(j.seq IS NOT DISTINCT FROM e.seq AND j.data = pg_catalog.convert_to(e.data::text, 'UTF8')) AS good
FROM (SELECT n, run_id, name, data, pg_catalog.row_number() OVER (PARTITION BY run_id ORDER BY n) - 1 AS seq FROM demo.steps) AS e
FULL JOIN demo.journal() AS j USING (run_id, name)
LEFT JOIN demo.told AS t USING (n)
GROUP BY e.run_id;
SQL
    demo_psql demo -q -P footer=off -c "
        SELECT CASE WHEN pg_catalog.length(run_id) <= 48 THEN run_id
                    ELSE pg_catalog.left(run_id, 22) || '...' || pg_catalog.right(run_id, 23) END AS run, steps, first || ' ... ' || last AS positions,
               found AS \"already there\", added AS \"recorded now\",
               CASE WHEN good THEN 'yes' ELSE 'NO' END AS \"every step once, in order\"
        FROM demo.result ORDER BY run_id COLLATE \"C\""
    # A run or step that the file does not have would be a row without a run id.
    bad=$(demo_psql demo -qAt -c "SELECT pg_catalog.count(*) FROM demo.result WHERE good IS NOT TRUE OR run_id IS NULL")
    [ "$bad" = 0 ] || die "the journal is not what the file says"
    [ "$found" -ge "$acknowledged" ] || die "$acknowledged steps were confirmed, but only $found were there after the crash"
    say "$acknowledged steps were confirmed before the crash, $found were found already done, $((total - found)) were recorded by the second attempt"
}

case ${1:-run} in
run)
    file=$here/sample.jsonl
    if [ -n "${2:-}" ]; then
        file=$(readlink -f -- "$2")
        [[ -f $file && -r $file ]] || die "cannot read $2"
    fi
    setup_demo
    lock demo
    demo=$scratch/demo
    cluster=$demo/cluster
    say "building bide for PostgreSQL $main_major (the first time takes some minutes)"
    build_and_install "$main_major" || die "the build failed"
    say "starting a server of the demo's own in $cluster"
    cluster_stop "$main_major" "$cluster" immediate
    rm -rf "$demo"
    as_server mkdir -p "$demo"
    trap 'cluster_stop "$main_major" "$cluster" immediate' EXIT
    trap 'exit 130' INT TERM HUP
    cluster_make "$main_major" "$cluster" || die "initdb failed"
    cluster_start "$main_major" "$cluster" || die "the server does not start"
    load_file
    run_demo
    cluster_stop "$main_major" "$cluster" fast
    printf '\nTo look around in psql, on the same data:\n\n    make demo-psql\n\n'
    ;;
psql)
    prepare_work_folder
    choose_main_major
    choose_server_user
    lock demo
    cluster=$scratch/demo/cluster
    [ -d "$cluster/data" ] || die "there is nothing yet: make demo"
    cluster_stop "$main_major" "$cluster" immediate
    trap 'cluster_stop "$main_major" "$cluster"' EXIT
    trap 'exit 130' TERM HUP
    trap '' INT # psql's business: it cancels a query
    cluster_start "$main_major" "$cluster" || die "the server does not start"
    run=$(demo_psql demo -qAt -c "SELECT pg_catalog.quote_literal(run_id) FROM demo.steps ORDER BY n LIMIT 1")
    printf '%s\n' "Try:  SELECT run_id FROM bide.runs();" \
        "      SELECT seq, name, convert_from(data, 'UTF8') FROM bide.load($run);" \
        "      SELECT seq, inserted, stored FROM bide.insert_json('my run', 'first step', '{}');" \
        "\\q ends psql and stops the server." ""
    demo_psql demo -v ON_ERROR_STOP=0
    ;;
*) die "one of: run [FILE], psql" ;;
esac
