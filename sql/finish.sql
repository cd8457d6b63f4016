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
