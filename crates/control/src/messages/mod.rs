//! The messages between a client and a daemon that it steers, as values and as bytes; docs/reference/wire.md
//! has the table.
//!
//! Always true: decoding never panics, and allocates no more than a few times the bytes at hand.

use std::os::unix::ffi::OsStrExt as _;

use farhaul_connect::hello::HelloSecret;
use farhaul_connect::{ContentDirection, Errand, PathPrefixes};
use farhaul_session::codec::{
    ByteReader, Malformed, put_bytes, put_failure, put_numbers, put_reason, put_varint,
};
use farhaul_session::messages::{decode_rate, put_message, put_rate};
use farhaul_session::options::RateOptions;
use farhaul_words::{Error, Failure};

/// The most bytes of a path, as on Linux.
const PATH_MAX: usize = 4095;
/// The most bytes of a fingerprint as text: `SHA256:` and 43 characters.
const KEY_MAX: usize = 64;
/// The most bytes of one part of a document.
pub(crate) const PART_MAX: usize = 32 << 10;
/// The most characters of a daemon's text that people are shown.
const TEXT_CHARS: usize = 1000;
/// The most bytes of a JSON document in a single message.
pub(crate) const DOCUMENT_MAX: usize = 60 << 10;

#[derive(Debug, Clone, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum ControlMessage {
    // Client to daemon.
    /// Let the holder of this key run this errand here, if it begins within this many seconds.
    Grant {
        op: u64,
        key: String,
        errand: Errand,
        seconds: u64,
    },
    /// Begin a copy with another daemon: the next part of its commission.
    Begin {
        op: u64,
        is_last: bool,
        part: Vec<u8>,
    },
    /// Pause or resume the running copy; the client counts these messages from 1 on.
    Hold {
        number: u64,
        is_held: bool,
    },
    /// Set the rate of the copy's sender.
    Rate(RateOptions),
    /// End the copy.
    Cancel,

    // Daemon to client.
    Granted {
        op: u64,
        seconds: u64,
        token: HelloSecret,
    },
    Refused {
        op: u64,
        failure: Failure,
        hint: String,
    },
    /// An event of the copy, as JSON.
    Event(Vec<u8>),
    /// A snapshot of the copy, as JSON, from after the *hold* with this number; 0 if none has come.
    Snapshot {
        hold: u64,
        json: Vec<u8>,
    },
    /// The copy has ended: the next part of the document that says how.
    Ended {
        op: u64,
        is_last: bool,
        part: Vec<u8>,
    },
    /// The fates of the entries: the next part of the copy's manifest.
    Entries {
        op: u64,
        part: Vec<u8>,
    },
}

const DELETES: u64 = 1;
const FOLLOWS: u64 = 2;
const WITHIN: u64 = 4;
const LOOKS_BESIDE: u64 = 8;
const WRITES_BESIDE: u64 = 16;

impl ControlMessage {
    /// Appends the message and the length before it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_message(out, |out| self.encode_body(out));
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            ControlMessage::Grant { op, key, errand, seconds } => {
                let Errand { way, path, deletes, follows, looks_beside, writes_beside, within } = errand;
                let way = match way {
                    ContentDirection::Read => 0,
                    ContentDirection::Write => 1,
                };
                let marks = [
                    (*deletes, DELETES),
                    (*follows, FOLLOWS),
                    (within.is_some(), WITHIN),
                    (*looks_beside, LOOKS_BESIDE),
                    (*writes_beside, WRITES_BESIDE),
                ];
                let more = marks.iter().filter(|(is_set, _)| *is_set).map(|(_, mark)| mark).sum();
                put_numbers(out, 90, &[*op, *seconds, way, more]);
                put_bytes(out, key.as_bytes());
                put_bytes(out, path);
                if let Some(within) = within {
                    put_varint(out, within.directories().len() as u64);
                    within.directories().iter().for_each(|path| put_bytes(out, path.as_os_str().as_bytes()));
                }
            }
            ControlMessage::Begin { op, is_last, part } => {
                put_numbers(out, 91, &[*op, u64::from(*is_last)]);
                put_bytes(out, part);
            }
            ControlMessage::Hold { number, is_held } => {
                put_numbers(out, 92, &[*number, u64::from(*is_held)]);
            }
            ControlMessage::Rate(rate) => put_rate(out, 93, rate),
            ControlMessage::Cancel => put_numbers(out, 94, &[]),
            ControlMessage::Granted { op, seconds, token } => {
                put_numbers(out, 95, &[*op, *seconds]);
                out.extend_from_slice(&token.0);
            }
            ControlMessage::Refused { op, failure, hint } => {
                put_numbers(out, 96, &[*op]);
                put_failure(out, failure);
                put_reason(out, hint);
            }
            ControlMessage::Event(json) => {
                put_numbers(out, 97, &[]);
                put_bytes(out, json);
            }
            ControlMessage::Snapshot { hold, json } => {
                put_numbers(out, 98, &[*hold]);
                put_bytes(out, json);
            }
            ControlMessage::Ended { op, is_last, part } => {
                put_numbers(out, 99, &[*op, u64::from(*is_last)]);
                put_bytes(out, part);
            }
            ControlMessage::Entries { op, part } => {
                put_numbers(out, 100, &[*op]);
                put_bytes(out, part);
            }
        }
    }

    /// Decodes a message: its code and body, without the length.
    pub(crate) fn decode(bytes: &[u8]) -> Result<ControlMessage, Malformed> {
        let mut reader = ByteReader(bytes);
        let message = match reader.byte()? {
            90 => {
                let (op, seconds, way, more) =
                    (reader.varint()?, reader.varint()?, reader.varint()?, reader.varint()?);
                let way = match way {
                    0 => ContentDirection::Read,
                    1 => ContentDirection::Write,
                    _ => return Err(Malformed),
                };
                if more & !(DELETES | FOLLOWS | WITHIN | LOOKS_BESIDE | WRITES_BESIDE) != 0 {
                    return Err(Malformed);
                }
                let key = key(&mut reader)?;
                let (deletes, follows) = (more & DELETES != 0, more & FOLLOWS != 0);
                let looks_beside = more & LOOKS_BESIDE != 0;
                let writes_beside = more & WRITES_BESIDE != 0;
                let path = path(&mut reader)?;
                let within = if more & WITHIN == 0 { None } else { Some(prefixes(&mut reader)?) };
                let errand = Errand { way, path, deletes, follows, looks_beside, writes_beside, within };
                ControlMessage::Grant { op, key, errand, seconds }
            }
            91 => {
                let (op, is_last) = (reader.varint()?, reader.flag()?);
                ControlMessage::Begin { op, is_last, part: document(&mut reader, PART_MAX)? }
            }
            92 => ControlMessage::Hold { number: reader.varint()?, is_held: reader.flag()? },
            93 => ControlMessage::Rate(decode_rate(&mut reader)?),
            94 => ControlMessage::Cancel,
            95 => {
                let (op, seconds) = (reader.varint()?, reader.varint()?);
                ControlMessage::Granted { op, seconds, token: HelloSecret(reader.array()?) }
            }
            96 => {
                let op = reader.varint()?;
                ControlMessage::Refused { op, failure: reader.failure()?, hint: reader.text()? }
            }
            97 => ControlMessage::Event(document(&mut reader, DOCUMENT_MAX)?),
            98 => {
                let hold = reader.varint()?;
                ControlMessage::Snapshot { hold, json: document(&mut reader, DOCUMENT_MAX)? }
            }
            99 => {
                let (op, is_last) = (reader.varint()?, reader.flag()?);
                ControlMessage::Ended { op, is_last, part: document(&mut reader, PART_MAX)? }
            }
            100 => ControlMessage::Entries { op: reader.varint()?, part: document(&mut reader, PART_MAX)? },
            _ => return Err(Malformed),
        };
        if reader.is_empty() { Ok(message) } else { Err(Malformed) }
    }

    /// The answer to an operation that fails.
    pub(crate) fn refused(op: u64, error: &Error) -> ControlMessage {
        let hint = error.hint().unwrap_or_default().to_string();
        ControlMessage::Refused { op, failure: Failure::new(error.code(), error.to_string()), hint }
    }

    /// The message's name, for errors.
    pub(crate) fn name(&self) -> &'static str {
        self.into()
    }
}

