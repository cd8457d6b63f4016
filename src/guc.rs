//! Every setting of bide.

use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum};

/// `bide.transaction_block`: may a writing call run inside an explicit transaction block?
#[derive(Debug, Clone, Copy, PartialEq, Eq, PostgresGucEnum)]
pub enum TransactionBlock {
    #[name = c"error"]
    Error,
    #[name = c"allow"]
    Allow,
}

static TRANSACTION_BLOCK: GucSetting<TransactionBlock> =
    GucSetting::<TransactionBlock>::new(TransactionBlock::Error);
static MAX_DATA: GucSetting<i32> = GucSetting::<i32>::new(64 << 20);
static MAX_RUN_LOCKS: GucSetting<i32> = GucSetting::<i32>::new(1_000);

/// A value of Postgres has less than 1 GB, and the row around it counts too.
const DATA_BYTES_CAP: i32 = 1_000_000_000;

/// Defines the settings. Once, from `_PG_init`.
pub fn define() {
    GucRegistry::define_enum_guc(
        c"bide.transaction_block",
        c"Whether calls that write to the journal may run inside a transaction block.",
        c"In a block nothing is recorded until COMMIT, and the run stays locked until then.",
        &TRANSACTION_BLOCK,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"bide.max_data",
        c"Largest payload of a step.",
        c"Larger ones are refused before any lock is taken.",
        &MAX_DATA,
        1,
        DATA_BYTES_CAP,
        GucContext::Suset,
        GucFlags::UNIT_BYTE,
    );
    GucRegistry::define_int_guc(
        c"bide.max_run_locks",
        c"Run locks that one transaction may hold.",
        c"The lock table is shared by all sessions: one that fills it makes the others fail.",
        &MAX_RUN_LOCKS,
        1,
        1_000_000,
        GucContext::Suset,
        GucFlags::default(),
    );
}

/// Whether `bide.transaction_block` is `allow`.
pub fn transaction_block_allowed() -> bool {
    TRANSACTION_BLOCK.get() == TransactionBlock::Allow
}

/// `bide.max_data`, in bytes.
pub fn data_bytes_max() -> usize {
    MAX_DATA.get() as usize
}

/// `bide.max_run_locks`.
pub fn run_locks_max() -> usize {
    MAX_RUN_LOCKS.get() as usize
}
