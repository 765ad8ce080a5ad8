//! The files that belong to the daemon and not to its clients: keys, the list of who is let in, state, log
//! and program. A root in which any of them lies is not served.
//!
//! Always true: every name on the way to a file is judged, as a link that clients can replace is as bad as
//! the file. So are other ways to see the same file: mounts in the root, and hard links.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use farhaul_words::{Code, Error, is_of_resources};

/// The most links that one path may lead through, as in the kernel.
const LINKS_MAX: usize = 40;

/// A file or folder that belongs to the daemon.
#[derive(Debug)]
pub(crate) struct ProtectedFile {
    pub(crate) what: &'static str,
    pub(crate) path: PathBuf,
    /// How the user can put it elsewhere.
    pub(crate) elsewhere: &'static str,
    /// True if it is the running program. That holds no secret, and nobody can write into it (except on Linux
    /// 6.11 and 6.12). It matters only who can replace it, and that takes its name; further hard links do not
    /// matter, and build folders, Nix and OSTree make some.
    pub(crate) is_running: bool,
}

/// Refuses a root in which any of `own` lies.
pub(crate) fn keep_out_of(root: &Path, own: &[ProtectedFile]) -> Result<(), Error> {
    let mounts = Mounts::read()?;
    for ProtectedFile { what, path, elsewhere, is_running } in own {
        let shown = path.display();
        let places =
            places(path).map_err(|error| Error::of_host(format!("cannot look for {shown}"), error))?;
        let reason = if mounts.shows(root, &places) {
            "clients could read or replace it".to_string()
        } else if !is_running && mounts.may_have_link_in(root, path) {
            "it has another name (a hard link), which may lie there".to_string()
        } else {
            continue;
        };
        return Err(Error::new(
            Code::UnsafeRoot,
            format!(
                "cannot serve {}: {shown} ({what}) lies in it, {reason}; serve a directory without it, or {elsewhere}",
                root.display()
            ),
        ));
    }
    Ok(())
}

/// Where a path leads: the links and directories on the way, and last its end, without links and dots.
fn places(path: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut left: Vec<Vec<u8>> = Vec::new();
    let push = |left: &mut Vec<Vec<u8>>, path: &Path| {
        let parts = path.components().rev().filter(|part| *part != Component::CurDir);
        left.extend(parts.map(|part| part.as_os_str().as_bytes().to_vec()));
    };
    push(&mut left, &std::path::absolute(path)?);
    let (mut at, mut found, mut links) = (PathBuf::from("/"), Vec::new(), 0);
    while let Some(part) = left.pop() {
        match &part[..] {
            b"/" => at = PathBuf::from("/"),
            b".." => drop(at.pop()),
            name => {
                let next = at.join(OsStr::from_bytes(name));
                found.push(next.clone());
                match std::fs::read_link(&next) {
                    Ok(target) if links < LINKS_MAX => {
                        links += 1;
                        push(&mut left, &target);
                    }
                    Ok(_) => return Err(std::io::Error::other("too many links")),
                    Err(error) if is_of_resources(&error) => return Err(error),
                    // It is no link, or does not exist yet.
                    Err(_) => at = next,
                }
            }
        }
    }
    found.push(at);
    Ok(found)
}

/// Where a path leads in the end.
fn end_of(path: &Path) -> std::io::Result<PathBuf> {
    Ok(places(path)?.pop().unwrap_or_else(|| PathBuf::from("/")))
}

#[derive(Debug)]
struct Mount {
    device: String,
    /// The part of the file system that is mounted.
    part: PathBuf,
    point: PathBuf,
}

/// The mounts of this process, by which one directory can be seen under several names.
#[derive(Debug)]
pub struct Mounts(Vec<Mount>);

impl Mounts {
    /// The mounts as they are now.
    pub fn read() -> Result<Mounts, Error> {
        match std::fs::read("/proc/self/mountinfo") {
            Ok(text) => Ok(Mounts::parse(&text)),
            // Where /proc is not mounted, only names are judged.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Mounts(Vec::new())),
            Err(error) => Err(Error::of_host("cannot look for mounts that show the daemon's files", error)),
        }
    }

