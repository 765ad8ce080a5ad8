//! The schema of the store, and how a file with an earlier version of it is migrated.
//!
//! Always true: versions of the schema only go up, one after the other, each in one transaction; a file is
//! copied before it is changed; a file of a later version is not touched.

use std::path::{Path, PathBuf};

use farhaul_session::{Code, Error};
use rusqlite::{Connection, TransactionBehavior};

use super::failed;

/// The migrations, each from one version of the schema to the next. A version that has a file in `vectors/`
/// must not change any more: make a further one (`shapes.rs` says how to make its file).
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("migrations/1.sql"),
    include_str!("migrations/2.sql"),
    include_str!("migrations/3.sql"),
    include_str!("migrations/4.sql"),
    include_str!("migrations/5.sql"),
    include_str!("migrations/6.sql"),
    include_str!("migrations/7.sql"),
];
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
    let newest = i64::try_from(migrations.len()).unwrap_or(i64::MAX);
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
    if (1..newest).contains(&shape) {
        copy(connection, path, shape)?;
    }
    for (index, sql) in migrations.iter().enumerate().skip(usize::try_from(shape).unwrap_or(0)) {
        let step = |connection: &mut Connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute_batch(sql)?;
            transaction.pragma_update(None, "application_id", APPLICATION)?;
            transaction.pragma_update(None, "user_version", i64::try_from(index).unwrap_or(0) + 1)?;
            transaction.commit()
        };
        step(connection).map_err(ours)?;
    }
    Ok(if shape == 0 { Found::Nothing } else { Found::Store })
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
        let old = open(&backup_of(&path, MIGRATIONS.len() as i64));
        assert!(old.query_row(colour, [], |row| row.get::<_, String>(0)).is_err());
        assert_eq!(old.query_row("SELECT count(*) FROM caps", [], |row| row.get::<_, i64>(0)), Ok(1));
        // This version of the program does not know that version of the schema.
        let error = migrate(&mut open(&path), &path).unwrap_err();
        assert!(error.code() == Code::StoreNewer && error.to_string().contains("later version"), "{error}");
    }

    #[test]
    fn dry_runs_of_an_earlier_version_have_moved_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.sqlite");
        migrate_by(&mut open(&path), &path, &MIGRATIONS[..1]).unwrap();
        let old = open(&path);
        for (id, dry_run) in [("dry", true), ("wet", false)] {
            let spec = format!(r#"{{"options": {{"dry_run": {dry_run}}}}}"#);
            old.execute(
                "INSERT INTO jobs (id, owner, kind, spec, state, priority, position, steering, figures, submitted_ms,
                   run, attempt, changed_ms) VALUES (?1, 'local', 'copy', ?2, 'done', 5, 1, '{}', '{}', 1, 1, 1, 1)",
                [id, &spec],
            )
            .unwrap();
            old.execute(
                "INSERT INTO history (job, run, owner, direction, source, destination, state, began_ms, ended_ms,
                   attempts, files, files_failed, bytes, wire_bytes, mean_bps, peak_bps, loss_fraction, rtt_ms, verdict)
                 VALUES (?1, 1, 'local', 'local', 'a', 'b', 'done', 1, 2, 1, 3, 0, 100, 7, 8.0, 9.0, 0.0, 0.0, '')",
                [id],
            )
            .unwrap();
        }
        drop(old);
        migrate(&mut open(&path), &path).unwrap();
        let question = "SELECT dry_run, files, bytes FROM history WHERE job = ?1";
        let of = |id: &str| {
            let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
            open(&path).query_row(question, [id], row).unwrap()
        };
        assert_eq!((of("dry"), of("wet")), ((1_i64, 0_i64, 0_i64), (0, 3, 100)));
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
