//! Writes and reads a manifest's lines.
//!
//! Always true: a line has no line end but its last byte, and reads back as the bytes that were written,
//! whatever they are. The writer does without a library, as ten million lines must take only seconds.

use std::io::Write;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farhaul_text::escape;
use farhaul_volume::{Algorithm, SpecialNode};
use serde::Deserialize;

use super::super::manifest::{EntryFate, MANIFEST_SCHEMA, ManifestRecord, RecordKind};
use super::super::report::Report;

impl EntryFate {
    const ALL: [EntryFate; 10] = [
        EntryFate::Sent,
        EntryFate::Unchanged,
        EntryFate::Kept,
        EntryFate::Renamed,
        EntryFate::Failed,
        EntryFate::Vanished,
        EntryFate::Skipped,
        EntryFate::Deleted,
        EntryFate::NotDeleted,
        EntryFate::WouldSend,
    ];

    fn name(self) -> &'static str {
        self.into()
    }

    fn from_name(name: &str) -> Option<EntryFate> {
        EntryFate::ALL.into_iter().find(|fate| fate.name() == name)
    }
}

/// Whether a line of a manifest can have this `result`.
pub fn is_manifest_result(name: &str) -> bool {
    EntryFate::from_name(name).is_some()
}

// ---- writing -----------------------------------------------------------------------------------------------------------

/// The first line.
pub(super) fn begin(at: Duration) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "{{\"manifest\":{MANIFEST_SCHEMA},\"program\":\"farhaul {version}\",\"digest\":\"blake3-tree-1MiB\",\"at\":{:.1}}}\n",
        at.as_secs_f64()
    )
    .into_bytes()
}

/// The last line. If it is missing, the run was killed.
pub(super) fn end(report: &Report) -> Vec<u8> {
    let mut out = Vec::new();
    let _ = write!(out, "{{\"end\":true,\"ok\":{},\"complete\":{}", report.ok, report.complete);
    if let Some(error) = &report.error {
        text(&mut out, ",\"error\":", error);
    }
    out.extend_from_slice(b"}\n");
    out
}

