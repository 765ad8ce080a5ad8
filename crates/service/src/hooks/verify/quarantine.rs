//! Keeps what a verify hook has refused in a directory of the administrator's, with a note of where it comes from.
//!
//! Always true: only this process's user can read what is kept, nothing is replaced, and a copy that was not
//! finished is removed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use farhaul::sisters::UncheckedFile;
use serde_json::json;

use super::{FileFacts, at_its_beginning};

/// How many bytes are copied between two looks.
const PIECE: usize = 1 << 20;
/// The most characters of the file's own name in its name here.
const NAME_CHARS: usize = 80;

/// Distinguishes files that are refused in the same millisecond.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Copies the content, and writes a note beside it. Returns the copy's path, or `None` if nobody wants it any more.
pub(super) fn keep(
    folder: &Path,
    file: &UncheckedFile<'_>,
    told: &FileFacts,
    (hook, reason): (&str, &str),
    is_wanted: &dyn Fn() -> bool,
) -> io::Result<Option<PathBuf>> {
    let path = folder.join(name(told));
    let note = path.with_added_extension("json");
    let mut kept = create(&path)?;
    let copied = copy(File::from(at_its_beginning(file)?), &mut kept, is_wanted).and_then(|is_whole| {
        if is_whole {
            let text = json!({ "hook": hook, "reason": reason, "file": FileFacts { content: String::new(), ..told.clone() } });
            create(&note)?.write_all(format!("{text}\n").as_bytes())?;
        }
        Ok(is_whole)
    });
    if !matches!(copied, Ok(true)) {
        // Both may be there in part.
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_file(&note);
    }
    Ok(copied?.then_some(path))
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// The time, a number and what can be shown of the name: letters, digits, dots, dashes and underscores.
fn name(told: &FileFacts) -> String {
    let plain = |char: char| if char.is_ascii_alphanumeric() || "-_.".contains(char) { char } else { '_' };
    let own: String = told.name.chars().take(NAME_CHARS).map(plain).collect();
    format!("{}-{}-{own}", told.at_ms, NUMBER.fetch_add(1, Relaxed))
}

/// Returns false if nobody wanted the rest any more.
fn copy(mut from: File, to: &mut File, is_wanted: &dyn Fn() -> bool) -> io::Result<bool> {
    // On file systems that share blocks this takes no room and no time.
    if rustix::fs::ioctl_ficlone(&*to, &from).is_ok() {
        return Ok(true);
    }
    let mut piece = vec![0; PIECE];
    loop {
        if !is_wanted() {
            return Ok(false);
        }
        match from.read(&mut piece)? {
            0 => return Ok(true),
            len => to.write_all(&piece[..len])?,
        }
    }
}
