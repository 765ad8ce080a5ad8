//! The documents that ask for a transfer, a read or a stream: JSON objects. Whoever has no command line
//! writes them: the service's jobs, bindings, programs that keep what they want in a file.
//!
//! How to read it: `options.rs` has the options, `transfer.rs` the documents of a copy, a sync and a verification,
//! `stream.rs` those of reads and streams, `connection.rs` how to get to the hosts in them.
//!
//! Always true: [`read`] refuses fields that it does not know, so that a mistyped name is an error and is not
//! silently ignored. Texts that name files are escaped as in reports: a byte that is not UTF-8 is `\xff`, a backslash
//! is `\\`.

mod connection;
mod options;
mod stream;
mod transfer;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use farhaul_copy::LocationSpec;
use farhaul_words::{Code, Error};
use serde::de::DeserializeOwned;

pub use connection::Connection;
pub use options::{BackupRules, EarlierRules, JobOptions, SelectRules};
pub use stream::{ListenDocument, ReadDocument, StreamDocument};
pub use transfer::{TransferDocument, VerifyDocument};

/// The most bytes of a location as it is written: a path of 4095 bytes of which each is escaped (`\xff`), with user
/// and host.
const LOCATION_MAX: usize = 17 << 10;

/// Reads a document. Errors call it `name`, and say where an unknown field is.
pub fn read<T: DeserializeOwned>(text: &[u8], name: &str) -> Result<T, Error> {
    let bad = |what: String| Error::new(Code::BadOption, format!("{name}: {what}"));
    if !text.trim_ascii_start().starts_with(b"{") {
        return Err(bad("it must be a JSON object".into()));
    }
    let mut unknown = None;
    let reader = &mut serde_json::Deserializer::from_slice(text);
    let document = serde_ignored::deserialize(&mut *reader, |path| {
        unknown.get_or_insert_with(|| path.to_string());
    })
    .map_err(|error| bad(error.to_string()))?;
    reader.end().map_err(|error| bad(error.to_string()))?;
    match unknown {
        Some(path) => {
            Err(bad(format!("there is no field '{}'", farhaul_text::printable(path.as_bytes(), 80))))
        }
        None => Ok(document),
    }
}

/// Parses a location of a document.
pub fn location(text: &str) -> Result<LocationSpec, Error> {
    if text.len() > LOCATION_MAX {
        let shown = farhaul_text::printable(text.as_bytes(), 200);
        return Err(Error::new(Code::BadLocation, format!("{shown}: a location has at most 17 KiB")));
    }
    LocationSpec::parse(&OsString::from_vec(bytes(text)?))
}

/// The bytes that a text of a document stands for.
pub fn bytes(text: &str) -> Result<Vec<u8>, Error> {
    let bad = || {
        let text = farhaul_text::printable(text.as_bytes(), 200);
        let what =
            format!("{text}: a backslash must be followed by x and two hex digits, or by another backslash");
        Error::new(Code::BadLocation, what)
    };
    farhaul_text::unescape(text).ok_or_else(bad)
}

fn bytes_of(texts: &[String]) -> Result<Vec<Vec<u8>>, Error> {
    texts.iter().map(|text| bytes(text)).collect()
}
