//! What stands beside the chunks: which files they are of, which of those are pinned, and digests of whole files.
//!
//! Always true: a record's name is the digest of its content, so one that is not whole is no record.

use std::collections::HashSet;
use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::address::{CHUNK, ChunkAddress, DIGEST, FileVersion, Place, digest_of, name_of};
use super::cache::{Cache, chunk, place, temporary};
use super::directory::Directory;

/// The longest record: a path has at most 64 KiB.
const RECORD_MAX: usize = 128 << 10;
/// The most digests of whole files that are kept.
const SUMS_MAX: usize = 64 << 10;

/// A version of a file of which chunks were put here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedFile {
    /// Who reads it, and where.
    pub place: Place,
    /// The version.
    pub version: FileVersion,
}

/// What is here of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeldPart {
    /// Its chunks that are here.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl CachedFile {
    /// The name by which people call the file: `HOST:PATH`, or `HOST:PORT:PATH`.
    pub fn name(&self) -> Vec<u8> {
        let Place { host, port, .. } = &self.place;
        let at = if *port == 0 { format!("{host}:") } else { format!("{host}:{port}:") };
        [at.as_bytes(), &self.version.path].concat()
    }

    /// Whether the file has this name, or lies below it.
    pub fn is_at(&self, name: &[u8]) -> bool {
        let own = self.name();
        let Some(rest) = own.strip_prefix(name) else { return false };
        rest.is_empty() || rest.starts_with(b"/") || name.ends_with(b"/") || name.ends_with(b":")
    }

    /// The number of chunks that the whole file has.
    pub fn chunks(&self) -> u64 {
        self.version.size.div_ceil(CHUNK as u64)
    }

    fn addresses(&self) -> impl Iterator<Item = ChunkAddress> {
        (0..self.chunks()).map(|index| ChunkAddress::new(&self.place, &self.version, index))
    }

    fn bytes(&self) -> Vec<u8> {
        let CachedFile { place, version } = self;
        let mut bytes = Vec::new();
        for text in [place.identity.as_bytes(), place.host.as_bytes(), place.key.as_bytes(), &version.path] {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text);
        }
        bytes.extend_from_slice(&place.port.to_le_bytes());
        for (secs, nanos) in [version.mtime, version.ctime] {
            bytes.extend_from_slice(&secs.to_le_bytes());
            bytes.extend_from_slice(&nanos.to_le_bytes());
        }
        for number in [version.size, version.inode] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn of_bytes(mut bytes: &[u8]) -> Option<CachedFile> {
        fn take<const LEN: usize>(bytes: &mut &[u8]) -> Option<[u8; LEN]> {
            let (part, rest) = bytes.split_first_chunk::<LEN>()?;
            *bytes = rest;
            Some(*part)
        }
        fn text(bytes: &mut &[u8]) -> Option<Vec<u8>> {
            let len = usize::try_from(u64::from_le_bytes(take(bytes)?)).ok()?;
            let (text, rest) = bytes.split_at_checked(len)?;
            *bytes = rest;
            Some(text.to_vec())
        }
        fn time(bytes: &mut &[u8]) -> Option<(i64, u32)> {
            Some((i64::from_le_bytes(take(bytes)?), u32::from_le_bytes(take(bytes)?)))
        }
        let whole = |text: Vec<u8>| String::from_utf8(text).ok();
        let bytes = &mut bytes;
        let (identity, host) = (whole(text(bytes)?)?, whole(text(bytes)?)?);
        let (key, path) = (whole(text(bytes)?)?, text(bytes)?);
        let port = u16::from_le_bytes(take(bytes)?);
        let (mtime, ctime) = (time(bytes)?, time(bytes)?);
        let (size, inode) = (u64::from_le_bytes(take(bytes)?), u64::from_le_bytes(take(bytes)?));
        bytes.is_empty().then_some(CachedFile {
            place: Place { identity, host, port, key },
            version: FileVersion { path, size, mtime, ctime, inode },
        })
    }
}

fn record_name(content: &[u8]) -> [u8; DIGEST] {
    *blake3::Hasher::new_derive_key("farhaul cache 1: record").update(content).finalize().as_bytes()
}

fn record_path(folder: &str, content: &[u8]) -> String {
    let name = record_name(content);
    format!("{folder}/{:02x}/{}", name[0], name_of(&name))
}

