//! What a program does first that was brought to this host: it looks at itself and at its folder.
//!
//! Always true: a program that goes on has the digest that its sender has named, and lies in a folder in which
//! nobody else can write, and which nobody else can replace.

use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use farhaul_words::{Code, Error};

use super::script::{FOLDER, MARK, kept_name, version_folder};
use super::{THIS_PROGRAM, digest_of};

/// Bits of a mode by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;

/// Looks at this program, which has to have this digest, gives it its final name, and tells the sender that it
/// listens.
pub fn settle(digest: &str) -> Result<(), Error> {
    let result = settled(digest);
    let mut stdout = io::stdout().lock();
    let said = match &result {
        Ok(()) => writeln!(stdout, "{MARK} ready"),
        Err(error) => writeln!(stdout, "{MARK} no {}", error.what()),
    };
    said.and_then(|()| stdout.flush()).map_err(Error::io("cannot answer"))?;
    result
}

fn settled(wanted: &str) -> Result<(), Error> {
    let refuse =
        |reason: &str, place: &Path| Error::new(Code::CannotBring, format!("{reason} {}", place.display()));
    let own = fs::read_link(THIS_PROGRAM).map_err(Error::io("cannot find this program"))?;
    let mut program = File::open(THIS_PROGRAM).map_err(Error::io("cannot open this program"))?;
    let (_, digest) = digest_of(&mut program).map_err(Error::io("cannot read this program"))?;
    if digest != wanted {
        let _ = fs::remove_file(&own);
        return Err(refuse("damaged", &own));
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let home = fs::canonicalize(home).map_err(Error::io("cannot find the home"))?;
    let folder = fs::canonicalize(home.join(FOLDER).join(version_folder()))
        .map_err(Error::io("cannot find its folder"))?;
    if own.parent() != Some(&folder) || !folder.starts_with(&home) {
        return Err(refuse("elsewhere", &own));
    }
    for place in folder.ancestors().take_while(|place| place.starts_with(&home)) {
        let seen = fs::symlink_metadata(place).map_err(Error::io("cannot look at its folder"))?;
        if let Some(reason) = unfit(&seen) {
            return Err(refuse(reason, place));
        }
    }
    let kept = folder.join(kept_name(&digest));
    if kept != own {
        fs::rename(&own, &kept).map_err(Error::io("cannot rename this program"))?;
    }
    Ok(())
}

/// Why a folder cannot hold programs.
fn unfit(folder: &Metadata) -> Option<&'static str> {
    match () {
        () if folder.uid() != rustix::process::geteuid().as_raw() => Some("owner"),
        () if folder.mode() & OTHERS_WRITE != 0 || !folder.is_dir() => Some("writable"),
        () => None,
    }
}

/// A program that others have brought to this host.
#[derive(Debug)]
pub struct KeptProgram {
    /// Where it is.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// The time since it came.
    pub age: Duration,
}

/// The programs in this user's folder, those whose bringing was interrupted among them.
pub fn programs() -> Result<Vec<KeptProgram>, Error> {
    let home = std::env::home_dir().unwrap_or_default();
    let mut all = Vec::new();
    for version in entries(&home.join(FOLDER))? {
        for path in entries(&version)? {
            let Ok(seen) = fs::symlink_metadata(&path) else { continue };
            if seen.is_file() {
                let age = seen.modified().ok().and_then(|time| time.elapsed().ok()).unwrap_or_default();
                all.push(KeptProgram { path, bytes: seen.len(), age });
            }
        }
    }
    Ok(all)
}

/// Removes a program, and its folder if that is empty then. A program that runs goes on.
pub fn remove(program: &KeptProgram) -> io::Result<()> {
    fs::remove_file(&program.path)?;
    if let Some(folder) = program.path.parent() {
        // It stays if there is another program in it.
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

/// What is in a folder, in the order of its names; nothing if there is no such folder.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let listed = match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        listed => {
            listed.and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>())
        }
    };
    let mut all = listed.map_err(Error::io(format!("cannot list {}", folder.display())))?;
    all.sort_unstable();
    Ok(all)
}
