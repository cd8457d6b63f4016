-- The schema and the tables of the default store.
--
-- Fails where a schema "bide" exists already: somebody else's would be adopted otherwise, and its owner
-- could change what is in it.
CREATE SCHEMA bide;

CREATE TABLE bide.steps (
    run_id      pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
    seq         pg_catalog.int8 NOT NULL,
    name        pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
    data        pg_catalog.bytea NOT NULL,
    recorded_at pg_catalog.timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    CONSTRAINT steps_pkey PRIMARY KEY (run_id, name),
    CONSTRAINT steps_run_id_seq_key UNIQUE (run_id, seq)
);

-- One entry a finished run: what purge_finished walks along. The names are fixed for that reason.
CREATE INDEX steps_finished_idx ON bide.steps (recorded_at, run_id)
    WHERE name OPERATOR(pg_catalog.=) ANY (ARRAY['run:complete', 'run:aborted', 'run:cancelled']);

CREATE TABLE bide.leases (
    run_id  pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
    holder  pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
    expiry  pg_catalog.timestamptz NOT NULL,
    fence   pg_catalog.int8 NOT NULL,
    attempt pg_catalog.int4 NOT NULL,
    queue   pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
    CONSTRAINT leases_pkey PRIMARY KEY (run_id)
)
-- Few rows, each changed often, and never HOT since the expiry is indexed: vacuum early.
WITH (
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_threshold = 500,
    autovacuum_analyze_scale_factor = 0.05
);

CREATE INDEX leases_queue_expiry_idx ON bide.leases (queue, expiry, run_id);

CREATE TABLE bide.schema_version (
    id      pg_catalog.int4 NOT NULL,
    version pg_catalog.int4 NOT NULL,
    CONSTRAINT schema_version_pkey PRIMARY KEY (id),
    CONSTRAINT schema_version_one_row CHECK (id OPERATOR(pg_catalog.=) 1)
);

CREATE TABLE bide.stores (
    name    pg_catalog.text COLLATE pg_catalog."C" NOT NULL,
    steps   pg_catalog.regclass NOT NULL,
    leases  pg_catalog.regclass NOT NULL,
    version pg_catalog.regclass NOT NULL,
    CONSTRAINT stores_pkey PRIMARY KEY (name)
);

INSERT INTO bide.schema_version (id, version) VALUES (1, 1);
INSERT INTO bide.stores (name, steps, leases, version)
    VALUES ('bide', 'bide.steps', 'bide.leases', 'bide.schema_version');

-- What the script itself writes is not dumped: the restored script writes it again.
SELECT pg_catalog.pg_extension_config_dump('bide.steps', '');
SELECT pg_catalog.pg_extension_config_dump('bide.leases', '');
SELECT pg_catalog.pg_extension_config_dump('bide.schema_version', 'WHERE false');
SELECT pg_catalog.pg_extension_config_dump('bide.stores', 'WHERE name OPERATOR(pg_catalog.<>) ''bide''');

COMMENT ON SCHEMA bide IS 'Durable runs: journal, leases, outbox. Call the functions; the tables are theirs.';
COMMENT ON TABLE bide.steps IS 'The journal: a row a recorded step, never changed, positions 0, 1, 2 ... in each run.';
COMMENT ON TABLE bide.leases IS 'Who drives which unfinished run, and until when.';
COMMENT ON TABLE bide.schema_version IS 'One row: the version of these tables.';
COMMENT ON TABLE bide.stores IS 'The sets of journal tables that calls can work on.';
