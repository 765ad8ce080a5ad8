//! Entries that cannot have their own name at the destination, because its file system takes it for another one or not at all.
//!
//! Always true: nothing is put below a directory of another name; where a name was taken for another one nothing is deleted,
//! since what stands there may be what the source calls otherwise.

use farhaul_store::{NameError, RelPath, is_about_attributes, name_error};

use super::super::failures::plain;
use super::super::item::Item;
use super::super::tree::Directory;
use super::{LOCK, Receiver};
use crate::error::Error;
use crate::messages::What;

impl Receiver {
    /// Why an entry has failed.
    pub(crate) fn cannot(&self, what: &str, path: &RelPath, error: &std::io::Error) -> String {
        match name_error(error) {
            Some(NameError::Refused(_)) => plain(error),
            Some(NameError::Taken { .. } | NameError::Changed(_)) => {
                self.ambiguous.lock().expect(LOCK).extend(path.parent());
                plain(error)
            }
            None if is_about_attributes(error) => plain(error),
            None => format!("cannot {what}: {}", plain(error)),
        }
    }

    /// Whether names in a directory were taken for others.
    pub(super) fn is_ambiguous(&self, directory: &RelPath) -> bool {
        self.ambiguous.lock().expect(LOCK).contains(directory)
    }

    /// An entry below a directory that could not have its name.
    pub(super) fn entry_of_nameless(&self, item: Item) -> Result<(), Error> {
        const WHY: &str = "its directory could not have its name there";
        match item.entry.what {
            What::Directory => {
                self.fail(&item, WHY);
                let mut tree = self.tree.lock().expect(LOCK);
                let directory =
                    Directory { is_made: false, is_nameless: true, ..Directory::below(item.parent) };
                tree.open(Directory { id: item.id(), path: item.path, booked: item.booked, ..directory })
            }
            What::HardLink { .. } | What::Symlink { .. } | What::Special(_) => {
                self.fail(&item, WHY);
                self.child_done(&item);
                Ok(())
            }
            What::File { linked, .. } => {
                if linked {
                    self.links.lock().expect(LOCK).expect(item.id(), &item.path)?;
                }
                self.refuse(&item, WHY);
                Ok(())
            }
            What::Stream => {
                self.refuse(&item, WHY);
                Ok(())
            }
        }
    }
}