/// Writes the line of one record. `renamed` is the name that the first component of its path has at the
/// destination, which takes the bits of `mask` off all modes.
pub(super) fn line(
    record: &ManifestRecord,
    renamed: Option<&[u8]>,
    mask: u32,
    at: Duration,
    out: &mut Vec<u8>,
) {
    out.push(b'{');
    name(out, "path", &record.path);
    if let Some(renamed) = renamed {
        let top = record.path.iter().position(|&byte| byte == b'/').unwrap_or(record.path.len());
        out.push(b',');
        name(out, "dest", &[renamed, &record.path[top..]].concat());
    }
    let kind = match &record.kind {
        RecordKind::Unknown => None,
        RecordKind::File { .. } => Some("file"),
        RecordKind::Directory => Some("directory"),
        RecordKind::Symlink { .. } => Some("symlink"),
        RecordKind::HardLink { .. } => Some("hardlink"),
        RecordKind::Special(SpecialNode::Fifo) => Some("fifo"),
        RecordKind::Special(SpecialNode::Socket) => Some("socket"),
        RecordKind::Special(SpecialNode::CharDevice { .. }) => Some("char-device"),
        RecordKind::Special(SpecialNode::BlockDevice { .. }) => Some("block-device"),
    };
    if let Some(kind) = kind {
        plain(out, ",\"kind\":\"", kind.as_bytes());
        out.push(b'"');
    }
    match &record.kind {
        RecordKind::File { size } => number(out, ",\"size\":", i128::from(*size)),
        RecordKind::Symlink { target } => {
            out.push(b',');
            name(out, "target", target);
        }
        RecordKind::HardLink { to } => {
            out.push(b',');
            name(out, "to", to);
        }
        RecordKind::Special(
            SpecialNode::CharDevice { major, minor } | SpecialNode::BlockDevice { major, minor },
        ) => {
            number(out, ",\"major\":", i128::from(*major));
            number(out, ",\"minor\":", i128::from(*minor));
        }
        RecordKind::Unknown
        | RecordKind::Directory
        | RecordKind::Special(SpecialNode::Fifo | SpecialNode::Socket) => {}
    }
    if kind.is_some() {
        let octal = |mode: u32| [9, 6, 3, 0].map(|shift| b'0' + (mode >> shift & 7) as u8);
        plain(out, ",\"mode\":\"", &octal(record.mode));
        out.push(b'"');
        if record.mode & mask != 0 && !matches!(record.kind, RecordKind::Symlink { .. }) {
            plain(out, ",\"dest_mode\":\"", &octal(record.mode & !mask));
            out.push(b'"');
        }
        let (secs, nanos) = record.mtime;
        number(out, ",\"mtime_ns\":", i128::from(secs) * 1_000_000_000 + i128::from(nanos));
    }
    if let Some(digest) = &record.digest {
        hex(out, "digest", digest);
    }
    if record.fate == EntryFate::Unchanged && record.is_compared {
        plain(out, ",\"compared\":", b"true");
    }
    for (algorithm, digest) in &record.extra {
        hex(out, algorithm.name(), digest);
    }
    plain(out, ",\"result\":\"", record.fate.name().as_bytes());
    out.push(b'"');
    if let Some(code) = record.code {
        plain(out, ",\"code\":\"", code.name().as_bytes());
        out.push(b'"');
    }
    match (record.fate, &record.note) {
        (_, None) => {}
        (EntryFate::Renamed, Some(from)) => {
            out.push(b',');
            name(out, "from", from);
        }
        (EntryFate::Skipped, Some(reason)) => text(out, ",\"reason\":", &String::from_utf8_lossy(reason)),
        (_, Some(reason)) => text(out, ",\"error\":", &String::from_utf8_lossy(reason)),
    }
    number(out, ",\"at\":", i128::from(at.as_secs()));
    out.extend_from_slice(&[b'.', b'0' + (at.subsec_millis() / 100) as u8]);
    out.extend_from_slice(b"}\n");
}

fn plain(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(value);
}

fn number(out: &mut Vec<u8>, key: &str, value: i128) {
    out.extend_from_slice(key.as_bytes());
    // Divisions of 128 bits are slow, and almost no number needs them.
    let mut digits = [0; 20];
    let mut at = digits.len();
    match u64::try_from(value) {
        Ok(mut value) => {
            loop {
                at -= 1;
                digits[at] = b'0' + (value % 10) as u8;
                value /= 10;
                if value == 0 {
                    break;
                }
            }
            out.extend_from_slice(&digits[at..]);
        }
        Err(_) => drop(write!(out, "{value}")),
    }
}

fn hex(out: &mut Vec<u8>, key: &str, digest: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b",\"");
    plain(out, key, b"\":\"");
    for byte in digest {
        out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    out.push(b'"');
}

fn text(out: &mut Vec<u8>, key: &str, value: &str) {
    out.extend_from_slice(key.as_bytes());
    // Writing to memory cannot fail.
    let _ = serde_json::to_writer(&mut *out, value);
}

