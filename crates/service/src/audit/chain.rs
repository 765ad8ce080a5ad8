//! The chain of an audit log: each line has, as `"previous"`, the BLAKE3 digest of the bytes of the line
//! before it.
//!
//! Always true: a file of any length is read with the memory of one line.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use farhaul::Error;
use farhaul::errors::Code;

use super::FileEnd;
use super::line::LINE_MAX;

/// The most faults that one check lists.
const FAULTS_MAX: usize = 100;

/// The result of checking a chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckedChain {
    /// Lines in the file.
    pub lines: u64,
    /// Lines that have the digest of the line before them.
    pub chained: u64,
    /// The faults: a line's number, counted from 1, and what is wrong there.
    pub faults: Vec<(u64, &'static str)>,
}

/// Reads a file and checks its chain. The first line may follow the last line of an older file.
pub fn check(path: &Path) -> Result<CheckedChain, Error> {
    let failed = |error: io::Error| {
        Error::with_source(Code::of_files(&error), format!("cannot read {}", path.display()), error)
    };
    let mut reader = BufReader::new(File::open(path).map_err(failed)?);
    let mut checked = CheckedChain::default();
    let mut before: Option<blake3::Hash> = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        let most = LINE_MAX as u64 + 2;
        if reader.by_ref().take(most).read_until(b'\n', &mut line).map_err(failed)? == 0 {
            return Ok(checked);
        }
        checked.lines += 1;
        let number = checked.lines;
        let mut fault = |what| {
            if checked.faults.len() < FAULTS_MAX {
                checked.faults.push((number, what));
            }
        };
        let Some(text) = line.strip_suffix(b"\n") else {
            if line.len() as u64 == most {
                reader.skip_until(b'\n').map_err(failed)?;
            }
            fault("the line is cut off, or too long");
            continue;
        };
        match (previous_of(text), before) {
            (Err(()), _) => {
                // A line that a full disk has cut off; the next line has the digest of the line before this
                // one.
                fault("this is not a line of an audit log");
                continue;
            }
            (Ok(None), _) => {}
            (Ok(Some(previous)), before) => {
                checked.chained += 1;
                let fits = match before {
                    Some(before) => previous == before.to_hex().as_str(),
                    // The first line of a file may follow the last line of an older file.
                    None => true,
                };
                if !fits {
                    fault("the line before it was changed or removed");
                }
            }
        }
        before = Some(blake3::hash(text));
    }
}

/// The digest of the line before, as this line has it.
fn previous_of(line: &[u8]) -> Result<Option<String>, ()> {
    #[derive(serde::Deserialize)]
    struct ChainedLine {
        #[serde(rename = "time")]
        _time: String,
        previous: Option<String>,
    }
    let chained: ChainedLine = serde_json::from_slice(line).map_err(|_| ())?;
    Ok(chained.previous)
}

/// Finds how a file ends. Reads backwards, until there is a whole line.
pub(super) fn end_of(file: &File) -> io::Result<FileEnd> {
    let len = file.metadata()?.len();
    let start = len.saturating_sub(2 * LINE_MAX as u64 + 2);
    let mut tail = Vec::new();
    let mut at = start;
    let mut buffer = [0; 64 << 10];
    loop {
        match file.read_at(&mut buffer, at) {
            Ok(0) => break,
            Ok(got) => {
                tail.extend_from_slice(&buffer[..got]);
                at += got as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let is_torn = !tail.is_empty() && tail.last() != Some(&b'\n');
    // The last whole line that is a line of an audit log.
    let whole = tail.rsplit(|&byte| byte == b'\n').skip(1);
    let last = whole.filter(|line| !line.is_empty()).find(|line| previous_of(line).is_ok()).map(blake3::hash);
    Ok(FileEnd { size: len, is_torn, last })
}
