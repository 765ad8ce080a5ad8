//! Copies of the whole store, and the rights of its files: they hold documents of jobs and hashes of tokens.
//!
//! Always true: nobody but this user can read them; a copy is a new file, and no link is followed.

use std::fs::{File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use farhaul_words::{Code, Error};
use rusqlite::Connection;

use super::failed;

/// Writes a copy, as the store is at this moment, to a new file.
pub(super) fn write(connection: &Connection, to: &Path) -> Result<(), Error> {
    let what = || format!("cannot write the backup {}", to.display());
    let name = to
        .to_str()
        .ok_or_else(|| Error::new(Code::BadPath, format!("{}: the path is not UTF-8", to.display())))?;
    let file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(to) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let what = format!("{} already exists", to.display());
            return Err(Error::new(Code::AlreadyExists, what).with_hint("name a file that is not there yet"));
        }
        Err(error) => return Err(Error::of_host(what(), error)),
    };
    let written = fill(connection, (to, name), &file).map_err(|error| error.about(&what()));
    if written.is_err() {
        // Half a copy is none.
        let _ = std::fs::remove_file(to);
    }
    written
}

fn fill(connection: &Connection, (to, name): (&Path, &str), file: &File) -> Result<(), Error> {
    let io = Error::io("cannot look at it".to_string());
    connection.execute("VACUUM INTO ?1", [name]).map_err(|error| failed(to, error))?;
    let (ours, there) = match (file.metadata(), std::fs::symlink_metadata(to)) {
        (Ok(ours), Ok(there)) => (ours, there),
        (Err(error), _) | (_, Err(error)) => return Err(io(error)),
    };
    if (ours.dev(), ours.ino()) != (there.dev(), there.ino()) {
        return Err(Error::new(Code::AlreadyExists, "somebody has put another file in its place"));
    }
    file.sync_all().map_err(Error::io("cannot write it through".to_string()))
}

/// Makes the store's file if it does not exist, and keeps others from reading it. The files beside it get the
/// rights of this one.
pub(super) fn make_private(path: &Path) -> Result<(), Error> {
    let what = || format!("cannot open the store {}", path.display());
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(Error::of_host(what(), error)),
    }
    for end in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_os_string();
        name.push(end);
        let name = Path::new(&name);
        let meta = match std::fs::symlink_metadata(name) {
            Ok(meta) => meta,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::of_host(what(), error)),
        };
        if !meta.is_file() {
            let kind = if meta.is_symlink() { "a symbolic link" } else { "no file" };
            let what = format!("{} is {kind}, so it is not part of a store", name.display());
            return Err(
                Error::new(Code::StoreBroken, what).with_hint("look who has put it there, and move it away")
            );
        }
        if meta.mode() & 0o077 != 0 {
            std::fs::set_permissions(name, Permissions::from_mode(0o600))
                .map_err(|error| Error::of_host(what(), error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::Store;
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn files_of_a_store_and_its_copies_are_for_this_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        drop(Store::open(&at("jobs.sqlite")).unwrap());
        // An earlier version let others read it.
        std::fs::set_permissions(at("jobs.sqlite"), Permissions::from_mode(0o644)).unwrap();
        let store = Store::open(&at("jobs.sqlite")).unwrap();
        store.write(|transaction| transaction.execute("INSERT INTO caps VALUES ('a', '{}', 1)", [])).unwrap();
        store.backup(&at("copy")).unwrap();
        for name in ["jobs.sqlite", "jobs.sqlite-wal", "jobs.sqlite-shm", "copy"] {
            assert_eq!(mode(&at(name)), 0o600, "{name}");
        }
        let caps: i64 = Connection::open(at("copy"))
            .unwrap()
            .query_row("SELECT count(*) FROM caps", [], |row| row.get(0))
            .unwrap();
        assert_eq!(caps, 1);
        symlink(at("elsewhere"), at("link")).unwrap();
        for there in ["copy", "link"] {
            assert_eq!(store.backup(&at(there)).unwrap_err().code(), Code::AlreadyExists, "{there}");
        }
        assert!(!at("elsewhere").exists());
        assert!(store.backup(&at("none/copy")).is_err());
    }

    #[test]
    fn what_stands_in_the_place_of_a_file_of_the_store_is_named_and_not_followed() {
        for name in ["jobs.sqlite", "jobs.sqlite-wal", "jobs.sqlite-shm"] {
            for is_link in [true, false] {
                let folder = tempfile::tempdir().unwrap();
                let at = |name: &str| folder.path().join(name);
                drop(Store::open(&at("jobs.sqlite")).unwrap());
                let _ = std::fs::remove_file(at(name));
                match is_link {
                    true => symlink(at("elsewhere"), at(name)).unwrap(),
                    false => std::fs::create_dir(at(name)).unwrap(),
                }
                let error = Store::open(&at("jobs.sqlite")).unwrap_err();
                assert_eq!(error.code(), Code::StoreBroken, "{name} {error}");
                assert!(error.what().contains(name) && !at("elsewhere").exists(), "{error}");
            }
        }
    }
}
