//! The files that a run writes for its user beside the copy: the manifest and the receipt.
//!
//! Always true: no other regular file is replaced, so a name that was left out or mistyped costs nothing. What
//! is no regular file (a device, a pipe) is written into and stays what it is.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use farhaul_words::{Code, Error};
use rustix::fs::OFlags;

use super::destination::last_component;
use super::job::{CopyJob, Location};
use super::location_checks::is_same_file;

/// The bytes of a file that are looked at.
const HEAD_BYTES: u64 = 64;

/// Refuses to replace a file that does not begin with `head`, apart from white space, as a `what` does.
pub(crate) fn may_be_replaced(path: &Path, what: &str, head: &str) -> Result<(), Error> {
    let is_ours = || -> io::Result<bool> {
        // Non-blocking, so that a pipe that somebody has put there meanwhile does not block us.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        Ok(!file.metadata()?.is_file() || begins_with(file, head)?)
    };
    if !path.metadata().is_ok_and(|meta| meta.is_file()) || is_ours().unwrap_or(true) {
        return Ok(());
    }
    let what = format!("{} is there and is no {what}, so it is not replaced", path.display());
    Err(Error::new(Code::AlreadyExists, what).with_hint("give another name, or remove it first"))
}

/// The same for a regular file that is open for writing.
pub(crate) fn may_be_emptied(file: &File, what: &str, head: &str) -> io::Result<()> {
    // A new descriptor, as this one cannot read. Whoever may not read the file has to know what it is.
    let begins =
        File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).and_then(|file| begins_with(file, head));
    match begins.unwrap_or(true) {
        true => Ok(()),
        false => {
            let text = format!("another file has its place now, which is no {what}");
            Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
        }
    }
}

/// Whether a file begins with `head`; one that is shorter may be the beginning of it.
fn begins_with(file: File, head: &str) -> io::Result<bool> {
    let mut found = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut found)?;
    found.retain(|byte| !byte.is_ascii_whitespace());
    found.truncate(head.len());
    Ok(head.as_bytes().starts_with(&found))
}

/// Refuses a manifest or a receipt that is a source of the job, or that the job would replace.
pub(crate) fn check_apart(job: &CopyJob, places: &[PathBuf]) -> Result<(), Error> {
    let receipt = job.receipt.as_ref().and_then(|receipt| receipt.file.as_deref());
    for (option, file) in [("`manifest`", job.manifest.as_deref()), ("`receipt`", receipt)] {
        let Some(file) = file.filter(|file| file.metadata().map_or(true, |meta| meta.is_file())) else {
            continue;
        };
        let refuse = |why: &str| {
            let what = format!("{option} {}: {why}", file.display());
            Err(Error::new(Code::BadOption, what).with_hint("give the name of another file"))
        };
        let is_source = |source: &Location| matches!(source, Location::Local(path) if is_one(path, file));
        if job.sources.iter().any(is_source) {
            return refuse("this file is a source of the copy");
        }
        if places.iter().any(|place| is_one(place, file)) {
            return refuse("the copy writes this file");
        }
    }
    match (job.manifest.as_deref(), receipt) {
        (Some(manifest), Some(receipt)) if is_one(manifest, receipt) => {
            let what = format!("`manifest` and `receipt` both name {}", receipt.display());
            Err(Error::new(Code::BadOption, what))
        }
        _ => Ok(()),
    }
}

/// Whether two names are those of one file, which need not exist yet.
fn is_one(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let name =
            last_component(path.as_os_str().as_encoded_bytes()).is_some().then(|| path.file_name())??;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Some((folder.unwrap_or(Path::new(".")).canonicalize().ok()?, name.to_os_string()))
    };
    is_same_file(one, other) || place(one).is_some_and(|one| place(other) == Some(one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interruptible_io::InterruptibleOutput;

    #[test]
    fn only_a_file_of_the_same_kind_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let judge = || may_be_replaced(&path, "manifest", "{\"manifest\":");
        assert!(judge().is_ok(), "it is not there");
        for (content, is_ours) in [
            ("", true),
            ("{\"manif", true),
            ("{\"manifest\":1,\"program\"", true),
            ("{\n  \"manifest\": 1", true),
            ("genome", false),
            ("{\"receipt\":1", false),
        ] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(judge().is_ok(), is_ours, "{content:?}");
        }
        assert!(may_be_replaced(Path::new("/dev/null"), "manifest", "{\"manifest\":").is_ok());
    }

    #[test]
    fn a_file_that_got_the_name_after_the_look_keeps_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let create = || {
            let may_be_emptied = |file: &File| may_be_emptied(file, "manifest", "{\"manifest\":");
            InterruptibleOutput::create(&path, &may_be_emptied, &|| true)
        };
        create().unwrap();
        std::fs::write(&path, "{\"manifest\":1}\n").unwrap();
        create().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
        std::fs::write(&path, "genome").unwrap();
        let error = create().unwrap_err().to_string();
        assert!(error.contains("no manifest"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "genome");
    }

    #[test]
    fn names_of_one_file_are_recognised_before_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("d")).unwrap();
        std::fs::write(at("there"), "x").unwrap();
        std::fs::hard_link(at("there"), at("link")).unwrap();
        assert!(is_one(&at("new"), &at("d/../new")) && is_one(&at("there"), &at("link")));
        assert!(!is_one(&at("new"), &at("other")) && !is_one(&at("d/"), &at("new")));
    }
}