    fn parse(text: &[u8]) -> Mounts {
        let mount = |line: &[u8]| {
            let mut words = line.split(|&byte| byte == b' ').skip(2);
            let device = String::from_utf8_lossy(words.next()?).into_owned();
            Some(Mount { device, part: unescaped(words.next()?), point: unescaped(words.next()?) })
        };
        Mounts(text.split(|&byte| byte == b'\n').filter_map(mount).collect())
    }

    /// The device, and the path in its file system, that a path without links stands for.
    fn origin(&self, path: &Path) -> Option<(&str, PathBuf)> {
        // Of several mounts at one point, the last one hides the others.
        let over = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        let mount = over.max_by_key(|mount| mount.point.components().count())?;
        let below = path.strip_prefix(&mount.point).ok()?;
        Some((&mount.device, mount.part.join(below)))
    }

    /// True if a path is the folder or lies in it, by any name: through links, and through mounts. A path that
    /// leads through a link in the folder lies in it, too.
    pub fn lies_in(&self, path: &Path, folder: &Path) -> std::io::Result<bool> {
        let (places, folder) = (places(path)?, end_of(folder)?);
        let is_same = places.last().is_some_and(|end| {
            *end == folder || self.origin(end).is_some_and(|origin| Some(origin) == self.origin(&folder))
        });
        Ok(is_same || self.shows(&folder, &places))
    }

    fn below<'a>(&'a self, root: &'a Path) -> impl Iterator<Item = &'a Mount> {
        self.0.iter().filter(move |mount| mount.point.starts_with(root))
    }

    fn shows(&self, root: &Path, places: &[PathBuf]) -> bool {
        let of_root = self.origin(root);
        places.iter().any(|place| {
            let Some((device, part)) = self.origin(place) else { return place.starts_with(root) };
            let lies_in = |(shown, top): (&str, &Path)| shown == device && part.starts_with(top);
            // The root itself is a directory on the way to what lies beside it, and clients cannot replace
            // it.
            let is_beside = place == root;
            !is_beside
                && (place.starts_with(root)
                    || of_root.iter().any(|(shown, top)| lies_in((shown, top)) && part != *top)
                    || self.below(root).any(|mount| lies_in((&mount.device, &mount.part))))
        })
    }

    fn may_have_link_in(&self, root: &Path, path: &Path) -> bool {
        let Ok(meta) = std::fs::metadata(path) else { return false };
        let is_on = |point: &Path| std::fs::metadata(point).is_ok_and(|there| there.dev() == meta.dev());
        let has_names = meta.is_file() && meta.nlink() > 1;
        has_names && (is_on(root) || self.below(root).any(|mount| is_on(&mount.point)))
    }
}

