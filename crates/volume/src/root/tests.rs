use std::os::unix::fs::{MetadataExt, symlink};

use super::parents::PARENTS_MAX;
use super::*;

fn path(text: &str) -> RelPath {
    RelPath::from_bytes(text.as_bytes()).unwrap()
}

/// Runs a test on a root with a file outside of it, in both ways of walking.
fn both_walks(test: impl Fn(&Root, &Path)) {
    for walks in [false, true] {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("root")).unwrap();
        std::fs::create_dir(temp.path().join("outside")).unwrap();
        std::fs::write(temp.path().join("outside/secret"), "secret").unwrap();
        let root = Root::open(temp.path().join("root")).unwrap();
        if walks {
            root.inner.opener.set_walking();
        }
        test(&root, temp.path());
    }
}

#[test]
fn links_out_of_the_root_are_refused() {
    both_walks(|root, temp| {
        symlink(temp.join("outside"), temp.join("root/absolute")).unwrap();
        symlink("../outside", temp.join("root/up")).unwrap();
        std::fs::create_dir(temp.join("root/inside")).unwrap();
        symlink("inside", temp.join("root/harmless")).unwrap();
        for link in ["absolute", "up", "harmless"] {
            let below = path(&format!("{link}/secret"));
            assert!(root.create_new(&below, 0o600).is_err());
            assert!(root.open_read(&below).is_err());
            assert!(root.create_dir(&path(&format!("{link}/new"))).is_err());
            assert!(root.symlink(b"x", &below, None).is_err());
            assert!(root.create_dir(&path(link)).is_err(), "a link is no directory");
            let error = root.metadata(&below).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{link}: {error}");
        }
        assert!(root.open_read(&path("absolute")).is_err(), "the last component is not followed");
        assert_eq!(std::fs::read_dir(temp.join("outside")).unwrap().count(), 1);
        assert!(root.dir(b"..").is_err());
    });
}

#[test]
fn what_a_user_names_may_lead_through_links_that_stay_inside() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(temp.path().join("root/releases/7")).unwrap();
    std::fs::write(temp.path().join("root/releases/7/file"), "1").unwrap();
    std::fs::write(temp.path().join("secret"), "secret").unwrap();
    let links = [
        ("current", "releases/7"),
        ("round", "releases/../current"),
        ("up", "../"),
        ("to-secret", "../secret"),
    ];
    for (link, target) in links {
        symlink(target, temp.path().join("root").join(link)).unwrap();
    }
    symlink(temp.path().join("root/releases"), temp.path().join("root/absolute")).unwrap();
    symlink("nowhere", temp.path().join("root/dangling")).unwrap();
    for walks in [false, true] {
        let root = Root::open(temp.path().join("root")).unwrap();
        if walks {
            root.inner.opener.set_walking();
        }
        for link in ["current", "round", "releases/7"] {
            assert!(root.metadata_followed(&path(link)).unwrap().unwrap().is_dir());
            assert!(root.metadata_followed(&path(&format!("{link}/file"))).unwrap().unwrap().is_file());
            let inside = root.follow(&path(link)).unwrap();
            assert!(inside.metadata(&path("file")).unwrap().is_some());
        }
        for link in ["up", "up/secret", "to-secret", "absolute"] {
            let error = root.metadata_followed(&path(link)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{link}: {error}");
            assert!(root.follow(&path(link)).is_err());
        }
        assert!(root.metadata_followed(&path("dangling")).unwrap().is_none());
        assert!(root.follow(&RelPath::empty()).unwrap().metadata(&path("current")).unwrap().is_some());
    }
}

/// The links of /proc lead to what a process has open, also to its root and to files without a name.
#[test]
fn below_a_root_no_link_of_proc_is_followed() {
    let (secret, itself) = (tempfile::NamedTempFile::new().unwrap(), format!("{}", std::process::id()));
    let number = std::os::fd::AsRawFd::as_raw_fd(secret.as_file());
    let of = |link: &str| path(&format!("{itself}/{link}"));
    for walks in [false, true] {
        let root = Root::open("/proc").unwrap();
        if walks {
            root.inner.opener.set_walking();
        }
        for link in ["root", "cwd", "root/etc", &format!("fd/{number}"), "exe", "ns/net"] {
            let link = of(link);
            assert!(root.metadata_followed(&link).is_err(), "{link:?}");
            assert!(root.open_read_followed(&link).is_err() && root.open_read(&link).is_err(), "{link:?}");
            assert!(root.follow(&link).is_err() && root.subdir(&link).is_err(), "{link:?}");
            assert!(root.metadata(&link.join(b"x").unwrap()).is_err(), "{link:?}");
        }
        // What is no link is there.
        assert!(root.open_read_followed(&of("stat")).is_ok() && root.follow(&of("fd")).is_ok());
    }
}

#[test]
fn a_directory_replaced_by_a_link_is_not_followed() {
    both_walks(|root, temp| {
        root.create_dir(&path("d")).unwrap();
        root.create_new(&path("d/a"), 0o600).unwrap();
        std::fs::rename(temp.join("root/d"), temp.join("root/moved")).unwrap();
        symlink("../outside", temp.join("root/d")).unwrap();
        // The kept descriptor is that of the old directory; without it, the link is refused.
        let _ = root.create_new(&path("d/b"), 0o600);
        root.forget_parents();
        assert!(root.create_new(&path("d/c"), 0o600).is_err());
        assert_eq!(std::fs::read_dir(temp.join("outside")).unwrap().count(), 1);
    });
}

