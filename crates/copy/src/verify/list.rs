//! Reads a list of expected entries line by line: a manifest, or lines of `sha256sum` and similar tools.
//!
//! Always true: a line that cannot be understood is an error with its number, and is never skipped.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use farhaul_session::handle::Handle;
use farhaul_text::escape;
use farhaul_volume::Algorithm;

use super::super::failures::plain;
use super::super::interruptible_io::InterruptibleInput;
use super::super::manifest::{
    EntryFate, ManifestEntryText, ManifestLine, ManifestTally, RecordKind, parse, unhex,
};

/// The longest line: a path and a link's target in base64, with room to spare.
const LINE_MAX: u64 = 64 << 10;

/// The digest that a file's content should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExpectedContent {
    /// The digest of the tree over chunks of 1 MiB.
    Tree([u8; 32]),
    Plain(Algorithm, Vec<u8>),
    Unknown,
}

/// An entry of the list.
#[derive(Debug, PartialEq)]
pub(crate) struct ExpectedEntry {
    /// The path; empty for the directory itself.
    pub(super) path: Vec<u8>,
    pub(super) kind: RecordKind,
    /// Unknown in lists that are not manifests.
    pub(super) size: Option<u64>,
    pub(super) mode: Option<u32>,
    /// The mode after the destination has masked it, which is right as well.
    pub(super) place_mode: Option<u32>,
    pub(super) mtime: Option<(i64, u32)>,
    pub(super) content: ExpectedContent,
    /// According to the list it is at the destination: it was brought, or was there already.
    pub(super) is_there: bool,
}

pub(crate) struct ExpectedList {
    lines: BufReader<InterruptibleInput>,
    number: u64,
    algorithm: Algorithm,
    form: Form,
    /// Some line of a list of digests has been read.
    has_sums: bool,
    signed: Signed,
    is_ended: bool,
    /// Why the run that wrote the manifest ended early.
    error: Option<String>,
    /// The sum over the manifest's lines so far.
    tally: ManifestTally,
    shown: String,
}

/// The part of a signed list that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signed {
    No,
    Head,
    Text,
    Signature,
}

impl Signed {
    /// Whether the line is none of the list's own in a signed list (`gpg --clearsign`): its head, or its
    /// signature. A line that begins with a dash has two characters in front.
    fn skips(&mut self, line: &mut Vec<u8>) -> bool {
        let text = line.strip_suffix(b"\r").unwrap_or(line);
        match *self {
            Signed::No if text == b"-----BEGIN PGP SIGNED MESSAGE-----" => *self = Signed::Head,
            Signed::No => return false,
            Signed::Head if text.is_empty() => *self = Signed::Text,
            Signed::Head | Signed::Signature => {}
            Signed::Text if text == b"-----BEGIN PGP SIGNATURE-----" => *self = Signed::Signature,
            Signed::Text => {
                if line.starts_with(b"- ") {
                    line.drain(..2);
                }
                return false;
            }
        }
        true
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Undecided,
    Manifest,
    Sums,
}

impl ExpectedList {
    /// Opens the list. Once `handle` is cancelled, reading does not wait for its writer.
    pub(crate) fn open(path: &Path, algorithm: Algorithm, handle: &Handle) -> Result<ExpectedList, String> {
        let shown = path.display().to_string();
        // As for sha256sum, - is standard input.
        let path = if path.as_os_str() == "-" { Path::new("/dev/stdin") } else { path };
        let file = InterruptibleInput::open(path, handle);
        let file = file.map_err(|error| format!("cannot open {shown}: {}", plain(&error)))?;
        let lines = BufReader::with_capacity(1 << 20, file);
        let (form, tally) = (Form::Undecided, ManifestTally::default());
        Ok(ExpectedList {
            lines,
            number: 0,
            algorithm,
            form,
            has_sums: false,
            signed: Signed::No,
            is_ended: false,
            error: None,
            tally,
            shown,
        })
    }

