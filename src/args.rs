//! Checked input. What stands in one of these types has been validated; nothing below re-checks it.
//!
//! Ids are bytes in the server's encoding: Postgres has validated them as text, and bide compares them
//! byte by byte (collation "C") whatever the encoding is.

use crate::error::Error;

/// Two ids and an index row's overhead must fit into a third of a page (2704 bytes at 8 kB pages).
pub const ID_BYTES_MAX: usize = 1000;

/// Rows that one `load` or `runs` may be asked for.
pub const PAGE_ROWS_MAX: i32 = 10_000;

/// Runs that one `purge_finished` may be asked for: each takes a lock.
pub const PURGE_RUNS_MAX: i32 = 1_000;

/// A page of `load` ends at the first step that reaches this many bytes of payload.
pub const PAGE_BYTES_MAX: usize = 8 << 20;

/// The entries that end a run. Fixed: an index is built on exactly these.
pub const END_NAMES: [&str; 3] = ["run:complete", "run:aborted", "run:cancelled"];

/// A run's id: 1 to [`ID_BYTES_MAX`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId<'a>(&'a [u8]);

/// A step's name: 1 to [`ID_BYTES_MAX`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepName<'a>(&'a [u8]);

impl<'a> RunId<'a> {
    pub fn arg(argument: &'static str, value: Option<&'a [u8]>) -> Result<Self, Error> {
        id(argument, value).map(Self)
    }

    /// An id that was read from the table.
    pub fn stored(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// For messages only.
    pub fn display(self) -> String {
        display(self.0)
    }
}

impl<'a> StepName<'a> {
    pub fn arg(argument: &'static str, value: Option<&'a [u8]>) -> Result<Self, Error> {
        id(argument, value).map(Self)
    }

    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    pub fn display(self) -> String {
        display(self.0)
    }
}

/// A name or id for a message; where the server's encoding is not UTF-8, other bytes than ASCII escaped.
pub fn display(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

/// Refuses NULL: a NULL that looked like an answer ("not granted", "no fence") would do harm.
pub fn required<T>(argument: &'static str, value: Option<T>) -> Result<T, Error> {
    value.ok_or(Error::NullArgument { argument })
}

/// A text that may be empty ("from the beginning") but not longer than an id.
pub fn optional_id<'a>(argument: &'static str, value: Option<&'a [u8]>) -> Result<&'a [u8], Error> {
    let bytes = required(argument, value)?;
    if bytes.len() > ID_BYTES_MAX {
        return Err(Error::TooLong { argument, bytes: bytes.len(), bytes_max: ID_BYTES_MAX });
    }
    Ok(bytes)
}

fn id<'a>(argument: &'static str, value: Option<&'a [u8]>) -> Result<&'a [u8], Error> {
    let bytes = optional_id(argument, value)?;
    if bytes.is_empty() {
        return Err(Error::Empty { argument });
    }
    Ok(bytes)
}

/// A payload: any bytes, zero bytes too, up to `bide.max_data`.
pub fn payload<'a>(
    argument: &'static str,
    value: Option<&'a [u8]>,
    bytes_max: usize,
) -> Result<&'a [u8], Error> {
    let bytes = required(argument, value)?;
    if bytes.len() > bytes_max {
        return Err(Error::PayloadTooLarge { bytes: bytes.len(), bytes_max });
    }
    Ok(bytes)
}

/// A number of rows, 1 to `max`.
pub fn limit(argument: &'static str, value: Option<i32>, max: i32) -> Result<usize, Error> {
    let given = required(argument, value)?;
    if given < 1 || given > max {
        return Err(Error::OutOfRange { argument, given: given.into(), min: 1, max: max.into() });
    }
    Ok(given as usize)
}

/// No element of an array may be NULL.
pub fn elements<'a>(
    argument: &'static str,
    value: Option<Vec<Option<&'a [u8]>>>,
) -> Result<Vec<&'a [u8]>, Error> {
    required(argument, value)?
        .into_iter()
        .enumerate()
        .map(|(at, element)| element.ok_or(Error::NullElement { argument, index: at + 1 }))
        .collect()
}

