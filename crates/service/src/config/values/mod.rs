//! The types of values in a configuration, as people write them: amounts, hosts, paths, times.
//!
//! Always true: the text that a value is written as reads as the same value again, and no text causes a
//! panic.

mod amounts;
mod peers;
mod places;
mod times;

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Unexpected, Visitor};

pub use amounts::{ModeMask, RateValue, SizeValue, TimeSpan};
pub use peers::{ApiHostName, Cpus, DestinationUrl, Fingerprint, HostPattern, ListenAddress, NetworkValue};
pub use places::{AbsolutePath, SecretPlace};
pub use times::{TimeZoneName, WeeklyWindow};

/// A value that is written as text.
pub(crate) trait TextValue: Sized + fmt::Display {
    /// The words for it in an error: "a rate such as \"2G\"".
    const EXPECTED: &'static str;
    /// True if the text may be a secret by mistake, so that errors must not repeat it.
    const IS_SECRET: bool = false;

    fn read(text: &str) -> Option<Self>;

    /// Reads a number without a unit, where that makes sense.
    fn of_number(_number: u64) -> Option<Self> {
        None
    }
}

pub(crate) struct TextVisitor<T>(pub(crate) PhantomData<T>);

impl<T: TextValue> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::read(text).ok_or_else(|| refused::<T, E>(Unexpected::Str(text)))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        T::of_number(number).ok_or_else(|| refused::<T, E>(Unexpected::Unsigned(number)))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        let positive = u64::try_from(number).ok().and_then(T::of_number);
        positive.ok_or_else(|| refused::<T, E>(Unexpected::Signed(number)))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        Err(refused::<T, E>(Unexpected::Float(number)))
    }
}

fn refused<T: TextValue, E: de::Error>(found: Unexpected<'_>) -> E {
    match T::IS_SECRET {
        true => E::custom(format_args!("expected {}; the value is not shown here", T::EXPECTED)),
        false => E::invalid_value(found, &T::EXPECTED),
    }
}

/// Reads and writes types by their text.
macro_rules! written {
    ($($type:ty),*) => {
        $(
            impl<'de> serde::Deserialize<'de> for $type {
                fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    deserializer.deserialize_str(crate::config::values::TextVisitor(std::marker::PhantomData))
                }
            }

            impl serde::Serialize for $type {
                fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }
        )*
    };
}
pub(crate) use written;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Checks for each text whether it is a `T`, and what it is written as.
    pub(crate) fn check<T: TextValue>(table: &[(&str, Option<&str>)]) {
        for (text, expected) in table {
            let read = T::read(text);
            assert_eq!(read.as_ref().map(ToString::to_string).as_deref(), *expected, "{text:?}");
            if let Some(value) = read {
                let again = T::read(&value.to_string()).expect("what is written can be read");
                assert_eq!(again.to_string(), value.to_string(), "{text:?}");
            }
        }
    }
}