    /// The next entry; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<ExpectedEntry>, String> {
        let mut line = Vec::new();
        loop {
            line.clear();
            self.number += 1;
            let (number, shown) = (self.number, &self.shown);
            let at = |why: String| format!("{shown}, line {number}: {why}");
            let read = self.lines.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
            let read = read.map_err(|error| at(plain(&error)))?;
            if number == 1 {
                line.drain(..line.len() - farhaul_text::without_mark(&line).len());
            }
            if read == 0 {
                return match self.form {
                    Form::Undecided => Err(format!("{shown} is empty")),
                    Form::Sums if !self.has_sums => {
                        Err(format!("{shown} has no line with a digest, so it is no list"))
                    }
                    Form::Manifest | Form::Sums => Ok(None),
                };
            }
            if line.pop_if(|last| *last == b'\n').is_none() {
                if line.len() as u64 == LINE_MAX {
                    return Err(at("the line is longer than any of a manifest".into()));
                }
                if self.form == Form::Manifest {
                    // The run that wrote the manifest was killed in the middle of this line.
                    return Ok(None);
                }
            }
            if self.form == Form::Undecided {
                self.form = if line.first() == Some(&b'{') { Form::Manifest } else { Form::Sums };
            }
            if self.form == Form::Sums && self.signed.skips(&mut line) {
                continue;
            }
            if line.is_empty() || self.form == Form::Sums && line[0] == b'#' {
                continue;
            }
            if self.form == Form::Sums {
                // A list may come from Windows; sha256sum takes this byte off, too.
                line.pop_if(|last| *last == b'\r');
                if line.is_empty() {
                    continue;
                }
                let entry = sum(&line, self.algorithm).map_err(at)?;
                self.has_sums = true;
                return Ok(Some(entry));
            }
            match parse(&line).map_err(at)? {
                ManifestLine::Begin => {}
                ManifestLine::End { error } => (self.is_ended, self.error) = (true, error),
                ManifestLine::Entry(entry) => {
                    self.tally.add_line(&entry);
                    return Ok(Some(expected(*entry)));
                }
            }
        }
    }

    /// The root of the digest tree, if the list is a manifest with an end.
    pub(crate) fn root(&self) -> Option<[u8; 32]> {
        (self.form == Form::Manifest && self.is_ended).then(|| self.tally.root())
    }

    pub(super) fn warnings(&self) -> Option<String> {
        match (self.form, self.is_ended, &self.error) {
            (Form::Manifest, false, _) => Some(
                "the manifest has no end: the run that wrote it was killed, and later entries are not in it"
                    .into(),
            ),
            (Form::Manifest, true, Some(error)) => {
                let error = escape(error.as_bytes());
                Some(format!(
                    "the run that wrote the manifest ended early ({error}): not everything is in it"
                ))
            }
            (Form::Sums, ..) if self.signed != Signed::No => {
                Some("the list is signed; its signature is not checked (gpg --verify does that)".into())
            }
            _ => None,
        }
    }
}

fn expected(entry: ManifestEntryText) -> ExpectedEntry {
    // The target of a hard link has the same first component as the link.
    let kind = match entry.kind {
        RecordKind::HardLink { to } if entry.path != entry.place => {
            RecordKind::HardLink { to: moved(&to, &entry.place) }
        }
        kind => kind,
    };
    let size = if let RecordKind::File { size } = kind { Some(size) } else { None };
    let content = match (entry.digest, entry.extra.into_iter().next()) {
        (Some(digest), _) => ExpectedContent::Tree(digest),
        (None, Some((algorithm, digest))) => ExpectedContent::Plain(algorithm, digest),
        (None, None) => ExpectedContent::Unknown,
    };
    let mode = Some(entry.mode).filter(|_| !entry.place.is_empty());
    let is_there = matches!(entry.fate, EntryFate::Sent | EntryFate::Unchanged | EntryFate::Renamed)
        && kind != RecordKind::Unknown;
    let (place_mode, mtime) = (entry.place_mode, entry.mtime);
    ExpectedEntry { path: entry.place, kind, size, mode, place_mode, mtime, content, is_there }
}

