//! Entries that cannot have their names at the destination, because its file system refuses them or takes
//! them for other names.
//!
//! Always true: nothing is put below a directory of another name. Where one name was taken for another,
//! nothing is deleted, since an entry there may belong to the source under another spelling.

use farhaul_volume::{NameError, RelPath, is_about_metadata, name_error};
use farhaul_words::{Code, Error, Misbehaviour};

use super::super::directory_tree::{DirectoryAbsence, UnfinishedDirectory};
use super::super::failures::{Failure, of_name, plain};
use super::super::incoming_entry::IncomingEntry;
use super::super::messages::{EntryContent, ManifestEntry};
use super::super::receiver::CopyReceiver;

impl CopyReceiver {
    /// Makes the failure of an entry from an error.
    pub(crate) fn cannot(&self, what: &str, path: &RelPath, error: &std::io::Error) -> Failure {
        match name_error(error) {
            Some(name @ NameError::Refused(_)) => of_name(name, error),
            Some(name @ (NameError::Taken { .. } | NameError::Changed(_))) => {
                if let Some(directory) = path.parent() {
                    self.ambiguous_directories.add(directory);
                }
                of_name(name, error)
            }
            None if is_about_metadata(error) => Failure::new(Code::MetadataNotSet, plain(error)),
            None => Failure::cannot(what, error),
        }
    }

    /// Handles an entry whose path is too long at the destination, where the source has a longer name than at
    /// its own end.
    pub(super) fn entry_without_place(&self, entry: ManifestEntry) -> Result<(), Error> {
        let path = RelPath::from_bytes(&entry.path)
            .map_err(|error| Error::misbehaved(Misbehaviour::PathNotPlain, error.to_string()))?;
        let booked = path.as_bytes().len() + entry.names_bytes();
        let parent = Some(self.tree.add_unplaced(booked)?.id);
        let item = IncomingEntry { entry, path, parent, booked, is_place_free: false, replaces: None };
        let why = Failure::new(Code::BadPath, "its path is too long there");
        self.entry_without(item, why, DirectoryAbsence::Nameless)
    }

    /// Handles an entry in a directory that is not there: nothing is asked of the sender for it.
    pub(super) fn entry_of_absent(
        &self,
        item: IncomingEntry,
        absence: DirectoryAbsence,
    ) -> Result<(), Error> {
        self.entry_without(item, absence.failure(), absence)
    }

    /// Handles an entry that cannot have its place. If it is a directory, what is in it fails as `below`
    /// says.
    pub(super) fn entry_without(
        &self,
        item: IncomingEntry,
        why: Failure,
        below: DirectoryAbsence,
    ) -> Result<(), Error> {
        match item.entry.what {
            EntryContent::Directory => {
                self.fail(&item, &why);
                let directory = UnfinishedDirectory {
                    is_made: false,
                    absence: Some(below),
                    ..UnfinishedDirectory::below(item.parent)
                };
                self.tree.open(UnfinishedDirectory {
                    id: item.id(),
                    path: item.path,
                    booked: item.booked,
                    ..directory
                })
            }
            EntryContent::HardLink { .. } | EntryContent::Symlink { .. } | EntryContent::Special(_) => {
                self.fail(&item, &why);
                self.child_done(&item);
                Ok(())
            }
            EntryContent::File { linked, .. } => {
                if linked {
                    self.links.expect(item.id(), &item.path)?;
                }
                self.refuse(&item, why);
                Ok(())
            }
            EntryContent::Stream => {
                self.refuse(&item, why);
                Ok(())
            }
        }
    }
}
