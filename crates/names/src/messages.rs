//! The messages of the two ends, as values and as bytes; docs/reference/wire.md has the table.
//!
//! Always true: decoding never panics, and allocates at most a few times the bytes at hand.

use farhaul_session::codec::{
    ByteReader, Malformed, put_bytes, put_failure, put_numbers, put_signed, put_varint,
};
use farhaul_session::messages::put_message;
use farhaul_volume::FileTime;
use farhaul_words::Failure;

/// The most bytes of a path on Linux.
const PATH_MAX: usize = 4095;

/// What may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoveExtent {
    /// A file, a link or another entry that is no directory.
    File,
    /// An empty directory.
    EmptyDirectory,
    /// Anything, and everything in it.
    Tree,
}

/// What a rename may do about an entry that has the new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameRule {
    /// The rename fails.
    Keep,
    /// A file or a link is replaced; so is an empty directory, by a directory.
    Replace,
}

/// What a rename does if a directory has the new name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntoDirectory {
    /// The directory is in the way, as any other entry is.
    Never,
    /// The directory takes the entry, under the entry's old name.
    IfThere,
    /// The same; without a directory the rename fails.
    Must,
}

#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum NamesMessage {
    // From client to server.
    /// Makes a directory; with `parents` those above it, too, and it may be there.
    MakeDirectory {
        op: u64,
        path: Vec<u8>,
        parents: bool,
    },
    /// Gives an entry another name.
    Rename {
        op: u64,
        from: Vec<u8>,
        to: Vec<u8>,
        into: IntoDirectory,
        rule: RenameRule,
    },
    Remove {
        op: u64,
        path: Vec<u8>,
        extent: RemoveExtent,
    },
    /// Sets the time of the last change of the content; a link itself gets it.
    SetTime {
        op: u64,
        path: Vec<u8>,
        mtime: FileTime,
    },

    // From server to client.
    Changed {
        op: u64,
    },
    Failed {
        op: u64,
        failure: Failure,
    },
}

impl IntoDirectory {
    const ALL: [IntoDirectory; 3] = [IntoDirectory::Never, IntoDirectory::IfThere, IntoDirectory::Must];

    fn number(self) -> u64 {
        IntoDirectory::ALL.iter().position(|into| *into == self).unwrap_or_default() as u64
    }

    fn of_number(number: u64) -> Result<IntoDirectory, Malformed> {
        usize::try_from(number)
            .ok()
            .and_then(|number| IntoDirectory::ALL.get(number))
            .copied()
            .ok_or(Malformed)
    }
}

impl RemoveExtent {
    const ALL: [RemoveExtent; 3] = [RemoveExtent::File, RemoveExtent::EmptyDirectory, RemoveExtent::Tree];

    fn number(self) -> u64 {
        RemoveExtent::ALL.iter().position(|extent| *extent == self).unwrap_or_default() as u64
    }

    fn of_number(number: u64) -> Result<RemoveExtent, Malformed> {
        usize::try_from(number)
            .ok()
            .and_then(|number| RemoveExtent::ALL.get(number))
            .copied()
            .ok_or(Malformed)
    }
}

impl NamesMessage {
    /// Appends the message, behind its length.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_message(out, |out| match self {
            NamesMessage::MakeDirectory { op, path, parents } => {
                put_numbers(out, 104, &[*op, u64::from(*parents)]);
                put_bytes(out, path);
            }
            NamesMessage::Rename { op, from, to, into, rule } => {
                put_numbers(out, 105, &[*op, into.number(), u64::from(*rule == RenameRule::Replace)]);
                put_bytes(out, from);
                put_bytes(out, to);
            }
            NamesMessage::Remove { op, path, extent } => {
                put_numbers(out, 106, &[*op, extent.number()]);
                put_bytes(out, path);
            }
            NamesMessage::SetTime { op, path, mtime } => {
                put_numbers(out, 107, &[*op]);
                put_signed(out, mtime.secs);
                put_varint(out, u64::from(mtime.nanos));
                put_bytes(out, path);
            }
            NamesMessage::Changed { op } => put_numbers(out, 108, &[*op]),
            NamesMessage::Failed { op, failure } => {
                put_numbers(out, 109, &[*op]);
                put_failure(out, failure);
            }
        });
    }

    /// Decodes a code and a body.
    pub(crate) fn decode(bytes: &[u8]) -> Result<NamesMessage, Malformed> {
        let mut reader = ByteReader(bytes);
        let message = match reader.byte()? {
            104 => {
                let (op, parents) = (reader.varint()?, reader.flag()?);
                NamesMessage::MakeDirectory { op, parents, path: path(&mut reader)? }
            }
            105 => {
                let (op, into) = (reader.varint()?, IntoDirectory::of_number(reader.varint()?)?);
                let rule = if reader.flag()? { RenameRule::Replace } else { RenameRule::Keep };
                NamesMessage::Rename { op, into, rule, from: path(&mut reader)?, to: path(&mut reader)? }
            }
            106 => {
                let (op, extent) = (reader.varint()?, RemoveExtent::of_number(reader.varint()?)?);
                NamesMessage::Remove { op, extent, path: path(&mut reader)? }
            }
            107 => {
                let (op, secs) = (reader.varint()?, reader.signed()?);
                let mtime = FileTime::new(secs, reader.u32()?);
                NamesMessage::SetTime { op, mtime, path: path(&mut reader)? }
            }
            108 => NamesMessage::Changed { op: reader.varint()? },
            109 => NamesMessage::Failed { op: reader.varint()?, failure: reader.failure()? },
            _ => return Err(Malformed),
        };
        if reader.is_empty() { Ok(message) } else { Err(Malformed) }
    }

    /// The name of the message, for errors.
    pub(crate) fn name(&self) -> &'static str {
        self.into()
    }
}

