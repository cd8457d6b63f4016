-- Made by `make sql` from the sources; not to be edited by hand.

-- src/lib.rs
-- bootstrap
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

-- src/lib.rs
CREATE SCHEMA IF NOT EXISTS bide; /* bide::wiring::bide */

-- src/store/version.rs
-- bide::store::version::check_schema
CREATE  FUNCTION bide."check_schema"(
	"expected" INT, /* Option < i32 > */
	"store" text DEFAULT 'bide' /* Option < Text < '_ > > */
) RETURNS void
VOLATILE PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'check_schema_wrapper';

-- src/convert.rs
-- bide::convert::from_cbor
CREATE  FUNCTION bide."from_cbor"(
	"data" bytea /* Option < & [u8] > */
) RETURNS jsonb /* JsonbOut */
VOLATILE PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'from_cbor_wrapper';

-- src/journal/mod.rs
-- bide::journal::get
CREATE  FUNCTION bide."get"(
	"run_id" text, /* Option < Text < '_ > > */
	"name" text, /* Option < Text < '_ > > */
	"store" text DEFAULT 'bide' /* Option < Text < '_ > > */
) RETURNS TABLE (
	"seq" bigint,  /* i64 */
	"data" bytea,  /* Vec < u8 > */
	"recorded_at" timestamp with time zone  /* Option < TimestampWithTimeZone > */
)
VOLATILE PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'get_wrapper';

-- src/store/access.rs
-- bide::store::access::grant_access
CREATE  FUNCTION bide."grant_access"(
	"role" text, /* Option < Text < '_ > > */
	"access" text, /* Option < Text < '_ > > */
	"store" text DEFAULT 'bide' /* Option < Text < '_ > > */
) RETURNS void
VOLATILE PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'grant_access_wrapper';

-- src/journal/mod.rs
-- bide::journal::insert
CREATE  FUNCTION bide."insert"(
	"run_id" text, /* Option < Text < '_ > > */
	"name" text, /* Option < Text < '_ > > */
	"data" bytea, /* Option < & [u8] > */
	"fence" bigint DEFAULT 0, /* Option < i64 > */
	"publish" text DEFAULT '', /* Option < Text < '_ > > */
	"wake" bool DEFAULT false, /* Option < bool > */
	"store" text DEFAULT 'bide' /* Option < Text < '_ > > */
) RETURNS TABLE (seq bigint, inserted boolean, stored bytea) /* InsertedRow < Vec < u8 > > */
VOLATILE PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'insert_wrapper';

-- src/journal/mod.rs
-- bide::journal::insert_json
CREATE  FUNCTION bide."insert_json"(
	"run_id" text, /* Option < Text < '_ > > */
	"name" text, /* Option < Text < '_ > > */
	"data" json, /* Option < Json < '_ > > */
	"fence" bigint DEFAULT 0, /* Option < i64 > */
	"publish" text DEFAULT '', /* Option < Text < '_ > > */
	"wake" bool DEFAULT false, /* Option < bool > */
	"store" text DEFAULT 'bide' /* Option < Text < '_ > > */
) RETURNS TABLE (seq bigint, inserted boolean, stored json) /* InsertedRow < JsonOut > */
VOLATILE PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'insert_json_wrapper';

-- src/journal/mod.rs
-- bide::journal::insert_many
CREATE  FUNCTION bide."insert_many"(
	"run_id" text, /* Option < Text < '_ > > */
	"names" text[], /* Option < TextArray < '_ > > */
	"data" bytea[], /* Option < ByteaArray < '_ > > */
	"fence" bigint DEFAULT 0, /* Option < i64 > */
	"store" text DEFAULT 'bide' /* Option < Text < '_ > > */
) RETURNS TABLE (
	"name" text,  /* TextOut */
	"seq" bigint,  /* i64 */
	"inserted" bool  /* bool */
)
VOLATILE PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'insert_many_wrapper';

-- src/journal/mod.rs
-- bide::journal::load
CREATE  FUNCTION bide."load"(
	"run_id" text, /* Option < Text < '_ > > */
	"after" bigint DEFAULT -1, /* Option < i64 > */
	"max_rows" INT DEFAULT 256, /* Option < i32 > */
	"store" text DEFAULT 'bide' /* Option < Text < '_ > > */
) RETURNS TABLE (
	"seq" bigint,  /* i64 */
	"name" text,  /* TextOut */
	"data" bytea,  /* Vec < u8 > */
	"recorded_at" timestamp with time zone  /* Option < TimestampWithTimeZone > */
)
VOLATILE PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'load_wrapper';

-- src/journal/mod.rs
-- bide::journal::next_seq
CREATE  FUNCTION bide."next_seq"(
	"run_id" text, /* Option < Text < '_ > > */
	"store" text DEFAULT 'bide' /* Option < Text < '_ > > */
) RETURNS bigint /* i64 */
VOLATILE PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'next_seq_wrapper';