fn moved(path: &[u8], like: &[u8]) -> Vec<u8> {
    let top = |path: &[u8]| path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
    [&like[..top(like)], &path[top(path)..]].concat()
}

// ---- lines of other tools ------------------------------------------------------------------------------------------------

/// Parses `DIGEST  NAME`, `DIGEST *NAME` or `ALGORITHM (NAME) = DIGEST`; after a leading backslash, `\\` and
/// `\n` in the name are escapes.
fn sum(line: &[u8], algorithm: Algorithm) -> Result<ExpectedEntry, String> {
    let (is_escaped, line) = match line.strip_prefix(b"\\") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let tagged = [
        (&b"BLAKE3 ("[..], Algorithm::Blake3),
        (b"SHA256 (", Algorithm::Sha256),
        (b"MD5 (", Algorithm::Md5),
        (b"XXH3 (", Algorithm::Xxh3),
    ];
    let tagged = tagged.into_iter().find_map(|(tag, algorithm)| Some((line.strip_prefix(tag)?, algorithm)));
    let (name, digest, algorithm) = match tagged {
        Some((rest, algorithm)) => {
            let end = rest.windows(4).rposition(|part| part == b") = ").ok_or("no digest behind the name")?;
            (&rest[..end], &rest[end + 4..], algorithm)
        }
        None if other_tag(line).is_some() => return Err(of_other(other_tag(line).unwrap_or_default())),
        None => {
            let digits = line
                .iter()
                .position(|&byte| byte == b' ')
                .ok_or("neither a manifest nor a list of digests")?;
            let name = line.get(digits + 2..).unwrap_or_default();
            let digest = &line[..digits];
            match (digest.strip_prefix(b"XXH3_"), digest.len()) {
                (Some(digest), _) => (name, digest, Algorithm::Xxh3),
                (None, 16) if algorithm != Algorithm::Xxh3 => {
                    return Err(
                        "16 digits are an XXH64, which is not supported: make the list with xxhsum -H3"
                            .into(),
                    );
                }
                // The length of a digest tells its algorithm, except that two have 32 bytes.
                (None, 32) => (name, digest, Algorithm::Md5),
                (None, len) if other_of(digest, len).is_some() => {
                    return Err(of_other(other_of(digest, len).unwrap_or_default()));
                }
                (None, _) => (name, digest, algorithm),
            }
        }
    };
    let digest =
        std::str::from_utf8(digest).map_err(|_| "neither a manifest nor a list of digests".to_string())?;
    let digest = unhex(digest, algorithm.bytes())?;
    let name = if is_escaped { unescaped(name) } else { name.to_vec() };
    let name = name.strip_prefix(b"./").map(<[u8]>::to_vec).unwrap_or(name);
    Ok(ExpectedEntry {
        path: name,
        kind: RecordKind::File { size: 0 },
        size: None,
        mode: None,
        place_mode: None,
        mtime: None,
        content: ExpectedContent::Plain(algorithm, digest),
        is_there: true,
    })
}

/// Digests of other algorithms: the name in front of tagged lines, and the number of digits.
const OTHERS: [(&str, &str, usize); 6] = [
    ("SHA-1", "SHA1 (", 40),
    ("SHA-224", "SHA224 (", 56),
    ("SHA-384", "SHA384 (", 96),
    ("SHA-512", "SHA512 (", 128),
    ("BLAKE2b", "BLAKE2b (", 128),
    ("BLAKE2b", "BLAKE2b-256 (", 64),
];

fn other_tag(line: &[u8]) -> Option<&'static str> {
    OTHERS.iter().find(|(_, tag, _)| line.starts_with(tag.as_bytes())).map(|(name, ..)| *name)
}

/// The algorithm of a digest whose length none of ours has.
fn other_of(digest: &[u8], len: usize) -> Option<&'static str> {
    let is_hex = digest.iter().all(u8::is_ascii_hexdigit);
    OTHERS.iter().find(|(.., digits)| is_hex && len == *digits && len != 64).map(|(name, ..)| *name)
}

