//! `mount -t farhaul`, and a line of `/etc/fstab`: mount(8) calls a helper `mount.farhaul`, which is this program under
//! another name. Its words become those of `farhaul mount`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

const NAME: &str = "mount.farhaul";
/// Options of mount(8) and of its table that change nothing here: the mount is read-only, and has no devices, programs
/// with other rights, or access times in any case.
const IGNORED: &[&[u8]] = &[
    b"defaults",
    b"ro",
    b"rw",
    b"auto",
    b"noauto",
    b"user",
    b"nouser",
    b"users",
    b"nousers",
    b"owner",
    b"group",
    b"_netdev",
    b"nofail",
    b"dev",
    b"nodev",
    b"suid",
    b"nosuid",
    b"exec",
    b"noexec",
    b"async",
    b"sync",
    b"atime",
    b"noatime",
    b"relatime",
    b"norelatime",
    b"strictatime",
    b"nostrictatime",
    b"lazytime",
    b"nolazytime",
    b"diratime",
    b"nodiratime",
    b"default_permissions",
];

/// The words of `farhaul mount` for a process that mount(8) has started; `None` for any other process.
pub fn words(given: impl IntoIterator<Item = OsString>) -> Option<Vec<OsString>> {
    let mut given = given.into_iter();
    if Path::new(&given.next()?).file_name() != Some(OsStr::new(NAME)) {
        return None;
    }
    let (mut words, mut places) = (vec![OsString::from("mount")], Vec::new());
    while let Some(word) = given.next() {
        match word.as_bytes() {
            b"-o" => given.next().iter().for_each(|options| translate(options, &mut words)),
            // A namespace or a type has a value, which mount(8) has made use of.
            b"-N" | b"-t" => drop(given.next()),
            flags if flags.starts_with(b"-") && flags.iter().skip(1).all(|flag| b"fnsvrw".contains(flag)) => {
            }
            _ => places.push(word),
        }
    }
    words.push("--".into());
    words.extend(places);
    Some(words)
}

/// Turns `accept_new,metadata_time=1m` into `--accept-new --metadata-time=1m`.
fn translate(options: &OsStr, words: &mut Vec<OsString>) {
    for option in options.as_bytes().split(|byte| *byte == b',') {
        let end = option.iter().position(|byte| *byte == b'=').unwrap_or(option.len());
        let (name, value) = option.split_at(end);
        if name.is_empty() || IGNORED.contains(&name) || name.starts_with(b"x-") || name == b"comment" {
            continue;
        }
        let name: Vec<_> = name.iter().map(|byte| if *byte == b'_' { b'-' } else { *byte }).collect();
        words.push(OsString::from_vec([b"--", &name[..], value].concat()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(given: &[&str]) -> Option<Vec<String>> {
        let words = words(given.iter().map(OsString::from))?;
        Some(words.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn a_line_of_the_table_becomes_a_command() {
        let given = [
            "/usr/sbin/mount.farhaul",
            "fh://archive/data",
            "/mnt/a b",
            "-sv",
            "-o",
            "rw,noatime,_netdev,x-systemd.automount,comment=x,accept_new,metadata_time=1m,allow_other",
            "-N",
            "/proc/1/ns/mnt",
        ];
        let expected = [
            "mount",
            "--accept-new",
            "--metadata-time=1m",
            "--allow-other",
            "--",
            "fh://archive/data",
            "/mnt/a b",
        ];
        assert_eq!(of(&given).unwrap(), expected);
        assert_eq!(of(&["mount.farhaul", "-n"]).unwrap(), ["mount", "--"]);
        assert_eq!(of(&["mount.farhaul", "-o"]).unwrap(), ["mount", "--"]);
        assert_eq!(of(&["farhaul", "mount"]), None);
        assert_eq!(of(&[]), None);
    }
}