fn path(reader: &mut ByteReader<'_>) -> Result<Vec<u8>, Malformed> {
    let path = reader.bytes()?;
    if path.len() > PATH_MAX || path.contains(&0) {
        return Err(Malformed);
    }
    Ok(path.to_vec())
}

#[cfg(test)]
mod tests {
    use farhaul_words::Code;
    use proptest::prelude::*;

    use super::*;

    fn messages() -> Vec<NamesMessage> {
        let failure = Failure::new(Code::AlreadyExists, "something of that name is there");
        let mtime = FileTime::new(-5, 999_999_999);
        let rename = |into, rule| NamesMessage::Rename {
            op: 300,
            from: b"run7".to_vec(),
            to: b"/old/\xff".to_vec(),
            into,
            rule,
        };
        vec![
            NamesMessage::MakeDirectory { op: 1, path: b"run7/\xff".to_vec(), parents: true },
            NamesMessage::MakeDirectory { op: 1, path: b"x".to_vec(), parents: false },
            rename(IntoDirectory::IfThere, RenameRule::Keep),
            rename(IntoDirectory::Never, RenameRule::Replace),
            rename(IntoDirectory::Must, RenameRule::Keep),
            NamesMessage::Remove { op: 2, path: b"a".to_vec(), extent: RemoveExtent::File },
            NamesMessage::Remove { op: 2, path: b"a".to_vec(), extent: RemoveExtent::EmptyDirectory },
            NamesMessage::Remove { op: 2, path: Vec::new(), extent: RemoveExtent::Tree },
            NamesMessage::SetTime { op: 3, path: b"a".to_vec(), mtime },
            NamesMessage::Changed { op: u64::MAX },
            NamesMessage::Failed { op: 7, failure },
        ]
    }

    fn bytes(message: &NamesMessage) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        bytes
    }

    #[test]
    fn every_message_has_the_bytes_of_this_version() {
        let all: Vec<_> =
            messages().iter().map(|message| (message.name().to_string(), bytes(message))).collect();
        farhaul_vectors::compare("names", &all);
    }

    #[test]
    fn messages_of_releases_are_read() {
        for (release, messages) in farhaul_vectors::of_releases("names") {
            for (name, bytes) in messages {
                let read = NamesMessage::decode(ByteReader(&bytes).bytes().unwrap());
                assert_eq!(read.map(|message| message.name()), Ok(name.as_str()), "{release}");
            }
        }
    }

    #[test]
    fn every_message_comes_back() {
        for message in messages() {
            let bytes = bytes(&message);
            let body = ByteReader(&bytes).bytes().unwrap();
            assert_eq!(NamesMessage::decode(body), Ok(message));
            assert_eq!(NamesMessage::decode(&[body, &[0]].concat()), Err(Malformed));
        }
    }

    #[test]
    fn what_no_path_can_be_is_refused() {
        for path in [b"a\0b".to_vec(), vec![b'a'; PATH_MAX + 1]] {
            let bytes = bytes(&NamesMessage::Remove { op: 1, path, extent: RemoveExtent::File });
            let body = ByteReader(&bytes).bytes().unwrap();
            assert_eq!(NamesMessage::decode(body), Err(Malformed));
        }
        assert_eq!(NamesMessage::decode(&[106, 1, 3, 1, b'a']), Err(Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = NamesMessage::decode(&bytes);
        }
    }
}
