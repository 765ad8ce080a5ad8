//! Writes the file of a receipt.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use farhaul_words::{Code, Error};
use rustix::fs::{Access, access};

use super::Receipt;
use crate::failures::plain;
use crate::interruptible_io::{GivenUp, InterruptibleOutput};
use crate::output_file::{may_be_emptied, may_be_replaced};

fn cannot(path: &Path, error: &io::Error) -> Error {
    let what = format!("cannot write the receipt {}: {}", path.display(), plain(error));
    Error::new(Code::of_files(error), what)
}

/// How every receipt begins, without white space.
const HEAD: &str = "{\"receipt\":";

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Checks before anything is sent whether the file can be written.
pub(crate) fn is_writable(path: &Path) -> Result<(), Error> {
    if path.is_dir() || path.file_name().is_none() {
        return Err(Error::new(
            Code::BadPath,
            format!("cannot write the receipt {}: it is a directory", path.display()),
        ));
    }
    may_be_replaced(path, "receipt", HEAD)?;
    let place = real(path).map_err(|error| cannot(path, &error))?;
    match place.metadata() {
        Ok(meta) if !meta.is_file() => access(&place, Access::WRITE_OK),
        _ => access(folder(&place), Access::WRITE_OK | Access::EXEC_OK),
    }
    .map_err(|error| cannot(path, &error.into()))
}

/// The file that a name leads to through symbolic links.
fn real(path: &Path) -> io::Result<PathBuf> {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_symlink() => path.canonicalize(),
        _ => Ok(path.to_path_buf()),
    }
}

/// Writes the receipt as a whole, replacing an existing file. What is no regular file is written into.
pub(crate) fn write(receipt: &Receipt, path: &Path) -> Result<(), Error> {
    let write = || -> io::Result<()> {
        let path = &real(path)?;
        if path.metadata().is_ok_and(|meta| !meta.is_file()) {
            // A pipe without a reader must not hold up the end of a run.
            let over = || true;
            let may_be_emptied = |file: &File| may_be_emptied(file, "receipt", HEAD);
            return InterruptibleOutput::create(path, &may_be_emptied, &over)?
                .write_report(&receipt.to_json(), &over);
        }
        // The umask alone decides who may read the file, as it is no secret.
        let open = Permissions::from_mode(0o666);
        let mut file = tempfile::Builder::new().permissions(open).tempfile_in(folder(path))?;
        file.write_all(&receipt.to_json())?;
        file.as_file().sync_all()?;
        file.persist(path).map(drop).map_err(|error| error.error)
    };
    write().map_err(|error| match GivenUp::is(&error) {
        true => cannot(path, &io::Error::other("no program reads this pipe")),
        false => cannot(path, &error),
    })
}
