//! Makes the changes.
//!
//! Always true: a rename that must not replace anything is refused by the system if something is there, so nobody can
//! put it there in between.

use std::collections::HashSet;
use std::io;

use farhaul_volume::{FileKind, FileTime, Filter, Metadata, RelPath, Removal, RemovalOutcome};
use farhaul_words::{Code, Failure};

use super::messages::{IntoDirectory, RemoveExtent, RenameRule};
use super::names_scope::{NamesScope, Place};

pub(crate) fn make_directory(scope: &NamesScope, path: &[u8], parents: bool) -> Result<(), Failure> {
    if !parents {
        let Place { directory, name } = scope.place(path)?;
        return match directory.metadata(&name).map_err(|error| Failure::cannot("look it up", &error))? {
            Some(_) => Err(Failure::new(Code::AlreadyExists, "something of that name is there")),
            None => directory.create_shared_dir(&name).map_err(|error| Failure::cannot("make it", &error)),
        };
    }
    let steps = scope.steps(path)?;
    for (number, step) in steps.iter().enumerate() {
        match scope.is_directory(step) {
            Ok(true) => continue,
            Ok(false) => {}
            // What lies above the directories that may be used is not asked about. Below a link that leads out of them
            // nothing is found, so the last step fails.
            Err(failure) if failure.code == Code::Forbidden && number + 1 < steps.len() => continue,
            Err(failure) => return Err(failure),
        }
        let Place { directory, name } = scope.place(step)?;
        directory.create_shared_dir(&name).map_err(|error| Failure::cannot("make it", &error))?;
    }
    Ok(())
}

pub(crate) fn rename(
    scope: &NamesScope,
    from: &[u8],
    to: &[u8],
    into: IntoDirectory,
    rule: RenameRule,
) -> Result<(), Failure> {
    let source = scope.place(from)?;
    let there = existing(&source)?;
    let is_directory = scope.is_directory(to)?;
    if into == IntoDirectory::Must && !is_directory {
        return Err(Failure::new(Code::NotADirectory, "the destination is no directory"));
    }
    let target = if into != IntoDirectory::Never && is_directory {
        let name = source.name.as_bytes();
        let slash: &[u8] = if to.ends_with(b"/") || to.is_empty() { b"" } else { b"/" };
        scope.place(&[to, slash, name].concat())?
    } else if to.ends_with(b"/") && !is_directory && there.kind != FileKind::Dir {
        return Err(Failure::new(
            Code::NotADirectory,
            "the new name ends with a slash, and no directory is there",
        ));
    } else {
        scope.place(to)?
    };
    let renamed = target.directory.rename_from(
        &target.name,
        &source.directory,
        &source.name,
        rule == RenameRule::Replace,
    );
    renamed.map_err(|error| match (error.kind(), there.kind) {
        (io::ErrorKind::AlreadyExists, _) => {
            Failure::new(Code::AlreadyExists, "something of the new name is there")
        }
        (io::ErrorKind::CrossesDevices, _) => {
            let what = "the new name lies on another file system: copy it, then remove the old one";
            Failure::new(Code::FilesFailed, what)
        }
        (_, FileKind::Dir) if Code::of_files(&error) == Code::BadPath => {
            Failure::new(Code::IntoItself, "a directory cannot be moved into itself")
        }
        _ => Failure::cannot("rename it", &error),
    })
}

/// `is_stopped` says whether the client has gone; a tree is then left as far as it is removed.
pub(crate) fn remove(
    scope: &NamesScope,
    path: &[u8],
    extent: RemoveExtent,
    is_stopped: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    let place = scope.place(path)?;
    let there = existing(&place)?;
    let Place { directory, name } = &place;
    let cannot = |error: io::Error| Failure::cannot("remove it", &error);
    match (extent, there.kind) {
        (RemoveExtent::File, FileKind::Dir) => Err(Failure::new(Code::BadPath, "it is a directory")),
        (RemoveExtent::EmptyDirectory, FileKind::Dir) => directory.remove_dir(name).map_err(cannot),
        (RemoveExtent::EmptyDirectory, _) => Err(Failure::new(Code::NotADirectory, "it is no directory")),
        (RemoveExtent::Tree, FileKind::Dir) => remove_tree(&place, is_stopped),
        (RemoveExtent::File | RemoveExtent::Tree, _) => directory.unlink(name).map_err(cannot),
    }
}

fn remove_tree(place: &Place, is_stopped: &dyn Fn() -> bool) -> Result<(), Failure> {
    let (filter, none) = (Filter::default(), HashSet::new());
    let mut failure = None;
    let mut removal = Removal::new(&place.directory, &filter, &none);
    let is_gone = removal.remove(&RelPath::empty(), place.name.as_bytes(), true, &mut |path, outcome| {
        let why = match outcome {
            RemovalOutcome::Gone | RemovalOutcome::Moved | RemovalOutcome::OverLimit => None,
            RemovalOutcome::Left(_) => Some((Code::FilesFailed, "something is mounted there".to_string())),
            RemovalOutcome::Failed(error) => {
                let Failure { code, reason } = Failure::of(&error);
                Some((code, reason))
            }
        };
        if let Some((code, why)) = why {
            let shown = farhaul_text::printable(path.as_bytes(), 200);
            failure.get_or_insert_with(|| Failure::new(code, format!("cannot remove {shown}: {why}")));
        }
        !is_stopped()
    });
    match failure {
        Some(failure) => Err(failure),
        None if is_gone => Ok(()),
        None => Err(Failure::new(Code::FilesFailed, "something in it stays")),
    }
}

pub(crate) fn set_time(scope: &NamesScope, path: &[u8], mtime: FileTime) -> Result<(), Failure> {
    let place = scope.place(path)?;
    existing(&place)?;
    place
        .directory
        .set_meta(&place.name, None, Some(mtime))
        .map_err(|error| Failure::not_set("its time", &error))
}

fn existing(place: &Place) -> Result<Metadata, Failure> {
    let there =
        place.directory.metadata(&place.name).map_err(|error| Failure::cannot("look it up", &error))?;
    there.ok_or_else(|| Failure::new(Code::NotFound, "there is no such file or directory"))
}
