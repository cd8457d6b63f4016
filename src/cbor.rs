//! JSON and CBOR (RFC 8949) for payloads, through `serde_cbor`.
//!
//! Only what both can say is converted, and never with a loss: a number that a double cannot hold, a
//! byte string, an integer key is an error, not something close to it.

use crate::error::Error;
use serde_cbor::Value;
use std::collections::BTreeMap;

/// The decoder's own limit, so that whatever is encoded can be decoded again.
pub const DEPTH_MAX: usize = 120;

/// A JSON number, written as Postgres writes it, as the CBOR value that is exactly it.
pub fn number(text: &str) -> Result<Value, Error> {
    if let Ok(integer) = text.parse::<i128>()
        && (-(1i128 << 64)..(1i128 << 64)).contains(&integer)
    {
        return Ok(Value::Integer(integer));
    }
    let loss = || Error::NumberLoss { number: shorten(text) };
    let float: f64 = text.parse().map_err(|_| loss())?;
    if !float.is_finite() || decimal(text) != decimal(&format!("{float:e}")) {
        return Err(loss());
    }
    Ok(Value::Float(float))
}

/// The bytes of a value: map keys in canonical order, so equal documents have equal bytes.
pub fn encode(value: &Value) -> Result<Vec<u8>, Error> {
    serde_cbor::to_vec(value).map_err(|error| Error::JsonNotCbor { what: error.to_string() })
}

/// The JSON text of one CBOR item.
pub fn to_json(bytes: &[u8]) -> Result<String, Error> {
    let value: Value = serde_cbor::from_slice(bytes)
        .map_err(|error| Error::CborInvalid { reason: error.to_string() })?;
    let mut json = String::with_capacity(bytes.len() * 2);
    write(&mut json, &value)?;
    Ok(json)
}

fn write(json: &mut String, value: &Value) -> Result<(), Error> {
    let not_json = |what: &str| Err(Error::CborNotJson { what: what.into() });
    match value {
        Value::Null => json.push_str("null"),
        Value::Bool(truth) => json.push_str(if *truth { "true" } else { "false" }),
        Value::Integer(integer) => json.push_str(&integer.to_string()),
        Value::Float(float) if float.is_finite() => json.push_str(&format!("{float:?}")),
        Value::Float(_) => return not_json("a NaN or an infinity"),
        Value::Text(text) => write_text(json, text)?,
        Value::Array(items) => {
            json.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    json.push(',');
                }
                write(json, item)?;
            }
            json.push(']');
        }
        Value::Map(entries) => write_map(json, entries)?,
        Value::Bytes(_) => return not_json("a byte string"),
        // Tags are dropped by the decoder; the enum may grow.
        _ => return not_json("an item that JSON has no word for"),
    }
    Ok(())
}

fn write_map(json: &mut String, entries: &BTreeMap<Value, Value>) -> Result<(), Error> {
    json.push('{');
    for (at, (key, value)) in entries.iter().enumerate() {
        let Value::Text(key) = key else {
            return Err(Error::CborNotJson { what: "a map key that is not a text".into() });
        };
        if at > 0 {
            json.push(',');
        }
        write_text(json, key)?;
        json.push(':');
        write(json, value)?;
    }
    json.push('}');
    Ok(())
}

fn write_text(json: &mut String, text: &str) -> Result<(), Error> {
    if text.contains('\0') {
        return Err(Error::CborNotJson {
            what: "the character NUL, which jsonb cannot hold".into(),
        });
    }
    json.push_str(&serde_json::to_string(text).expect("a str always serializes"));
    Ok(())
}

/// Sign, significant digits and exponent: equal for equal numbers, however they are written.
fn decimal(text: &str) -> (bool, String, i64) {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let mut exponent: i64 = exponent.parse().unwrap_or(0);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    exponent -= fraction.len() as i64;
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return (false, String::new(), 0);
    }
    (negative, significant.to_owned(), exponent + (digits.len() - significant.len()) as i64)
}

/// A numeric can have 130,000 digits; a message should not.
fn shorten(number: &str) -> String {
    if number.len() <= 40 { number.to_owned() } else { format!("{}…", &number[..40]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_exact_or_refused() {
        assert_eq!(number("18446744073709551615"), Ok(Value::Integer(u64::MAX.into())));
        assert_eq!(number("-18446744073709551616"), Ok(Value::Integer(-(1i128 << 64))));
        assert_eq!(number("0.1"), Ok(Value::Float(0.1)));
        assert_eq!(number("1.10"), Ok(Value::Float(1.1)));
        assert_eq!(number("1000000000000000000000000000000"), Ok(Value::Float(1e30)));
        for lost in ["18446744073709551617", "0.10000000000000000000001", "1e400", "1e-400"] {
            assert!(matches!(number(lost), Err(Error::NumberLoss { .. })), "{lost}");
        }
    }

    #[test]
    fn what_json_cannot_say_is_refused() {
        // h'00', {1: 2}, NaN, "\0"
        for cbor in [&[0x41, 0][..], &[0xa1, 1, 2], &[0xf9, 0x7e, 0], &[0x61, 0]] {
            assert!(matches!(to_json(cbor), Err(Error::CborNotJson { .. })), "{cbor:x?}");
        }
    }

    #[test]
    fn what_is_not_one_item_is_refused() {
        for cbor in [&[][..], &[0x1c], &[0x82, 1], &[1, 1], &[0x62, 0xff, 0xff]] {
            assert!(matches!(to_json(cbor), Err(Error::CborInvalid { .. })), "{cbor:x?}");
        }
        assert!(matches!(to_json(&[0x81; 100_000]), Err(Error::CborInvalid { .. })));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(|n| Value::Integer(n.into())),
            "[^\0]{0,12}".prop_map(Value::Text),
            proptest::num::f64::NORMAL.prop_map(Value::Float),
        ];
        leaf.prop_recursive(5, 64, 8, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
                proptest::collection::btree_map("[^\0]{0,6}".prop_map(Value::Text), inner, 0..8)
                    .prop_map(Value::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_document_survives_both_ways(value in any_json()) {
            let json = to_json(&encode(&value).unwrap()).unwrap();
            let back: serde_json::Value = serde_json::from_str(&json).unwrap();
            let direct: serde_json::Value = serde_cbor::value::from_value(value).unwrap();
            prop_assert_eq!(back, direct);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = to_json(&bytes);
        }

        #[test]
        fn a_double_that_is_written_out_is_exact(float in proptest::num::f64::NORMAL) {
            let text = format!("{float}");
            match number(&text).unwrap() {
                Value::Float(back) => prop_assert_eq!(back, float),
                Value::Integer(integer) => prop_assert_eq!(integer as f64, float),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