/// The error for a refusal of the far end, as this end's user sees it.
pub(crate) fn refusal(failure: Failure, hint: String) -> Error {
    let clean = |text: String| {
        text.chars().filter(|&char| !farhaul_text::is_unprintable(char)).take(TEXT_CHARS).collect::<String>()
    };
    let Failure { code, reason } = failure;
    let hint = clean(hint);
    let error = Error::of_peer(code.exit_code() as u8, Some(code), true, clean(reason));
    error.with_hint_if((!hint.is_empty()).then_some(hint))
}

/// Cuts a document into parts; the flag marks the last one.
pub(crate) fn parts(document: &[u8]) -> impl Iterator<Item = (bool, Vec<u8>)> + '_ {
    let count = document.len().div_ceil(PART_MAX).max(1);
    (0..count).map(move |number| {
        let begin = number * PART_MAX;
        let end = (begin + PART_MAX).min(document.len());
        (number + 1 == count, document[begin..end].to_vec())
    })
}

/// Joins the parts of a document.
#[derive(Debug, Default)]
pub(crate) struct DocumentParts(Vec<u8>);

impl DocumentParts {
    /// The number of bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a part; returns the document once it is complete. It has at most `most` bytes.
    pub(crate) fn take(&mut self, is_last: bool, part: &[u8], most: usize) -> Result<Option<Vec<u8>>, Error> {
        if self.0.len() + part.len() > most {
            let what = format!("it has sent a document of more than {most} bytes");
            return Err(Error::misbehaved(farhaul_words::Misbehaviour::SenselessMessage, what));
        }
        self.0.extend_from_slice(part);
        Ok(is_last.then(|| std::mem::take(&mut self.0)))
    }
}

fn key(reader: &mut ByteReader<'_>) -> Result<String, Malformed> {
    let key = reader.bytes()?;
    if key.len() > KEY_MAX || !key.iter().all(u8::is_ascii_graphic) {
        return Err(Malformed);
    }
    Ok(String::from_utf8_lossy(key).into_owned())
}

fn path(reader: &mut ByteReader<'_>) -> Result<Vec<u8>, Malformed> {
    let path = reader.bytes()?;
    if path.len() > PATH_MAX || path.contains(&0) {
        return Err(Malformed);
    }
    Ok(path.to_vec())
}

fn prefixes(reader: &mut ByteReader<'_>) -> Result<PathPrefixes, Malformed> {
    let mut directories = Vec::new();
    for _ in 0..reader.varint()? {
        directories.push(path(reader)?);
    }
    PathPrefixes::try_from(directories).map_err(|_| Malformed)
}

fn document(reader: &mut ByteReader<'_>, most: usize) -> Result<Vec<u8>, Malformed> {
    let bytes = reader.bytes()?;
    if bytes.len() > most { Err(Malformed) } else { Ok(bytes.to_vec()) }
}

#[cfg(test)]
mod tests;
