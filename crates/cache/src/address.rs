//! The address of a chunk: who reads, where the file is, which version of it, and which part.
//!
//! Always true: two addresses are equal only if all of this is.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The length of a chunk; the last one of a file is shorter.
pub const CHUNK: usize = 1 << 20;

/// The length of a digest and of an address.
pub(crate) const DIGEST: usize = 32;
/// The bytes of the check in the target of a link.
const CHECK: usize = 6;

/// The place of files, as somebody sees it: what one identity may read there need not be what another one may.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Place {
    /// The identity of whoever reads: the fingerprint of its key, or the name of its account.
    pub identity: String,
    /// The far host, as it was named.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The key by which the far host is known; empty if another program has checked that, such as ssh.
    pub key: String,
}

/// A version of a file. Whatever changes its content changes one of these.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FileVersion {
    /// Its path at the place.
    pub path: Vec<u8>,
    /// The size in bytes.
    pub size: u64,
    /// When the content was last changed: seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// When anything about the file was last changed; nobody can set this time back.
    pub ctime: (i64, u32),
    /// The number of the inode.
    pub inode: u64,
}

/// The address of a chunk of a version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkAddress([u8; DIGEST]);

impl ChunkAddress {
    /// The address of the chunk at `index` times [`CHUNK`].
    pub fn new(place: &Place, file: &FileVersion, index: u64) -> ChunkAddress {
        let mut hasher = blake3::Hasher::new_derive_key("farhaul cache 1: address of a chunk");
        for text in [place.identity.as_bytes(), place.host.as_bytes(), place.key.as_bytes(), &file.path] {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text);
        }
        hasher.update(&place.port.to_le_bytes());
        for (secs, nanos) in [file.mtime, file.ctime] {
            hasher.update(&secs.to_le_bytes());
            hasher.update(&nanos.to_le_bytes());
        }
        for number in [file.size, file.inode, index] {
            hasher.update(&number.to_le_bytes());
        }
        ChunkAddress(*hasher.finalize().as_bytes())
    }

    /// The name of the link at this address.
    pub(crate) fn name(&self) -> String {
        name_of(&self.0)
    }

    /// The target of that link, if the chunk has this digest. The check shows a target that is not whole, or that
    /// belongs to another address. The whole fits into an inode of ext4.
    pub(crate) fn target_to(&self, digest: &[u8; DIGEST]) -> String {
        let mut whole = digest.to_vec();
        whole.extend_from_slice(&self.check(digest));
        URL_SAFE_NO_PAD.encode(whole)
    }

    /// The digest in the target of a link at this address; `None` if it is no such target.
    pub(crate) fn digest_in(&self, target: &[u8]) -> Option<[u8; DIGEST]> {
        let whole = URL_SAFE_NO_PAD.decode(target).ok()?;
        let (digest, check) = whole.split_at_checked(DIGEST)?;
        let digest: [u8; DIGEST] = digest.try_into().ok()?;
        (check == self.check(&digest)).then_some(digest)
    }

    fn check(&self, digest: &[u8; DIGEST]) -> [u8; CHECK] {
        let whole = blake3::keyed_hash(&self.0, digest);
        std::array::from_fn(|at| whole.as_bytes()[at])
    }
}

/// The name of a digest or an address in the directory.
pub(crate) fn name_of(digest: &[u8; DIGEST]) -> String {
    URL_SAFE_NO_PAD.encode(digest)
}

/// The digest of which this is the name.
pub(crate) fn digest_of(name: &[u8]) -> Option<[u8; DIGEST]> {
    URL_SAFE_NO_PAD.decode(name).ok()?.try_into().ok()
}

/// The digest in the target of a link, whichever address it has.
pub(crate) fn digest_in_any(target: &[u8]) -> Option<[u8; DIGEST]> {
    URL_SAFE_NO_PAD.decode(target).ok()?.get(..DIGEST)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_differs_makes_another_address() {
        let place = Place { identity: "i".into(), host: "h".into(), port: 1, key: "k".into() };
        let file = FileVersion { path: b"p".to_vec(), size: 1, mtime: (1, 1), ctime: (1, 1), inode: 1 };
        let all = [
            ChunkAddress::new(&place, &file, 0),
            ChunkAddress::new(&place, &file, 1),
            ChunkAddress::new(
                &Place { identity: "ih".into(), host: String::new(), ..place.clone() },
                &file,
                0,
            ),
            ChunkAddress::new(&Place { host: "g".into(), ..place.clone() }, &file, 0),
            ChunkAddress::new(&Place { port: 2, ..place.clone() }, &file, 0),
            ChunkAddress::new(&Place { key: "l".into(), ..place.clone() }, &file, 0),
            ChunkAddress::new(&place, &FileVersion { path: b"q".to_vec(), ..file.clone() }, 0),
            ChunkAddress::new(&place, &FileVersion { size: 2, ..file.clone() }, 0),
            ChunkAddress::new(&place, &FileVersion { mtime: (1, 2), ..file.clone() }, 0),
            ChunkAddress::new(&place, &FileVersion { mtime: (2, 1), ..file.clone() }, 0),
            ChunkAddress::new(&place, &FileVersion { ctime: (1, 2), ..file.clone() }, 0),
            ChunkAddress::new(&place, &FileVersion { inode: 2, ..file.clone() }, 0),
        ];
        let different: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }

    #[test]
    fn a_link_is_good_at_its_own_address_and_whole() {
        let place = Place::default();
        let address = |index| ChunkAddress::new(&place, &FileVersion::default(), index);
        let target = address(0).target_to(&[7; DIGEST]);
        assert!(target.len() < 60, "longer ones take a block of their own on ext4");
        assert_eq!(address(0).digest_in(target.as_bytes()), Some([7; DIGEST]));
        assert_eq!(address(1).digest_in(target.as_bytes()), None);
        for end in 0..target.len() {
            assert_eq!(address(0).digest_in(&target.as_bytes()[..end]), None);
        }
    }
}