fn of_other(name: &str) -> String {
    format!(
        "a {name} digest, which is not supported: make the list with sha256sum, b3sum, md5sum or xxhsum -H3"
    )
}

fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut bytes = name.iter().copied();
    while let Some(byte) = bytes.next() {
        out.push(match (byte, byte == b'\\') {
            (_, true) => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(other) => other,
                None => b'\\',
            },
            (byte, false) => byte,
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_other_tools() {
        let hex = "ab".repeat(32);
        let read = |line: &str| sum(line.as_bytes(), Algorithm::Sha256).map(|line| (line.path, line.content));
        let content = |algorithm: Algorithm| ExpectedContent::Plain(algorithm, vec![0xab; algorithm.bytes()]);
        for (line, name, algorithm) in [
            (format!("{hex}  a b"), "a b", Algorithm::Sha256),
            (format!("{hex} *./d/x"), "d/x", Algorithm::Sha256),
            (format!("\\{hex}  a\\nb\\\\"), "a\nb\\", Algorithm::Sha256),
            (format!("BLAKE3 (a) = b) = {hex}"), "a) = b", Algorithm::Blake3),
            (format!("{}  x", &hex[..32]), "x", Algorithm::Md5),
            (format!("XXH3_{}  x", &hex[..16]), "x", Algorithm::Xxh3),
        ] {
            assert_eq!(read(&line).unwrap(), (name.as_bytes().to_vec(), content(algorithm)), "{line}");
        }
        let xxh64 = format!("{}  x", &hex[..16]);
        for line in
            ["", "hello", "hello world", "SHA256 (x)", &hex[1..], &format!("{}  x", &hex[2..]), &xxh64]
        {
            assert!(read(line).is_err(), "{line}");
        }
        let xxh3 = sum(xxh64.as_bytes(), Algorithm::Xxh3).unwrap();
        assert_eq!(xxh3.content, content(Algorithm::Xxh3));
    }

    #[test]
    fn digests_of_other_algorithms_are_named() {
        let refused = |line: &str| sum(line.as_bytes(), Algorithm::Sha256).unwrap_err();
        for (digits, name) in [(40, "SHA-1"), (56, "SHA-224"), (96, "SHA-384"), (128, "SHA-512")] {
            let why = refused(&format!("{}  x", "a".repeat(digits)));
            assert!(why.starts_with(&format!("a {name} digest, which is not supported")), "{why}");
        }
        let tagged = refused(&format!("SHA512 (x) = {}", "a".repeat(128)));
        assert!(tagged.starts_with("a SHA-512 digest"), "{tagged}");
        assert!(refused(&format!("{}  x", "g".repeat(40))).starts_with("not a digest"));
    }

    #[test]
    fn a_signed_list_is_read_without_its_signature() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("SUMS.asc");
        let hex = "ab".repeat(32);
        let text = format!(
            "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n{hex}  a\n- {hex}  b\n-----BEGIN PGP SIGNATURE-----\n\niQEz\n=x\n-----END PGP SIGNATURE-----\n"
        );
        std::fs::write(&path, text).unwrap();
        let mut list = ExpectedList::open(&path, Algorithm::Sha256, &Handle::new()).unwrap();
        let mut names = Vec::new();
        while let Some(entry) = list.next().unwrap() {
            names.push(entry.path);
        }
        assert_eq!(names, [b"a".to_vec(), b"b".to_vec()]);
        assert!(list.warnings().is_some_and(|text| text.contains("not checked")));
    }

    #[test]
    fn lines_of_other_tools_may_end_as_on_windows() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("SUMS");
        let hex = "ab".repeat(32);
        std::fs::write(&path, format!("\u{feff}# from Windows\r\n{hex} *a\r\n\r\n\\{hex}  b\\r\r\n"))
            .unwrap();
        let mut list = ExpectedList::open(&path, Algorithm::Sha256, &Handle::new()).unwrap();
        let mut names = Vec::new();
        while let Some(entry) = list.next().unwrap() {
            names.push(entry.path);
        }
        assert_eq!(names, [b"a".to_vec(), b"b\r".to_vec()]);
    }
}
