//! The schema of the store, and how a file with an earlier version of it is migrated.
//!
//! Always true: versions of the schema only go up, one after the other, each in one transaction; a file is
//! copied before it is changed; a file of a later version, or of one before the base, is not touched.

use std::path::{Path, PathBuf};

use farhaul_words::{Code, Error};
use rusqlite::{Connection, TransactionBehavior};

use super::failed;

/// The earliest version of the schema that this program reads: the base.
pub(super) const BASE: usize = 7;
/// First the base, which makes a new store, then the migrations, each from one version of the schema to the next. A
/// version that has a file in `vectors/` must not change any more: make a further one (`shapes.rs` says how to make
/// its file).
pub(super) const MIGRATIONS: &[&str] = &[include_str!("migrations/7.sql")];
/// The mark of our files (`PRAGMA application_id`): "Fhjb".
const APPLICATION: i32 = 0x4668_6a62;

/// What was in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing: it is a new store.
    Nothing,
    Store,
}

/// Brings the file to the present version of the schema.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<Found, Error> {
    migrate_by(connection, path, MIGRATIONS)
}

fn migrate_by(connection: &mut Connection, path: &Path, migrations: &[&str]) -> Result<Found, Error> {
    let ours = |error| failed(path, error);
    let number = |connection: &Connection, name: &str| {
        connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(ours)
    };
    let shape = number(connection, "user_version")?;
    let application = number(connection, "application_id")?;
    let newest = version_after(migrations.len());
    if shape == 0 && application == 0 {
        let tables = "SELECT count(*) FROM sqlite_schema";
        let tables: i64 = connection.query_row(tables, [], |row| row.get(0)).map_err(ours)?;
        if tables > 0 {
            return Err(Error::new(
                Code::StoreBroken,
                format!("{}: is not a store of Farhaul", path.display()),
            ));
        }
    } else if application != i64::from(APPLICATION) {
        return Err(Error::new(Code::StoreBroken, format!("{}: is not a store of Farhaul", path.display())));
    }
    if shape > newest {
        let what = format!(
            "the store {} is of a later version (shape {shape}, this version knows {newest})",
            path.display()
        );
        let hint = "install the version that it was used with, or go back to a copy that was made before";
        return Err(Error::new(Code::StoreNewer, what).with_hint(hint));
    }
    if (1..version_after(1)).contains(&shape) {
        let what = format!(
            "the store {} is of an earlier version (shape {shape}, this version knows {BASE} and later ones)",
            path.display()
        );
        let hint = "an earlier version of Farhaul brings it to shape 7; or move it away, and the service begins a new one";
        return Err(Error::new(Code::StoreOlder, what).with_hint(hint));
    }
    if (1..newest).contains(&shape) {
        copy(connection, path, shape)?;
    }
    let is_missing = |(index, _): &(usize, &&str)| version_after(index + 1) > shape;
    for (index, sql) in migrations.iter().enumerate().filter(is_missing) {
        let step = |connection: &mut Connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute_batch(sql)?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
            transaction.pragma_update(None, "user_version", version_after(index + 1))?;
            transaction.commit()
        };
        step(connection).map_err(ours)?;
    }
    Ok(if shape == 0 { Found::Nothing } else { Found::Store })
}

/// The version of the schema after so many of [`MIGRATIONS`], of which the first is the base.
fn version_after(migrations: usize) -> i64 {
    i64::try_from(BASE + migrations - 1).unwrap_or(i64::MAX)
}

/// Copies the store, as it is, to a file beside it.
fn copy(connection: &Connection, path: &Path, shape: i64) -> Result<(), Error> {
    let to = backup_of(path, shape);
    match std::fs::remove_file(&to) {
        // There was a copy, left by an earlier migration that was interrupted.
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::of_host(format!("cannot replace {}", to.display()), error)),
    }
    super::copies::write(connection, &to)?;
    tracing::info!(copy = %to.display(), "the store is migrated to a new version; a copy of the old one is beside it");
    Ok(())
}

fn backup_of(path: &Path, shape: i64) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(format!(".shape{shape}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Connection {
        Connection::open(path).unwrap()
    }

    #[test]
    fn a_later_shape_is_copied_before_it_is_reached() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.sqlite");
        migrate(&mut open(&path), &path).unwrap();
        let connection = open(&path);
        connection.execute("INSERT INTO caps VALUES ('host', '{}', 1)", []).unwrap();
        drop(connection);
        let further =
            [MIGRATIONS, &["ALTER TABLE caps ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'"]].concat();
        migrate_by(&mut open(&path), &path, &further).unwrap();
        let colour = "SELECT colour FROM caps";
        let now: String = open(&path).query_row(colour, [], |row| row.get(0)).unwrap();
        assert_eq!(now, "red");
        let old = open(&backup_of(&path, version_after(MIGRATIONS.len())));
        assert!(old.query_row(colour, [], |row| row.get::<_, String>(0)).is_err());
        assert_eq!(old.query_row("SELECT count(*) FROM caps", [], |row| row.get::<_, i64>(0)), Ok(1));
        // This version of the program does not know that version of the schema.
        let error = migrate(&mut open(&path), &path).unwrap_err();
        assert!(error.code() == Code::StoreNewer && error.to_string().contains("later version"), "{error}");
    }

    #[test]
    fn a_store_from_before_the_base_is_refused_and_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.sqlite");
        let early =
            format!("CREATE TABLE jobs (id); PRAGMA application_id = {APPLICATION}; PRAGMA user_version = 6");
        open(&path).execute_batch(&early).unwrap();
        let before = std::fs::read(&path).unwrap();
        let error = migrate(&mut open(&path), &path).unwrap_err();
        assert_eq!(error.code(), Code::StoreOlder);
        let line = error.to_string();
        assert!(line.contains("of an earlier version (shape 6, this version knows 7"), "{line}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
        assert!(!backup_of(&path, 6).exists());
    }

    #[test]
    fn a_migration_that_fails_leaves_the_old_shape() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.sqlite");
        migrate(&mut open(&path), &path).unwrap();
        let wrong = [MIGRATIONS, &["CREATE TABLE extra (a); CREATE TABLE caps (a)"]].concat();
        assert!(migrate_by(&mut open(&path), &path, &wrong).is_err());
        assert!(open(&path).query_row("SELECT count(*) FROM extra", [], |row| row.get::<_, i64>(0)).is_err());
        migrate(&mut open(&path), &path).unwrap();
    }

    #[test]
    fn what_is_no_store_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.sqlite");
        open(&path).execute_batch("CREATE TABLE precious (a)").unwrap();
        assert_eq!(migrate(&mut open(&path), &path).unwrap_err().code(), Code::StoreBroken);
        open(&path).execute_batch("PRAGMA application_id = 7; DROP TABLE precious").unwrap();
        assert_eq!(migrate(&mut open(&path), &path).unwrap_err().code(), Code::StoreBroken);
        let text = folder.path().join("text");
        std::fs::write(&text, "no database at all, but rather long for one; ".repeat(40)).unwrap();
        assert_eq!(migrate(&mut open(&text), &text).unwrap_err().code(), Code::StoreBroken);
    }
}