/// Reverses how mountinfo writes blanks and the like: as three octal digits.
fn unescaped(word: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, after)) = rest.split_first() {
        let digits =
            after.get(..3).filter(|_| byte == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) => {
                out.push(escaped);
                rest = &after[3..];
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    std::ffi::OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn own(path: PathBuf) -> [ProtectedFile; 1] {
        [ProtectedFile {
            what: "private key",
            path,
            elsewhere: "name another place with `identity`",
            is_running: false,
        }]
    }

    #[test]
    fn what_lies_in_the_root_by_any_name_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let root = folder.join("root");
        for name in ["root/in/deep", "beside", "root2"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        for name in ["root/in/key", "beside/key", "beside/linked", "root2/key"] {
            std::fs::write(folder.join(name), b"").unwrap();
        }
        symlink(&root, folder.join("beside/to_root")).unwrap();
        symlink(folder.join("beside/key"), root.join("out")).unwrap();
        symlink("../root/in/key", folder.join("beside/to_key")).unwrap();
        symlink("loop", folder.join("beside/loop")).unwrap();
        std::fs::hard_link(folder.join("beside/linked"), root.join("in/hard")).unwrap();
        for (path, is_served) in [
            ("root/in/key", false),
            ("root/in/not_there_yet", false),
            ("root/new/not_there_yet", false),
            ("beside/to_root/in/key", false),
            ("beside/to_key", false),
            ("root/out", false),
            ("root/in/../../beside/key", false),
            ("beside/linked", false),
            ("beside/key", true),
            ("beside/not_there_yet", true),
            ("root2/key", true),
            ("root/../beside/key", true),
        ] {
            let judged = keep_out_of(&root, &own(folder.join(path)));
            assert_eq!(judged.is_ok(), is_served, "{path}: {judged:?}");
            if let Err(error) = judged {
                assert!(
                    error.code() == Code::UnsafeRoot
                        && error.what().contains(path)
                        && error.what().contains("`identity`"),
                    "{error}"
                );
            }
        }
        let program = |path: &str| {
            [ProtectedFile { is_running: true, ..own(folder.join(path)).into_iter().next().unwrap() }]
        };
        assert!(keep_out_of(&root, &program("beside/linked")).is_ok());
        assert!(keep_out_of(&root, &program("root/in/hard")).is_err());
        assert!(keep_out_of(&root, &own(folder.join("beside/loop"))).is_err());
        assert!(keep_out_of(Path::new("/"), &own(folder.join("beside/key"))).is_err());
    }

    #[test]
    fn a_bind_mount_shows_a_file_under_another_name() {
        let mounts = Mounts::parse(
            b"1 0 8:1 / / rw - ext4 x rw\n2 1 8:2 / /home rw - ext4 y rw\n3 1 8:2 /u /srv/my\\040data/u rw - ext4 y rw\n\
              4 1 8:1 /etc /srv/etc rw - ext4 x rw\n5 1 8:2 /u/pub /pub rw - ext4 y rw\n",
        );
        for (root, file, is_shown) in [
            ("/srv/my data", "/home/u/key", true),
            ("/srv/my data/u", "/home/u/key", true),
            ("/srv/my data", "/home/v/key", false),
            ("/srv/etc", "/etc/farhaul/key", true),
            ("/srv", "/etc/farhaul/key", true),
            ("/srv/my data", "/etc/farhaul/key", false),
            ("/pub", "/home/u/pub/key", true),
            ("/pub", "/home/u/key", false),
            ("/home/u/pub", "/pub/key", true),
            ("/home", "/pub/key", true),
            ("/data", "/etc/key", false),
        ] {
            assert_eq!(mounts.shows(Path::new(root), &[file.into()]), is_shown, "{file} in {root}");
        }
    }

    #[test]
    fn a_folder_has_what_is_the_folder_itself_or_lies_in_it_by_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        for name in ["home/data", "beside", "home2"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        symlink(folder.join("home"), folder.join("beside/to_home")).unwrap();
        symlink(folder.join("beside"), folder.join("home/out")).unwrap();
        for (path, lies_in) in [
            ("home", true),
            ("home/", true),
            ("home/data", true),
            ("home/not_there_yet", true),
            ("beside/to_home", true),
            ("beside/to_home/data", true),
            ("beside/../home", true),
            // Whoever writes into the home may change where this leads.
            ("home/out/new", true),
            ("home2", false),
            ("beside", false),
            ("", false),
        ] {
            let found = Mounts::read().unwrap().lies_in(&folder.join(path), &folder.join("home")).unwrap();
            assert_eq!(found, lies_in, "{path}");
        }
        let mounts =
            Mounts::parse(b"1 0 8:1 / / rw - ext4 x rw\n2 1 8:1 /nowhere/u /nowhere2 rw - ext4 x rw\n");
        let lies_in = |path: &str, folder: &str| mounts.lies_in(Path::new(path), Path::new(folder)).unwrap();
        assert!(lies_in("/nowhere2", "/nowhere/u") && lies_in("/nowhere/u", "/nowhere2"));
        assert!(lies_in("/nowhere2/x", "/nowhere") && !lies_in("/nowhere", "/nowhere2"));
    }
}