impl Directory {
    /// All records of a folder, with their paths.
    fn records(&self, folder: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
        let mut found = Vec::new();
        for part in 0..=255_u8 {
            let part = format!("{folder}/{part:02x}");
            for listed in self.list(&part)? {
                let path = format!("{part}/{}", String::from_utf8_lossy(&listed.name));
                let content = self.read(&path, RECORD_MAX).unwrap_or_default();
                match digest_of(&listed.name) == Some(record_name(&content)) {
                    true => found.push((path, content)),
                    false => self.remove(&path),
                }
            }
        }
        Ok(found)
    }

    fn files(&self) -> io::Result<Vec<(String, CachedFile)>> {
        let records = self.records("files")?.into_iter();
        Ok(records.filter_map(|(path, content)| Some((path, CachedFile::of_bytes(&content)?))).collect())
    }

    fn digest_at(&self, address: &ChunkAddress) -> Option<[u8; DIGEST]> {
        address.digest_in(&self.link_target(&place(address)).ok()?)
    }

    /// The digests of all chunks of pinned files.
    pub(crate) fn pinned(&self) -> io::Result<HashSet<[u8; DIGEST]>> {
        let pins: Vec<_> = self.records("pins")?.into_iter().map(|(_, name)| name).collect();
        if pins.is_empty() {
            return Ok(HashSet::new());
        }
        let files = self.files()?.into_iter().map(|(_, file)| file);
        let pinned = files.filter(|file| pins.iter().any(|pin| file.is_at(pin)));
        Ok(pinned
            .flat_map(|file| file.addresses().filter_map(|at| self.digest_at(&at)).collect::<Vec<_>>())
            .collect())
    }

    /// Removes the records of files of which nothing is here, `there` being the names of all links; and digests of whole
    /// files if there are very many.
    pub(crate) fn remove_records(&self, there: &HashSet<Vec<u8>>) -> io::Result<()> {
        for (path, file) in self.files()? {
            let is_known = file.addresses().any(|address| there.contains(address.name().as_bytes()));
            // Its first link may have come since they were listed.
            if !is_known && !file.addresses().any(|address| self.since(&place(&address)).is_ok()) {
                self.remove(&path);
            }
        }
        let mut sums = Vec::new();
        for part in 0..=255_u8 {
            let part = format!("sums/{part:02x}");
            let listed = self.list(&part)?.into_iter();
            sums.extend(
                listed.map(|one| (one.since, format!("{part}/{}", String::from_utf8_lossy(&one.name)))),
            );
        }
        sums.sort_unstable();
        let over = sums.len().saturating_sub(SUMS_MAX);
        sums[..over].iter().for_each(|(_, path)| self.remove(path));
        Ok(())
    }

    fn write_record(&self, folder: &str, content: &[u8]) -> io::Result<()> {
        let path = record_path(folder, content);
        let temporary = temporary().ok_or_else(|| io::Error::other("no random bytes"))?;
        let written = self.write(&temporary, content).and_then(|()| self.rename(&temporary, &path));
        written.inspect_err(|_| self.remove(&temporary))
    }
}

impl Cache {
    /// Notes that chunks of this file are put here, so that people find it in lists.
    pub fn note(&self, place: &Place, version: &FileVersion) {
        let file = CachedFile { place: place.clone(), version: version.clone() };
        let content = file.bytes();
        let path = record_path("files", &content);
        if content.len() <= RECORD_MAX && self.directory.since(&path).is_err() {
            // Without the record the chunks serve as well.
            let _ = self.directory.write_record("files", &content);
        }
    }

    /// All files of which something may be here, by name.
    pub fn files(&self) -> io::Result<Vec<CachedFile>> {
        let mut files: Vec<_> = self.directory.files()?.into_iter().map(|(_, file)| file).collect();
        files.sort_by_cached_key(CachedFile::name);
        Ok(files)
    }

    /// What is here of a file.
    pub fn held(&self, file: &CachedFile) -> HeldPart {
        let mut held = HeldPart::default();
        for digest in file.addresses().filter_map(|address| self.directory.digest_at(&address)) {
            if let Ok(bytes) = self.directory.size(&chunk(&digest)) {
                held = HeldPart { chunks: held.chunks + 1, bytes: held.bytes + bytes };
            }
        }
        held
    }

