//! What a call can end with.

use tokio_postgres::error::SqlState;

/// What an error means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The call or the deployment is wrong; nothing was done. Repeating it changes nothing.
    Config,
    /// The database failed, or the connection did. The step is there whole or not at all; repeating the
    /// call with the same bytes is safe and tells.
    Storage,
    /// The caller's time was up, with the last attempt's error inside.
    Deadline,
}

/// An error of a call. `source` is the database's own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{message}")]
    Database { message: String, source: tokio_postgres::Error },

    #[error("no answer within the caller's deadline")]
    Deadline { source: Option<tokio_postgres::Error> },

    #[error("the payload cannot be encoded")]
    Encode { source: serde_json::Error },

    #[error("the stored payload cannot be decoded")]
    Decode { source: serde_json::Error },
}

impl Error {
    pub fn kind(&self) -> Kind {
        match self {
            Error::Deadline { .. } => Kind::Deadline,
            Error::Encode { .. } | Error::Decode { .. } => Kind::Config,
            Error::Database { source, .. } => match source.code() {
                Some(code) if is_config(code) => Kind::Config,
                _ => Kind::Storage,
            },
        }
    }

    /// The SQLSTATE, where the server gave one.
    pub fn sqlstate(&self) -> Option<&str> {
        match self {
            Error::Database { source, .. } | Error::Deadline { source: Some(source) } => {
                source.code().map(SqlState::code)
            }
            _ => None,
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(source: tokio_postgres::Error) -> Self {
        let message = match source.as_db_error() {
            Some(error) => match error.hint() {
                Some(hint) => format!("{} ({hint})", error.message()),
                None => error.message().to_owned(),
            },
            None => source.to_string(),
        };
        Error::Database { message, source }
    }
}

/// Refusals: of arguments, of rights, of the state that something is in.
fn is_config(code: &SqlState) -> bool {
    let code = code.code();
    ["22", "42", "0A", "25", "3F"].iter().any(|class| code.starts_with(class))
        || code == SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE.code()
        || code == SqlState::PROGRAM_LIMIT_EXCEEDED.code()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_config_and_failures_are_not() {
        for code in ["22004", "22023", "42501", "42704", "25001", "55000", "54000", "0A000"] {
            assert!(is_config(&SqlState::from_code(code)), "{code}");
        }
        for code in ["40001", "57014", "57P01", "53200", "08006", "55P03"] {
            assert!(!is_config(&SqlState::from_code(code)), "{code}");
        }
    }
}
