//! Writes the file of a receipt.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use farhaul_session::error::{Code, Error};
use rustix::fs::{Access, access};

use super::Receipt;
use crate::failures::plain;

fn cannot(path: &Path, error: &std::io::Error) -> Error {
    let what = format!("cannot write the receipt {}: {}", path.display(), plain(error));
    Error::new(Code::of_files(error), what)
}

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
    access(folder(path), Access::WRITE_OK | Access::EXEC_OK).map_err(|error| cannot(path, &error.into()))
}

/// Writes the receipt as a whole, replacing an existing file.
pub(crate) fn write(receipt: &Receipt, path: &Path) -> Result<(), Error> {
    let write = || -> std::io::Result<()> {
        // The umask alone decides who may read the file, as it is no secret.
        let open = Permissions::from_mode(0o666);
        let mut file = tempfile::Builder::new().permissions(open).tempfile_in(folder(path))?;
        file.write_all(&receipt.to_json())?;
        file.as_file().sync_all()?;
        file.persist(path).map(drop).map_err(|error| error.error)
    };
    write().map_err(|error| cannot(path, &error))
}