/// Writes a name of any bytes, as text if it is UTF-8. Otherwise its bytes follow in base64, and the text is
/// only for people. The destination itself is a dot.
fn name(out: &mut Vec<u8>, key: &str, bytes: &[u8]) {
    let bytes = if bytes.is_empty() { b"." } else { bytes };
    out.push(b'"');
    plain(out, key, b"\":");
    if bytes.iter().all(|&byte| (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\') {
        out.push(b'"');
        out.extend_from_slice(bytes);
        out.push(b'"');
        return;
    }
    match std::str::from_utf8(bytes) {
        Ok(valid) => text(out, "", valid),
        Err(_) => {
            text(out, "", &escape(bytes));
            out.extend_from_slice(b",\"");
            plain(out, key, b"_base64\":\"");
            out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
            out.push(b'"');
        }
    }
}

// ---- reading -----------------------------------------------------------------------------------------------------------

/// One parsed line of a manifest.
#[derive(Debug, PartialEq)]
pub(crate) enum ManifestLine {
    Begin,
    Entry(Box<ManifestEntryText>),
    /// `error` is why the run ended early, if it did.
    End {
        error: Option<String>,
    },
}

/// One entry of a manifest, as its line describes it.
#[derive(Debug, PartialEq)]
pub(crate) struct ManifestEntryText {
    pub(crate) path: Vec<u8>,
    /// The path at the destination.
    pub(crate) place: Vec<u8>,
    pub(crate) kind: RecordKind,
    pub(crate) mode: u32,
    /// The mode at the destination, if that has masked it.
    pub(crate) place_mode: Option<u32>,
    pub(crate) mtime: Option<(i64, u32)>,
    pub(crate) digest: Option<[u8; 32]>,
    pub(crate) extra: Vec<(Algorithm, Vec<u8>)>,
    pub(crate) fate: EntryFate,
}

/// The fields of a line's JSON object.
#[derive(Deserialize)]
struct RawLine {
    manifest: Option<u32>,
    end: Option<bool>,
    complete: Option<bool>,
    path: Option<String>,
    path_base64: Option<String>,
    dest: Option<String>,
    dest_base64: Option<String>,
    kind: Option<String>,
    size: Option<u64>,
    target: Option<String>,
    target_base64: Option<String>,
    to: Option<String>,
    to_base64: Option<String>,
    major: Option<u32>,
    minor: Option<u32>,
    mode: Option<String>,
    dest_mode: Option<String>,
    mtime_ns: Option<i128>,
    digest: Option<String>,
    blake3: Option<String>,
    sha256: Option<String>,
    md5: Option<String>,
    xxh3: Option<String>,
    result: Option<String>,
    error: Option<String>,
}

/// Parses a line of any origin; the error says what is wrong with it.
pub(crate) fn parse(line: &[u8]) -> Result<ManifestLine, String> {
    let raw: RawLine =
        serde_json::from_slice(line).map_err(|error| format!("not a line of a manifest: {error}"))?;
    match (raw.manifest, raw.end) {
        (Some(MANIFEST_SCHEMA), _) => return Ok(ManifestLine::Begin),
        (Some(other), _) => {
            return Err(format!("a manifest of version {other}, which this farhaul cannot read"));
        }
        (None, Some(_)) => {
            let error = raw.error.filter(|_| raw.complete != Some(true));
            return Ok(ManifestLine::End { error });
        }
        (None, None) => {}
    }
    let path = given(raw.path, raw.path_base64)?.ok_or("an entry without a path")?;
    let place = given(raw.dest, raw.dest_base64)?.unwrap_or_else(|| path.clone());
    let place = if place == b"." { Vec::new() } else { place };
    let missing = |what: &str| format!("{}: no {what}", escape(&path));
    let kind = match raw.kind.as_deref() {
        None => RecordKind::Unknown,
        Some("file") => RecordKind::File { size: raw.size.ok_or_else(|| missing("size"))? },
        Some("directory") => RecordKind::Directory,
        Some("symlink") => {
            let target = given(raw.target, raw.target_base64)?;
            RecordKind::Symlink { target: target.ok_or_else(|| missing("target"))? }
        }
        Some("hardlink") => {
            RecordKind::HardLink { to: given(raw.to, raw.to_base64)?.ok_or_else(|| missing("to"))? }
        }
        Some("fifo") => RecordKind::Special(SpecialNode::Fifo),
        Some("socket") => RecordKind::Special(SpecialNode::Socket),
        Some(kind @ ("char-device" | "block-device")) => {
            let (major, minor) =
                (raw.major.ok_or_else(|| missing("major"))?, raw.minor.ok_or_else(|| missing("minor"))?);
            RecordKind::Special(match kind {
                "char-device" => SpecialNode::CharDevice { major, minor },
                _ => SpecialNode::BlockDevice { major, minor },
            })
        }
        // A kind that a later version has added.
        Some(_) => RecordKind::Unknown,
    };
    let octal = |mode: &str| u32::from_str_radix(mode, 8).map_err(|_| missing("octal mode"));
    let mode = raw.mode.as_deref().map_or(Ok(0), octal)?;
    let place_mode = raw.dest_mode.as_deref().map(octal).transpose()?;
    let digest = raw.digest.as_deref().map(|digest| unhex(digest, 32)).transpose()?;
    let mut extra = Vec::new();
    for (algorithm, digest) in [
        (Algorithm::Blake3, raw.blake3),
        (Algorithm::Sha256, raw.sha256),
        (Algorithm::Md5, raw.md5),
        (Algorithm::Xxh3, raw.xxh3),
    ] {
        if let Some(digest) = digest {
            extra.push((algorithm, unhex(&digest, algorithm.bytes())?));
        }
    }
    let fate = raw.result.as_deref().and_then(EntryFate::from_name).ok_or_else(|| missing("known result"))?;
    Ok(ManifestLine::Entry(Box::new(ManifestEntryText {
        mode,
        place_mode,
        mtime: raw.mtime_ns.and_then(split_time),
        digest: digest.map(|digest| digest.try_into().expect("it has 32 bytes")),
        path,
        place,
        kind,
        extra,
        fate,
    })))
}

fn given(text: Option<String>, base64: Option<String>) -> Result<Option<Vec<u8>>, String> {
    match base64 {
        Some(base64) => STANDARD.decode(base64).map(Some).map_err(|error| format!("not base64: {error}")),
        None => Ok(text.map(String::into_bytes)),
    }
}

fn split_time(nanos: i128) -> Option<(i64, u32)> {
    let secs = i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?;
    Some((secs, nanos.rem_euclid(1_000_000_000) as u32))
}

/// Reads a digest of `bytes` bytes from hexadecimal digits.
pub(crate) fn unhex(text: &str, bytes: usize) -> Result<Vec<u8>, String> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    let read: Option<Vec<u8>> = pairs
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect();
    read.filter(|read| read.len() == bytes)
        .ok_or_else(|| format!("not a digest of {bytes} bytes: {}", escape(text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use farhaul_words::Code;
    use proptest::prelude::*;

    use super::*;
    use crate::failures::Failure;

    #[test]
    fn the_words_of_fates_do_not_change() {
        assert_eq!(
            EntryFate::ALL.map(EntryFate::name),
            [
                "sent",
                "unchanged",
                "kept",
                "renamed",
                "failed",
                "vanished",
                "skipped",
                "deleted",
                "not-deleted",
                "would-send"
            ]
        );
    }

    const AT: Duration = Duration::from_millis(1_700_000_000_345);

    fn written(record: &ManifestRecord, renamed: Option<&[u8]>) -> String {
        let mut out = Vec::new();
        line(record, renamed, 0, AT, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn record() -> ManifestRecord {
        ManifestRecord {
            kind: RecordKind::File { size: 5 },
            mode: 0o4755,
            mtime: (-2, 999_999_999),
            digest: Some([0xab; 32]),
            extra: vec![(Algorithm::Md5, vec![1; 16])],
            ..ManifestRecord::of_path(b"run7/a b", EntryFate::Sent)
        }
    }

    #[test]
    fn a_mode_that_the_destination_masks_stands_beside_the_sources() {
        let masked = |mask| {
            let mut out = Vec::new();
            line(&record(), None, mask, AT, &mut out);
            match parse(&out).unwrap() {
                ManifestLine::Entry(entry) => (entry.mode, entry.place_mode),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(masked(0o027), (0o4755, Some(0o4750)));
        assert_eq!(masked(0o022), (0o4755, None), "the mask takes no bit of this mode");
    }

    #[test]
    fn the_lines_as_they_are_published() {
        let digest = "ab".repeat(32);
        let md5 = "01".repeat(16);
        assert_eq!(
            written(&record(), Some(b"new")),
            format!(
                "{{\"path\":\"run7/a b\",\"dest\":\"new/a b\",\"kind\":\"file\",\"size\":5,\"mode\":\"4755\",\"mtime_ns\":-1000000001,\
                 \"digest\":\"{digest}\",\"md5\":\"{md5}\",\"result\":\"sent\",\"at\":1700000000.3}}\n"
            )
        );
        let failed = ManifestRecord::of_path(b"x\xff\n", EntryFate::Sent)
            .failed(&Failure::new(Code::NotFound, "no \"x\""));
        assert_eq!(
            written(&failed, None),
            "{\"path\":\"x\\\\xff\\\\n\",\"path_base64\":\"eP8K\",\"result\":\"failed\",\"code\":\"FH-NOT-FOUND\",\"error\":\"no \\\"x\\\"\",\"at\":1700000000.3}\n"
        );
        let end = |report: &Report| String::from_utf8(end(report)).unwrap();
        assert_eq!(
            end(&Report { ok: true, ..Report::default() }),
            "{\"end\":true,\"ok\":true,\"complete\":false}\n"
        );
        let early = Report { error: Some("lost".into()), ..Report::default() };
        assert_eq!(end(&early), "{\"end\":true,\"ok\":false,\"complete\":false,\"error\":\"lost\"}\n");
        assert_eq!(parse(&begin(AT)).unwrap(), ManifestLine::Begin);
        assert_eq!(parse(&super::end(&early)).unwrap(), ManifestLine::End { error: Some("lost".into()) });
    }

    #[test]
    fn lines_that_say_nothing_are_refused() {
        for line in [
            "",
            "x",
            "{}",
            "{\"manifest\":2}",
            "{\"path\":\"a\",\"kind\":\"file\",\"result\":\"sent\"}",
            "{\"path\":\"a\",\"result\":\"eaten\"}",
            "{\"path\":\"a\",\"path_base64\":\"!\",\"result\":\"sent\"}",
            "{\"path\":\"a\",\"digest\":\"abc\",\"result\":\"sent\"}",
            "{\"path\":\"a\",\"mode\":\"9\",\"result\":\"sent\"}",
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
        let later = "{\"path\":\"a\",\"kind\":\"whiteout\",\"result\":\"sent\",\"new\":[1]}";
        assert!(
            matches!(parse(later.as_bytes()), Ok(ManifestLine::Entry(entry)) if entry.kind == RecordKind::Unknown)
        );
    }

    proptest! {
        #[test]
        fn any_record_comes_back(
            path in proptest::collection::vec(any::<u8>(), 1..30), target in proptest::collection::vec(any::<u8>(), 1..30),
            kind in 0..8, size: u64, major: u32, minor: u32, mode in 0u32..0o10000, secs in -(1i64 << 40)..1 << 40, nanos in 0u32..1_000_000_000,
            digest: Option<[u8; 32]>, fate in 0usize..9,
        ) {
            // A dot stands for the destination itself, whose place is empty.
            prop_assume!(path != b".");
            let kind = match kind {
                0 => RecordKind::File { size },
                1 => RecordKind::Directory,
                2 => RecordKind::Symlink { target },
                3 => RecordKind::Special(SpecialNode::Fifo),
                4 => RecordKind::Special(SpecialNode::Socket),
                5 => RecordKind::Special(SpecialNode::CharDevice { major, minor }),
                6 => RecordKind::Special(SpecialNode::BlockDevice { major, minor }),
                _ => RecordKind::HardLink { to: target },
            };
            let record = ManifestRecord {
                kind, mode, mtime: (secs, nanos), digest, fate: EntryFate::ALL[fate], ..ManifestRecord::of_path(&path, EntryFate::Sent)
            };
            let text = written(&record, None);
            prop_assert_eq!(text.find('\n'), Some(text.len() - 1));
            let ManifestLine::Entry(back) = parse(text.as_bytes()).unwrap() else { panic!("an entry") };
            prop_assert_eq!((&back.path, &back.place), (&record.path, &record.path));
            prop_assert_eq!((back.kind, back.mode, back.mtime), (record.kind, mode, Some((secs, nanos))));
            prop_assert_eq!((back.digest, back.fate), (digest, record.fate));
        }

        #[test]
        fn any_bytes_parse_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&bytes);
        }
    }
}