-- src/journal/mod.rs
-- bide::journal::purge_finished
CREATE  FUNCTION bide."purge_finished"(
	"before" timestamp with time zone, /* Option < TimestampWithTimeZone > */
	"max_runs" INT DEFAULT 1000, /* Option < i32 > */
	"store" text DEFAULT 'bide' /* Option < Text < '_ > > */
) RETURNS bigint /* i64 */
VOLATILE PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'purge_finished_wrapper';

-- src/journal/mod.rs
-- bide::journal::purge_run
CREATE  FUNCTION bide."purge_run"(
	"run_id" text, /* Option < Text < '_ > > */
	"force" bool DEFAULT false, /* Option < bool > */
	"store" text DEFAULT 'bide' /* Option < Text < '_ > > */
) RETURNS bigint /* i64 */
VOLATILE PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'purge_run_wrapper';

-- src/journal/mod.rs
-- bide::journal::runs
CREATE  FUNCTION bide."runs"(
	"after" text DEFAULT '', /* Option < Text < '_ > > */
	"prefix" text DEFAULT '', /* Option < Text < '_ > > */
	"exclude_holding" text[] DEFAULT '{}', /* Option < TextArray < '_ > > */
	"lease_lapsed" bool DEFAULT false, /* Option < bool > */
	"max_rows" INT DEFAULT 500, /* Option < i32 > */
	"store" text DEFAULT 'bide' /* Option < Text < '_ > > */
) RETURNS TABLE (
	"run_id" text  /* TextOut */
)
VOLATILE PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'runs_wrapper';

-- src/store/version.rs
-- bide::store::version::schema_version
CREATE  FUNCTION bide."schema_version"(
	"store" text DEFAULT 'bide' /* Option < Text < '_ > > */
) RETURNS INT /* i32 */
VOLATILE PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'schema_version_wrapper';

-- src/convert.rs
-- bide::convert::to_cbor
CREATE  FUNCTION bide."to_cbor"(
	"document" jsonb /* Option < Jsonb < '_ > > */
) RETURNS bytea /* Vec < u8 > */
VOLATILE PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'to_cbor_wrapper';

-- src/store/version.rs
-- bide::store::version::version
CREATE  FUNCTION bide."version"() RETURNS TEXT /* & '_ str */
STRICT VOLATILE PARALLEL UNSAFE
SET search_path TO pg_catalog, pg_temp
LANGUAGE c /* Rust */
AS 'MODULE_PATHNAME', 'version_wrapper';

-- src/lib.rs
-- finalize
-- Triggers, comments and rights: after everything else has been made.

CREATE FUNCTION bide.store_changed() RETURNS pg_catalog.trigger
    LANGUAGE c VOLATILE PARALLEL UNSAFE
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'store_changed_wrapper';

CREATE TRIGGER stores_changed
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON bide.stores
    FOR EACH STATEMENT EXECUTE FUNCTION bide.store_changed();

CREATE TRIGGER schema_version_changed
    AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON bide.schema_version
    FOR EACH STATEMENT EXECUTE FUNCTION bide.store_changed();

COMMENT ON FUNCTION bide.insert IS 'Records a step unless its name is taken; then returns what is stored.';
COMMENT ON FUNCTION bide.insert_json IS 'insert for payloads that are JSON, kept byte for byte as UTF-8.';
COMMENT ON FUNCTION bide.insert_many IS 'Records many steps of one run, all or none.';
COMMENT ON FUNCTION bide.next_seq IS 'Takes the run''s lock and returns its next position, for an INSERT by the owner.';
COMMENT ON FUNCTION bide.get IS 'One step by its name.';
COMMENT ON FUNCTION bide.load IS 'A page of a run''s steps behind a position.';
COMMENT ON FUNCTION bide.runs IS 'A page of run ids in byte order.';
COMMENT ON FUNCTION bide.purge_run IS 'Deletes a finished run, any run by force; returns the number of steps.';
COMMENT ON FUNCTION bide.purge_finished IS 'Deletes runs that ended before a time; returns the number of runs.';
COMMENT ON FUNCTION bide.schema_version IS 'The version of a store''s tables.';
COMMENT ON FUNCTION bide.check_schema IS 'Raises 55000 unless a store''s tables have the version expected.';
COMMENT ON FUNCTION bide.version IS 'The version of the loaded library.';
COMMENT ON FUNCTION bide.to_cbor IS 'A JSON document as CBOR (RFC 8949), without loss or not at all.';
COMMENT ON FUNCTION bide.from_cbor IS 'CBOR as a JSON document, without loss or not at all.';
COMMENT ON FUNCTION bide.grant_access IS 'Gives a role one of: reader, writer, worker, admin, none.';
COMMENT ON FUNCTION bide.store_changed IS 'Trigger: sessions check a store anew after its row or version changed.';

-- Nobody but the owner can call anything until bide.grant_access says so.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA bide FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA bide FROM PUBLIC;
REVOKE ALL ON SCHEMA bide FROM PUBLIC;
