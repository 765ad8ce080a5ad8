//! Files that set the same values again at each start. They are made anew from the undo file each time, so that undoing a
//! setting takes it out of them.

use std::fs;
use std::io;
use std::path::Path;

use super::undo_file::UndoFile;
use crate::Error;
use crate::check::Change;
use crate::host::split;

const HEADER: &str = "# Made by `farhaul doctor --apply --persist`, and made anew at its next run. `farhaul doctor --undo` takes lines out.\n";

/// The files, by their paths, with what they hold; an empty one is removed.
struct Files(Vec<(&'static str, String)>);

/// For `sysctl --system`.
const SYSCTL: &str = "etc/sysctl.d/90-farhaul-doctor.conf";
/// For `systemd-tmpfiles`, which writes files below /sys at each start.
const TMPFILES: &str = "etc/tmpfiles.d/farhaul-doctor.conf";
/// For udev, when an interface appears.
const UDEV: &str = "etc/udev/rules.d/90-farhaul-doctor.rules";

impl Files {
    fn of(undo_file: &UndoFile) -> Files {
        let (mut sysctl, mut tmpfiles, mut udev) = (String::new(), String::new(), String::new());
        for record in undo_file.persistent() {
            let change = Change { place: record.place.clone(), value: record.after.clone() };
            let (file, _) = split(&record.place);
            if let Some(name) = file.strip_prefix("proc/sys/") {
                sysctl.push_str(&format!("{} = {}\n", name.replace('/', "."), record.after));
            } else if let Some(rest) = file.strip_prefix("asked/ethtool/") {
                let interface = rest.split('/').next().unwrap_or_default();
                // udev starts programs by their paths only.
                let command = change.command();
                udev.push_str(&format!("ACTION==\"add\", SUBSYSTEM==\"net\", NAME==\"{interface}\", RUN+=\"/usr/sbin/{command}\"\n"));
            } else {
                tmpfiles.push_str(&format!("w /{file} - - - - {}\n", record.after));
            }
        }
        Files(vec![(SYSCTL, sysctl), (TMPFILES, tmpfiles), (UDEV, udev)])
    }
}

/// Writes the files below a root, `/` as a rule. Returns the paths of those that hold something.
pub fn write(undo_file: &UndoFile, root: &Path) -> Result<Vec<String>, Error> {
    let mut written = Vec::new();
    for (path, lines) in Files::of(undo_file).0 {
        let whole = root.join(path);
        let fail =
            |error: io::Error| Error::not_set(&whole.display().to_string(), "the values of this host", error);
        if lines.is_empty() {
            match fs::remove_file(&whole) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
                _ => continue,
            }
        }
        if let Some(directory) = whole.parent() {
            fs::create_dir_all(directory).map_err(fail)?;
        }
        fs::write(&whole, format!("{HEADER}{lines}")).map_err(fail)?;
        written.push(format!("/{path}"));
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::super::undo_file::Record;
    use super::*;

    #[test]
    fn each_kind_of_setting_goes_to_the_file_that_sets_it_at_a_start() {
        let folder = tempfile::tempdir().unwrap();
        let mut undo_file = UndoFile::open(&folder.path().join("undo.json")).unwrap();
        let mut add = |place: &str, after: &str, is_persistent| {
            let text = String::from;
            undo_file.records.push(Record {
                check: text("x"),
                place: place.into(),
                before: text("1"),
                after: after.into(),
                boot: text(""),
                is_persistent,
            });
        };
        add("proc/sys/net/ipv4/tcp_rmem", "4096 131072 33554432", true);
        add("sys/block/nvme0n1/queue/scheduler", "none", true);
        add("asked/ethtool/eth0/rings#rx", "8192", true);
        add("proc/sys/vm/swappiness", "1", false);
        let written = write(&undo_file, folder.path()).unwrap();
        assert_eq!(written.len(), 3);
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap().replace(HEADER, "");
        assert_eq!(read(SYSCTL), "net.ipv4.tcp_rmem = 4096 131072 33554432\n");
        assert_eq!(read(TMPFILES), "w /sys/block/nvme0n1/queue/scheduler - - - - none\n");
        assert_eq!(
            read(UDEV),
            "ACTION==\"add\", SUBSYSTEM==\"net\", NAME==\"eth0\", RUN+=\"/usr/sbin/ethtool -G eth0 rx 8192\"\n"
        );
        undo_file.records.clear();
        assert!(write(&undo_file, folder.path()).unwrap().is_empty());
        assert!(!folder.path().join(SYSCTL).exists());
    }
}
