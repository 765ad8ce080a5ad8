//! How files are received: what the options and the terms of the connection mean for this end.

use farhaul_volume::{AttributeKinds, FileTime};

use super::Terms;
use crate::options::{DeleteOptions, Durability, FileOptions, SyncOptions, TransferOptions, VerifyMode};

/// How files are received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceiveRules {
    pub(crate) files: FileOptions,
    pub(crate) verify: VerifyMode,
    pub(crate) durable: bool,
    pub(crate) durable_each: bool,
    pub(crate) dry_run: bool,
    /// Ask only for the differences of a file that is there in another version.
    pub(crate) delta: bool,
    /// The options of a sync; `None` for a copy.
    pub(crate) sync: Option<SyncOptions>,
    /// The kinds of extended attributes that are made as they are at the sender.
    pub(crate) attributes: AttributeKinds,
    /// This end receives for a client of this host's daemon, not for the user that it runs as.
    pub(crate) is_daemon: bool,
    /// Mode bits that may be set.
    pub(crate) mode_mask: u32,
    /// Tell the sender how many of the directories are new.
    pub(crate) tells_new: bool,
}

impl ReceiveRules {
    pub(crate) fn new(options: &TransferOptions, tells_new: bool, terms: &Terms) -> ReceiveRules {
        let is_daemon = terms.strip_setuid;
        let (files, verify) = (options.files, options.integrity.verify);
        let strip_setuid = is_daemon || !files.keep_setuid;
        let durable = if options.dry_run { Durability::No } else { options.integrity.durable };
        ReceiveRules {
            files,
            attributes: files.attributes(is_daemon),
            is_daemon,
            verify,
            durable: durable != Durability::No,
            durable_each: durable == Durability::File,
            dry_run: options.dry_run,
            // Without digests nobody would notice two marks that are equal by chance.
            delta: files.delta == Some(true) && verify != VerifyMode::Transit,
            sync: options.sync,
            tells_new,
            mode_mask: if strip_setuid { 0o1777 } else { 0o7777 } & !terms.mask,
        }
    }

    /// The part of a source's mode that is to be set; `None` if modes are not preserved.
    pub(crate) fn mode(&self, mode: u32) -> Option<u32> {
        (!self.files.no_perms).then_some(mode & self.mode_mask)
    }

    /// The modification time that is to be set; `None` if times are not preserved.
    pub(crate) fn mtime(&self, mtime: FileTime) -> Option<FileTime> {
        (!self.files.no_times).then_some(mtime)
    }

    /// The same for a directory.
    pub(crate) fn directory_mtime(&self, mtime: FileTime) -> Option<FileTime> {
        self.mtime(mtime).filter(|_| !self.files.omit_dir_times)
    }

    /// How surplus entries are deleted; `None` if they stay.
    pub(crate) fn delete(&self) -> Option<DeleteOptions> {
        self.sync.and_then(|sync| sync.delete)
    }
}
