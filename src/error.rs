//! Every refusal of bide, with its SQLSTATE, detail and hint in one place.
//!
//! The message says what is wrong in one line, the detail gives the facts (object, size, limit), the
//! hint says what to do. Errors of Postgres itself never pass through here: they go on unchanged.

/// What a call refuses. Nothing has been changed when one of these is returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("argument \"{argument}\" is null")]
    NullArgument { argument: &'static str },

    #[error("element {index} of argument \"{argument}\" is null")]
    NullElement { argument: &'static str, index: usize },

    #[error("argument \"{argument}\" is empty")]
    Empty { argument: &'static str },

    #[error("argument \"{argument}\" is too long")]
    TooLong { argument: &'static str, bytes: usize, bytes_max: usize },

    #[error("argument \"{argument}\" is out of range")]
    OutOfRange { argument: &'static str, given: i64, min: i64, max: i64 },

    #[error("arrays \"{first}\" and \"{second}\" differ in length")]
    LengthsDiffer { first: &'static str, first_len: usize, second: &'static str, second_len: usize },

    #[error("argument \"{argument}\" is not a word that is known here: \"{given}\"")]
    UnknownWord { argument: &'static str, given: String, known: &'static str },

    /// The argument stands in the signature, but only its default works in this version.
    #[error("argument \"{argument}\" is not supported by this version of bide")]
    NotSupported { argument: &'static str, default: &'static str },

    #[error("store \"{name}\" does not exist")]
    UnknownStore { name: String },

    #[error("role \"{name}\" does not exist")]
    UnknownRole { name: String },

    #[error("permission denied for store \"{store}\"")]
    NoUsage { store: String, schema: String },

    #[error("payload is too large")]
    PayloadTooLarge { bytes: usize, bytes_max: usize },

    #[error("transaction holds too many run locks")]
    TooManyRunLocks { held: usize, max: usize },

    #[error("positions of run \"{run}\" are exhausted")]
    PositionsExhausted { run: String },

    #[error("function bide.{function} cannot run inside a transaction block")]
    TransactionBlock { function: &'static str },

    #[error("run \"{run}\" is not finished")]
    RunUnfinished { run: String },

    #[error("stored bytes of step \"{name}\" of run \"{run}\" are not JSON")]
    StoredNotJson { run: String, name: String },

    #[error("schema version of store \"{store}\" is {stored}, expected {expected}")]
    VersionMismatch { store: String, stored: i32, expected: i32 },

    #[error("store \"{store}\" has schema version {stored}, this library works with {supported}")]
    VersionUnsupported { store: String, stored: i32, supported: i32 },

    #[error("store \"{store}\" has no schema version")]
    VersionMissing { store: String },

    #[error("{what} of store \"{store}\" is missing")]
    TableMissing { store: String, what: &'static str },

    #[error("\"{relation}\" of store \"{store}\" cannot hold {what}")]
    WrongTable { store: String, relation: String, what: &'static str, fact: String },

    #[error("\"{relation}\" of store \"{store}\" has no usable unique index on ({columns})")]
    NotUnique { store: String, relation: String, columns: &'static str },

    #[error("a trigger or rule on \"{relation}\" suppressed or changed the insert")]
    InsertSuppressed { relation: String },

    #[error("CBOR input is not valid")]
    CborInvalid { reason: String },

    #[error("CBOR value cannot be represented as JSON")]
    CborNotJson { what: String },

    #[error("JSON value cannot be represented as CBOR")]
    JsonNotCbor { what: String },

    #[error("number cannot be represented in CBOR without loss")]
    NumberLoss { number: String },
}

impl Error {
    /// The five characters of the SQLSTATE, as in the table in README.
    pub fn sqlstate(&self) -> &'static str {
        use Error::*;
        match self {
            NullArgument { .. } | NullElement { .. } => "22004",
            Empty { .. }
            | TooLong { .. }
            | OutOfRange { .. }
            | LengthsDiffer { .. }
            | UnknownWord { .. }
            | CborNotJson { .. }
            | JsonNotCbor { .. } => "22023",
            NotSupported { .. } => "0A000",
            UnknownStore { .. } | UnknownRole { .. } => "42704",
            NoUsage { .. } => "42501",
            PayloadTooLarge { .. } | TooManyRunLocks { .. } | PositionsExhausted { .. } => "54000",
            TransactionBlock { .. } => "25001",
            RunUnfinished { .. }
            | VersionMismatch { .. }
            | VersionUnsupported { .. }
            | VersionMissing { .. }
            | TableMissing { .. }
            | WrongTable { .. }
            | NotUnique { .. }
            | InsertSuppressed { .. } => "55000",
            StoredNotJson { .. } | CborInvalid { .. } => "22P02",
            NumberLoss { .. } => "22003",
        }
    }

    /// The facts: which object, how large, which limit. A full sentence.
    pub fn detail(&self) -> String {
        use Error::*;
        match self {
            NullArgument { argument } => format!("\"{argument}\" must have a value."),
            NullElement { argument, .. } => format!("\"{argument}\" must not hold nulls."),
            Empty { argument } => format!("\"{argument}\" has 0 bytes, it needs at least 1."),
            TooLong { argument, bytes, bytes_max } => {
                format!("\"{argument}\" has {bytes} bytes, the limit is {bytes_max}.")
            }
            OutOfRange { argument, given, min, max } => {
                format!("\"{argument}\" is {given}, it must be from {min} to {max}.")
            }
            LengthsDiffer { first, first_len, second, second_len } => format!(
                "\"{first}\" has {first_len} elements, \"{second}\" has {second_len} elements."
            ),
            UnknownWord { argument, known, .. } => format!("\"{argument}\" is one of {known}."),
            NotSupported { argument, default } => {
                format!("\"{argument}\" can only have its default, {default}.")
            }
            UnknownStore { .. } => "The stores are listed in the table \"stores\".".into(),
            UnknownRole { name } => format!("There is no role named \"{name}\" in this cluster."),
            NoUsage { schema, .. } => {
                format!("The current user has no USAGE on schema \"{schema}\".")
            }
            PayloadTooLarge { bytes, bytes_max } => {
                format!("The payload has {bytes} bytes, bide.max_data allows {bytes_max} bytes.")
            }
            TooManyRunLocks { held, max } => format!(
                "The transaction holds the locks of {held} runs, bide.max_run_locks allows {max}."
            ),
            PositionsExhausted { .. } => {
                format!("The last position is {}, the largest there is.", i64::MAX)
            }
            TransactionBlock { .. } => {
                "Nothing it does is recorded until COMMIT, and the run stays locked until then."
                    .into()
            }
            RunUnfinished { .. } => {
                "It holds none of run:complete, run:aborted and run:cancelled.".into()
            }
            StoredNotJson { .. } => "The step was recorded as bytes, not as JSON.".into(),
            VersionMismatch { stored, .. } => {
                format!("The table \"schema_version\" holds version {stored}.")
            }
            VersionUnsupported { stored, supported, .. } => {
                if stored > supported {
                    "The tables are newer than the library.".into()
                } else {
                    "The tables are older than the library.".into()
                }
            }
            VersionMissing { .. } => "The table \"schema_version\" has no row with id 1.".into(),
            TableMissing { what, .. } => {
                format!("The {what} was dropped, or renamed in the case of the table stores.")
            }
            WrongTable { fact, .. } => fact.clone(),
            NotUnique { columns, .. } => format!(
                "It takes a valid, immediate unique index on exactly ({columns}), neither partial nor \
                 on expressions, without INCLUDE columns."
            ),
            InsertSuppressed { .. } => "The row would not be stored as it was given.".into(),
            CborInvalid { reason } => format!("The decoder says: {reason}."),
            CborNotJson { what } | JsonNotCbor { what } => format!("It holds {what}."),
            NumberLoss { number } => {
                format!("{number} is neither a 64-bit integer nor exactly a double.")
            }
        }
    }

    /// What to do about it. A full sentence.
    pub fn hint(&self) -> String {
        use Error::*;
        match self {
            NullArgument { .. } | NullElement { .. } => {
                "Pass a value; leave an argument out to get its default.".into()
            }
            Empty { .. } => "Pass a text of at least one byte.".into(),
            TooLong { .. } => {
                "Use a shorter text, for example a hash, and keep the long one in the payload."
                    .into()
            }
            OutOfRange { .. } => "Pass a number in the range.".into(),
            LengthsDiffer { .. } => "Pass one payload for each name.".into(),
            UnknownWord { .. } => "Use one of the known words.".into(),
            NotSupported { .. } => "Leave the argument out.".into(),
            UnknownStore { .. } => "Use store => 'bide', the default.".into(),
            UnknownRole { .. } => "Create the role first.".into(),
            NoUsage { .. } => {
                "Ask an administrator to call bide.grant_access for your role.".into()
            }
            PayloadTooLarge { .. } => {
                "Keep large data elsewhere and record where, or raise bide.max_data.".into()
            }
            TooManyRunLocks { .. } => "Commit in batches.".into(),
            PositionsExhausted { .. } => "Continue under another run id.".into(),
            TransactionBlock { .. } => {
                "Use autocommit and send one statement at a time, or SET LOCAL \
                 bide.transaction_block = allow when the step belongs to your transaction."
                    .into()
            }
            RunUnfinished { .. } => "Finish the run first, or pass force => true.".into(),
            StoredNotJson { .. } => "Read it with bide.get.".into(),
            VersionMismatch { .. } => {
                "Install the version of bide that your application expects.".into()
            }
            VersionUnsupported { stored, supported, .. } => {
                if stored > supported {
                    "Install the newer library of bide and open a new connection.".into()
                } else {
                    "Run ALTER EXTENSION bide UPDATE.".into()
                }
            }
            VersionMissing { .. } => "Restore the row (1, version) from a backup.".into(),
            TableMissing { .. } => "Restore it, or create the extension anew.".into(),
            WrongTable { .. } => "Undo the change to the table.".into(),
            NotUnique { .. } => "Restore the constraint that CREATE EXTENSION made.".into(),
            InsertSuppressed { .. } => {
                "Remove the trigger or rule, or let it leave rows as they are.".into()
            }
            CborInvalid { .. } => "Pass one complete CBOR item (RFC 8949).".into(),
            CborNotJson { .. } => {
                "Decode it in the application; only what JSON can say is converted here.".into()
            }
            JsonNotCbor { .. } => "Nest less deeply.".into(),
            NumberLoss { .. } => "Store the number as a string.".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_of_a_version_depends_on_which_side_is_older() {
        let version =
            |stored| Error::VersionUnsupported { store: "bide".into(), stored, supported: 1 };
        assert!(version(2).hint().contains("newer library"));
        assert!(version(0).hint().contains("ALTER EXTENSION"));
    }

    #[test]
    fn details_name_the_size_and_the_limit() {
        let error = Error::TooLong { argument: "run_id", bytes: 1001, bytes_max: 1000 };
        assert_eq!(error.sqlstate(), "22023");
        assert!(error.detail().contains("1001") && error.detail().contains("1000"));
        assert_eq!(error.to_string(), "argument \"run_id\" is too long");
    }
}