    /// Removes what is here of a file; returns what that was.
    pub fn drop_file(&self, file: &CachedFile) -> HeldPart {
        let held = self.held(file);
        for address in file.addresses() {
            if let Some(digest) = self.directory.digest_at(&address) {
                self.directory.remove(&chunk(&digest));
                self.directory.remove(&place(&address));
            }
        }
        self.directory.remove(&record_path("files", &file.bytes()));
        held
    }

    /// Keeps all chunks of files of this name, or below it, also those that come later.
    pub fn pin(&self, name: &[u8]) -> io::Result<()> {
        match name.is_empty() || name.len() > RECORD_MAX {
            true => Err(io::Error::from(io::ErrorKind::InvalidInput)),
            false => self.directory.write_record("pins", name),
        }
    }

    /// Ends a pin; returns whether there was one.
    pub fn unpin(&self, name: &[u8]) -> bool {
        let path = record_path("pins", name);
        let was_there = self.directory.since(&path).is_ok();
        self.directory.remove(&path);
        was_there
    }

    /// The names that are pinned.
    pub fn pins(&self) -> io::Result<Vec<Vec<u8>>> {
        let mut pins: Vec<_> = self.directory.records("pins")?.into_iter().map(|(_, name)| name).collect();
        pins.sort();
        Ok(pins)
    }

    /// The digest of a whole version of a file by this algorithm, if it was put here.
    pub fn sum(&self, place: &Place, version: &FileVersion, algorithm: &str) -> Option<Vec<u8>> {
        let (key, path) = sum_address(place, version, algorithm);
        let whole = URL_SAFE_NO_PAD.decode(self.directory.link_target(&path).ok()?).ok()?;
        let (check, sum) = whole.split_at_checked(CHECK)?;
        (blake3::keyed_hash(&key, sum).as_bytes()[..CHECK] == *check).then(|| sum.to_vec())
    }

    /// Keeps the digest of a whole version of a file.
    pub fn put_sum(&self, place: &Place, version: &FileVersion, algorithm: &str, sum: &[u8]) {
        let (key, path) = sum_address(place, version, algorithm);
        let check = blake3::keyed_hash(&key, sum);
        let target = URL_SAFE_NO_PAD.encode([&check.as_bytes()[..CHECK], sum].concat());
        if let Some(temporary) = temporary() {
            // If it is not kept, it is computed again.
            let _ = self.directory.link(&target, &temporary, &path);
        }
    }
}

/// The bytes of the check beside a digest.
const CHECK: usize = 6;

fn sum_address(place: &Place, version: &FileVersion, algorithm: &str) -> ([u8; DIGEST], String) {
    let file = CachedFile { place: place.clone(), version: version.clone() };
    let mut hasher = blake3::Hasher::new_derive_key("farhaul cache 1: digest of a file");
    hasher.update(&file.bytes()).update(algorithm.as_bytes());
    let key = *hasher.finalize().as_bytes();
    (key, format!("sums/{:02x}/{}", key[0], name_of(&key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, size: u64) -> CachedFile {
        let place = Place { host: "far".into(), port: 0, ..Place::default() };
        CachedFile { place, version: FileVersion { path: path.into(), size, ..FileVersion::default() } }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_nothing_else_is() {
        let one = file("/a/b\u{e9}", 77);
        let bytes = one.bytes();
        assert_eq!(CachedFile::of_bytes(&bytes), Some(one));
        for end in 0..bytes.len() {
            assert_eq!(CachedFile::of_bytes(&bytes[..end]), None, "{end}");
        }
        assert_eq!(CachedFile::of_bytes(&[&bytes[..], b"x"].concat()), None);
        let mut long = bytes;
        long[..8].fill(0xff);
        assert_eq!(CachedFile::of_bytes(&long), None);
    }

    #[test]
    fn a_name_is_that_of_a_file_or_of_what_lies_above_it() {
        let one = file("/a/bc", 1);
        for name in ["far:/a/bc", "far:/a", "far:/a/", "far:/", "far:"] {
            assert!(one.is_at(name.as_bytes()), "{name}");
        }
        for name in ["far:/a/b", "fa", "far:/a/bc/", "other:/a/bc"] {
            assert!(!one.is_at(name.as_bytes()), "{name}");
        }
    }
}
