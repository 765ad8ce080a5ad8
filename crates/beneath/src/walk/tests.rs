//! The walk and the kernel say the same of each path in random trees.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::Opener;

/// What an opening came to: the entry's device, number and type, or the error.
type Found = Result<(u64, u64, u32)>;

fn found(opened: Result<OwnedFd>) -> Found {
    let stat = fstat(opened?)?;
    Ok((stat.st_dev, stat.st_ino, stat.st_mode & 0o170_000))
}

/// Opens in both ways and compares.
fn both(directory: &Path, path: &[u8], flags: OFlags, links: Links, file_systems: FileSystems) -> Found {
    let directory = fs::File::open(directory).unwrap();
    let (asking, walking) = (Opener::new(), Opener::new());
    walking.set_walking();
    let asked = found(asking.open(&directory, path, flags, links, file_systems));
    assert!(!asking.walks.load(std::sync::atomic::Ordering::Relaxed), "this kernel cannot confine paths");
    let walked = found(walking.open(&directory, path, flags, links, file_systems));
    let text = String::from_utf8_lossy(path);
    assert_eq!(walked, asked, "{text:?} with {flags:?}, links {links:?}");
    walked
}

/// A name that trees are made of, or a step on the way.
fn component() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "d", "a", "b", "..", ".", ""])
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(component(), 1..6).prop_map(|components| components.join("/"))
}

/// Something that is made at a path: a directory, a file, or a link with its target.
fn thing() -> impl Strategy<Value = (String, Option<Option<String>>)> {
    let kind = prop_oneof![
        3 => Just(None),
        1 => Just(Some(None)),
        3 => path().prop_map(|target| Some(Some(target))),
    ];
    (path(), kind)
}

fn make(root: &Path, things: &[(String, Option<Option<String>>)]) {
    for (path, kind) in things {
        // What leads out of the tree, or through something that is not there, is left out.
        let (Some((above, name)), false) = (path.rsplit_once('/').or(Some(("", path))), path.contains(".."))
        else {
            continue;
        };
        let above = root.join(above.trim_start_matches('/'));
        if name.is_empty() || !fs::canonicalize(&above).is_ok_and(|above| above.starts_with(root)) {
            continue;
        }
        let _ = match kind {
            None => fs::create_dir(above.join(name)),
            Some(None) => fs::write(above.join(name), name),
            Some(Some(target)) => symlink(target, above.join(name)),
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_kernel_and_the_walk_find_the_same(things in prop::collection::vec(thing(), 0..24),
        paths in prop::collection::vec(path(), 1..12)) {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::create_dir(temp.path().join("a")).unwrap();
        make(&root, &things);
        for path in &paths {
            for flags in [OFlags::RDONLY, OFlags::PATH, OFlags::DIRECTORY, OFlags::PATH | OFlags::NOFOLLOW,
                OFlags::NOFOLLOW, OFlags::DIRECTORY | OFlags::NOFOLLOW, OFlags::PATH | OFlags::DIRECTORY] {
                for links in [Links::Refused, Links::Followed] {
                    let _ = both(&root, path.as_bytes(), flags, links, FileSystems::Any);
                }
            }
        }
    }
}

#[test]
fn the_ways_out_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("root");
    fs::create_dir_all(root.join("in/deep")).unwrap();
    fs::write(temp.path().join("secret"), "secret").unwrap();
    for (link, target) in [
        ("up", ".."),
        ("absolute", "/"),
        ("secret", "../secret"),
        ("deep", "in/deep"),
        ("in/back", "../in/deep"),
        ("in/out", "../../secret"),
        ("self", "self"),
        ("nowhere", "missing/x"),
        ("in/deep/slash", "../../in/"),
    ] {
        symlink(target, root.join(link)).unwrap();
    }
    let see =
        |path: &str, links| both(&root, path.as_bytes(), OFlags::RDONLY, links, FileSystems::Any).map(|_| ());
    for path in [
        "..",
        "in/../..",
        "up",
        "up/secret",
        "absolute",
        "absolute/etc",
        "secret",
        "in/out",
        "/",
        "in/deep/slash/../../..",
    ] {
        assert_eq!(see(path, Links::Followed), Err(Errno::XDEV), "{path}");
    }
    for path in ["deep", "in/back", "in/back/..", "in/deep/slash", "in/deep/slash/deep", "deep/", "."] {
        assert_eq!(see(path, Links::Followed), Ok(()), "{path}");
    }
    assert_eq!(see("self", Links::Followed), Err(Errno::LOOP));
    assert_eq!(see("nowhere", Links::Followed), Err(Errno::NOENT));
    assert_eq!(see("", Links::Followed), Err(Errno::NOENT));
    assert_eq!(see("deep", Links::Refused), Err(Errno::LOOP));
    assert_eq!(see("in/back/..", Links::Refused), Err(Errno::LOOP));
    let longest = "in/../".repeat(2000);
    assert_eq!(see(&longest, Links::Followed), Err(Errno::NAMETOOLONG));
}

#[test]
fn as_many_links_are_followed_as_by_the_kernel() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("0")).unwrap();
    for number in 1..=45_usize {
        symlink((number - 1).to_string(), temp.path().join(number.to_string())).unwrap();
    }
    for number in 1..=45_usize {
        let seen = both(
            temp.path(),
            number.to_string().as_bytes(),
            OFlags::RDONLY,
            Links::Followed,
            FileSystems::Any,
        );
        assert_eq!(seen.is_ok(), number <= LINKS_MAX, "{number}");
    }
}

#[test]
fn another_file_system_is_entered_only_if_that_is_allowed() {
    let enter = |path: &[u8], file_systems| {
        both(Path::new("/"), path, OFlags::PATH, Links::Refused, file_systems).map(|_| ())
    };
    assert_eq!(enter(b"proc", FileSystems::Any), Ok(()));
    assert_eq!(enter(b"proc", FileSystems::One), Err(Errno::XDEV));
    assert_eq!(enter(b"proc/1", FileSystems::One), Err(Errno::XDEV));
    assert_eq!(enter(b".", FileSystems::One), Ok(()));
}

/// These links lead to what a process has open, whatever their text says.
#[test]
fn links_of_proc_are_not_followed() {
    let walking = Opener::new();
    walking.set_walking();
    let open = |path: &str| {
        let proc = fs::File::open("/proc").unwrap();
        walking.open(proc, path.as_bytes(), OFlags::PATH, Links::Followed, FileSystems::Any).map(|_| ())
    };
    let own = std::process::id();
    for link in ["root", "cwd", "exe", "ns/net", "root/etc"] {
        assert_eq!(open(&format!("{own}/{link}")), Err(Errno::LOOP), "{link}");
    }
    assert_eq!(open(&format!("{own}/stat")), Ok(()));
}

/// As the kernel has it with `fs.protected_symlinks`.
#[test]
fn in_a_shared_directory_links_of_others_are_not_followed() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let (shared, nobody) = (temp.path().join("shared"), 65534);
    fs::create_dir_all(shared.join("there")).unwrap();
    fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    for (link, owner) in [("own", 0), ("other", nobody)] {
        symlink("there", shared.join(link)).unwrap();
        std::os::unix::fs::lchown(shared.join(link), Some(owner), None).unwrap();
    }
    let walking = Opener::new();
    walking.set_walking();
    let open = |path: &str| {
        let shared = fs::File::open(&shared).unwrap();
        walking.open(shared, path.as_bytes(), OFlags::PATH, Links::Followed, FileSystems::Any).map(|_| ())
    };
    assert_eq!(open("own"), Ok(()));
    assert_eq!(open("other"), Err(Errno::ACCESS));
}