/// The steps of one `insert_many`, checked as a whole before the first is written.
pub fn steps<'a>(
    names: Option<Vec<Option<&'a [u8]>>>,
    data: Option<Vec<Option<&'a [u8]>>>,
    bytes_max: usize,
) -> Result<Vec<(StepName<'a>, &'a [u8])>, Error> {
    let names = elements("names", names)?;
    let data = elements("data", data)?;
    if names.len() != data.len() {
        return Err(Error::LengthsDiffer {
            first: "names",
            first_len: names.len(),
            second: "data",
            second_len: data.len(),
        });
    }
    names
        .into_iter()
        .zip(data)
        .map(|(name, data)| {
            Ok((StepName::arg("names", Some(name))?, payload("data", Some(data), bytes_max)?))
        })
        .collect()
}

/// What a later version gives a meaning to: anything but the default is refused, NULL as NULL.
pub fn only_default<T: PartialEq>(
    argument: &'static str,
    value: Option<T>,
    default: T,
    text: &'static str,
) -> Result<(), Error> {
    if required(argument, value)? != default {
        return Err(Error::NotSupported { argument, default: text });
    }
    Ok(())
}

/// `fence`: negative is no fence at all, above zero is not supported yet.
pub fn fence(value: Option<i64>) -> Result<(), Error> {
    if let Some(given) = value
        && given < 0
    {
        return Err(Error::OutOfRange { argument: "fence", given, min: 0, max: i64::MAX });
    }
    only_default("fence", value, 0, "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_refused_when_null_empty_or_over_long() {
        assert_eq!(RunId::arg("run_id", None), Err(Error::NullArgument { argument: "run_id" }));
        assert_eq!(RunId::arg("run_id", Some(b"")), Err(Error::Empty { argument: "run_id" }));
        let long = vec![b'x'; ID_BYTES_MAX + 1];
        assert!(matches!(RunId::arg("run_id", Some(&long)), Err(Error::TooLong { .. })));
        assert!(RunId::arg("run_id", Some(&long[1..])).is_ok());
    }

    #[test]
    fn ids_in_another_encoding_are_legible_in_messages() {
        assert_eq!(display("rün".as_bytes()), "rün");
        assert_eq!(display(b"r\xfcn"), "r\\xfcn");
    }

    #[test]
    fn a_payload_of_zero_bytes_is_legal_and_one_over_the_cap_is_not() {
        assert_eq!(payload("data", Some(b""), 3), Ok(&b""[..]));
        assert_eq!(payload("data", Some(b"abc"), 3), Ok(&b"abc"[..]));
        assert_eq!(
            payload("data", Some(b"abcd"), 3),
            Err(Error::PayloadTooLarge { bytes: 4, bytes_max: 3 })
        );
    }

    #[test]
    fn limits_of_zero_or_less_or_beyond_the_cap_are_refused() {
        assert!(limit("max_rows", Some(0), 5).is_err());
        assert!(limit("max_rows", Some(-1), 5).is_err());
        assert!(limit("max_rows", Some(6), 5).is_err());
        assert_eq!(limit("max_rows", Some(5), 5), Ok(5));
    }

    #[test]
    fn arrays_must_be_of_one_length_and_without_nulls() {
        let two = || Some(vec![Some(&b"a"[..]), Some(b"b")]);
        assert!(steps(two(), two(), 9).is_ok());
        assert!(matches!(
            steps(two(), Some(vec![Some(b"a")]), 9),
            Err(Error::LengthsDiffer { first_len: 2, second_len: 1, .. })
        ));
        assert!(matches!(
            steps(Some(vec![Some(b"a"), None]), two(), 9),
            Err(Error::NullElement { argument: "names", index: 2 })
        ));
    }

    #[test]
    fn a_fence_is_refused_until_there_are_leases() {
        assert_eq!(fence(Some(0)), Ok(()));
        assert!(matches!(fence(Some(-1)), Err(Error::OutOfRange { .. })));
        assert!(matches!(fence(Some(7)), Err(Error::NotSupported { .. })));
        assert!(matches!(fence(None), Err(Error::NullArgument { .. })));
    }
}