#[test]
fn a_directory_made_again_is_found_again() {
    both_walks(|root, temp| {
        std::fs::create_dir_all(temp.join("root/a/b/c")).unwrap();
        root.create_new(&path("a/b/c/file"), 0o600).unwrap();
        std::fs::remove_dir_all(temp.join("root/a")).unwrap();
        std::fs::create_dir_all(temp.join("root/a/b/c")).unwrap();
        root.create_new(&path("a/b/c/file"), 0o600).unwrap();
        assert!(temp.join("root/a/b/c/file").exists());
    });
}

#[test]
fn links_take_the_place_of_files_but_not_of_directories() {
    both_walks(|root, temp| {
        let mtime = FileTime::new(1_000_000_000, 123_456_789);
        std::fs::write(temp.join("root/file"), "1").unwrap();
        std::fs::write(temp.join("root/link"), "old").unwrap();
        root.symlink(b"\xff/target", &path("link"), Some(mtime)).unwrap();
        assert_eq!(root.read_link(&path("link")).unwrap(), b"\xff/target");
        assert_eq!(root.metadata(&path("link")).unwrap().unwrap().mtime, mtime);
        root.hardlink(&path("file"), &path("link")).unwrap();
        root.hardlink(&path("file"), &path("link")).unwrap();
        assert_eq!(std::fs::metadata(temp.join("root/link")).unwrap().nlink(), 2);
        root.create_dir(&path("dir")).unwrap();
        assert!(root.symlink(b"x", &path("dir"), Some(mtime)).is_err());
        assert_eq!(std::fs::read_dir(temp.join("root")).unwrap().count(), 3, "nothing temporary stays");
    });
}

#[test]
fn mode_and_time_are_set_and_links_are_not_followed() {
    both_walks(|root, temp| {
        let mtime = FileTime::new(-5, 999_999_999);
        root.create_dir(&path("d")).unwrap();
        root.set_meta(&path("d"), Some(0o2751), Some(mtime)).unwrap();
        let meta = root.metadata(&path("d")).unwrap().unwrap();
        assert_eq!((meta.mode, meta.mtime), (0o2751, mtime));
        symlink(temp.join("outside/secret"), temp.join("root/link")).unwrap();
        let before = std::fs::metadata(temp.join("outside/secret")).unwrap();
        root.set_meta(&path("link"), Some(0o777), Some(mtime)).unwrap();
        let after = std::fs::metadata(temp.join("outside/secret")).unwrap();
        assert_eq!((before.mode(), before.mtime()), (after.mode(), after.mtime()));
    });
}

#[test]
fn descriptors_are_bounded() {
    both_walks(|root, _| {
        for number in 0..3 * PARENTS_MAX {
            root.create_dir(&path(&format!("d{number}"))).unwrap();
            root.create_new(&path(&format!("d{number}/f")), 0o600).unwrap();
        }
        assert!(root.parents().open.len() <= PARENTS_MAX);
        assert!(root.metadata(&path("d0/f")).unwrap().is_some());
        assert!(root.metadata(&path("none/f")).unwrap().is_none());
        assert!(root.free_bytes(&RelPath::empty()).unwrap() > 0);
    });
}

#[test]
fn a_root_that_keeps_its_entries_takes_new_ones_and_replaces_none() {
    both_walks(|root, temp| {
        let root = root.keeping_entries().unwrap();
        let place = temp.join("root");
        std::fs::create_dir_all(place.join("sub/below")).unwrap();
        // Each has a directory, and what begins a path to it.
        for (root, directory, begin) in [
            (root.clone(), "", ""),
            (root.clone(), "sub/", "sub/"),
            (root.follow(&path("sub")).unwrap(), "sub/", ""),
            (root.subdir(&path("sub")).unwrap(), "sub/", ""),
        ] {
            assert!(root.keeps_entries());
            let at = |name: &str| path(&format!("{begin}{name}"));
            let there = |name: &str| place.join(directory).join(name);
            std::fs::write(there("kept"), "kept").unwrap();
            std::fs::write(there("free"), "free").unwrap();
            let is_there = |made: io::Result<()>| {
                assert_eq!(made.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
                assert_eq!(std::fs::read(there("kept")).unwrap(), b"kept");
            };
            is_there(crate::write_whole(&root, &at("kept"), b"new", &crate::WriteOptions::default()));
            is_there(root.rename(&at("free"), &at("kept")));
            is_there(root.symlink(b"x", &at("kept"), None));
            is_there(root.hardlink(&at("free"), &at("kept")));
            is_there(root.make_node(&at("kept"), crate::SpecialNode::Fifo, 0o600));
            is_there(root.link_from(&at("kept"), &root, &at("free")));
            is_there(root.rename_from(&at("kept"), &root, &at("free"), true));
            is_there(root.move_from(&at("kept"), &root, &at("free")));
            crate::write_whole(&root, &at("new"), b"new", &crate::WriteOptions::default()).unwrap();
            root.rename(&at("new"), &at("newer")).unwrap();
            root.symlink(b"x", &at("link"), None).unwrap();
            assert_eq!(std::fs::read(there("newer")).unwrap(), b"new");
            for name in ["newer", "link", "free", "kept"] {
                root.unlink(&at(name)).unwrap();
            }
            assert!(
                !std::fs::read_dir(place.join(directory))
                    .unwrap()
                    .any(|entry| { entry.unwrap().file_type().is_ok_and(|kind| !kind.is_dir()) })
            );
        }
    });
}
