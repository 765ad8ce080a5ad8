//! `farhaul sum`: prints digests that the far end computes, in the format of sha256sum and similar tools.

use farhaul::Error;
use farhaul::errors::{Code, ExitCode};
use farhaul::options::Algorithm;
use farhaul::read::{Depth, ListItem, PathKind};
use farhaul::sisters::escape;
use serde::Serialize;

use super::kept_names::KeptNames;
use super::ls::joined;
use super::read_verbs::{LookOutcome, NamedPath, each};
use crate::args::read_verbs::SumArgs;

#[derive(Serialize)]
struct DigestJson<'a> {
    path: String,
    algorithm: &'static str,
    digest: &'a str,
    bytes: u64,
}

pub fn run(args: &SumArgs) -> ExitCode {
    each(&args.read, |named, outcome| {
        let there = named.remote.stat(named.path)?;
        if there.kind != PathKind::Directory {
            let (digest, bytes) = named.remote.file(named.path)?.digest(args.algorithm, None)?;
            line(args, named.path, &digest, bytes, outcome);
            return Ok(());
        }
        if !args.recursive {
            return Err(Error::new(Code::BadPath, "it is a directory")
                .with_hint("-r prints the digests of all files in it"));
        }
        let mut files = files(named, outcome)?;
        files.sort_unstable();
        for (path, summed) in named.remote.digests(args.algorithm, files) {
            match summed {
                Ok((digest, bytes)) => line(args, &path, &digest, bytes, outcome),
                Err(error) => outcome.note(named.remote, &path, Err(error))?,
            }
            if outcome.is_lost() {
                break;
            }
        }
        Ok(())
    })
}

/// Returns all plain files in a directory and below it.
fn files(named: &NamedPath<'_>, outcome: &mut LookOutcome) -> Result<Vec<Vec<u8>>, Error> {
    let mut files = Vec::new();
    let mut kept = KeptNames::new("name directories below it");
    for listed in named.remote.list(named.path, Depth::All)? {
        match listed? {
            ListItem::Entry(entry) if entry.kind == PathKind::File => {
                let path = joined(named.path, &entry.path);
                kept.name(&path)?;
                files.push(path);
            }
            ListItem::Entry(_) => {}
            ListItem::Failed { path, code, reason } => {
                outcome.fail(&joined(named.path, &path), Error::new(code, reason));
            }
            ListItem::NotEntered(path) => {
                let why = Error::new(Code::FilesFailed, "something is mounted there");
                outcome.fail(&joined(named.path, &path), why);
            }
        }
    }
    Ok(files)
}

/// `DIGEST  NAME`, as sha256sum writes it, or for XXH3 `XXH3 (NAME) = DIGEST`, as xxhsum does. A name with a
/// line end or a backslash is escaped, and then the line begins with a backslash.
fn line(args: &SumArgs, path: &[u8], digest: &[u8], bytes: u64, outcome: &mut LookOutcome) {
    let digest = &digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    if args.read.json {
        let (path, algorithm) = (escape(path), args.algorithm.name());
        return outcome.json(&DigestJson { path, algorithm, digest, bytes });
    }
    outcome.write(&list_line(args.algorithm, path, digest));
}

fn list_line(algorithm: Algorithm, path: &[u8], digest: &str) -> Vec<u8> {
    let mut name = Vec::with_capacity(path.len());
    for &byte in path {
        match byte {
            b'\\' => name.extend_from_slice(b"\\\\"),
            b'\n' => name.extend_from_slice(b"\\n"),
            b'\r' => name.extend_from_slice(b"\\r"),
            byte => name.push(byte),
        }
    }
    let mark: &[u8] = if name.len() == path.len() { b"" } else { b"\\" };
    match algorithm {
        // To xxhsum a digest of 16 digits without its name is another one, XXH64.
        Algorithm::Xxh3 => [mark, b"XXH3 (", &name, b") = ", digest.as_bytes(), b"\n"].concat(),
        _ => [mark, digest.as_bytes(), b"  ", &name, b"\n"].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_the_tools_escape_them() {
        let line = |path: &[u8]| list_line(Algorithm::Sha256, path, "00");
        assert_eq!(line(b"a b"), b"00  a b\n");
        assert_eq!(line(b"a\\b\nc"), b"\\00  a\\\\b\\nc\n");
        assert_eq!(line(b"\xff"), b"00  \xff\n");
        assert_eq!(list_line(Algorithm::Xxh3, b"a\nb", "00"), b"\\XXH3 (a\\nb) = 00\n");
    }
}
