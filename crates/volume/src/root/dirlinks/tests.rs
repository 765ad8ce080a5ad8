use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;
use crate::entry::FileTime;

fn path(text: &str) -> RelPath {
    RelPath::from_bytes(text.as_bytes()).unwrap()
}

/// A root `root` beside a directory `disk`, with whatever `link` makes; everything is older than the root.
fn beside(link: impl FnOnce(&Path)) -> (tempfile::TempDir, Root) {
    let temp = tempfile::tempdir().unwrap();
    for name in ["root/inside/sub", "root/d", "disk/sub"] {
        std::fs::create_dir_all(temp.path().join(name)).unwrap();
    }
    link(temp.path());
    // The clock of files advances in ticks, but a file may get a time of the fine clock in between.
    let made = clock_gettime(ClockId::Realtime);
    while now() <= (made.tv_sec, made.tv_nsec as u32) {}
    let root = Root::open(temp.path().join("root")).unwrap();
    (temp, root)
}

#[test]
fn what_is_below_a_link_is_in_its_directory_whatever_becomes_of_the_link() {
    let (temp, root) = beside(|temp| symlink("../disk", temp.join("root/data")).unwrap());
    assert!(!root.metadata(&path("data")).unwrap().unwrap().is_dir());
    assert!(root.keep_link(&path("data"), None, true).unwrap());
    assert!(root.lookup(&path("data")).unwrap().unwrap().is_dir());
    assert!(!root.make_dir(&path("data"), 0o755).unwrap());
    // Somebody replaces the link.
    std::fs::create_dir(temp.path().join("elsewhere")).unwrap();
    std::fs::remove_file(temp.path().join("root/data")).unwrap();
    symlink("../elsewhere", temp.path().join("root/data")).unwrap();
    root.create_new(&path("data/file"), 0o600).unwrap();
    root.create_new(&path("data/sub/file"), 0o600).unwrap();
    root.set_meta(&path("data"), Some(0o750), Some(FileTime::new(5, 0))).unwrap();
    assert!(root.keep_link(&path("data"), None, true).unwrap());
    assert!(temp.path().join("disk/file").exists() && temp.path().join("disk/sub/file").exists());
    assert_eq!(std::fs::read_dir(temp.path().join("elsewhere")).unwrap().count(), 0);
    // A link below the directory was not asked for.
    symlink("../elsewhere", temp.path().join("disk/link")).unwrap();
    assert!(root.create_new(&path("data/link/file"), 0o600).is_err());
    assert_eq!(root.list(&path("data")).unwrap().len(), 3);
}

#[test]
fn what_was_brought_or_came_later_or_has_other_names_is_not_followed() {
    let refused = |root: &Root, name: &str| {
        let error = root.keep_link(&path(name), None, true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        error.to_string()
    };
    let (temp, root) = beside(|temp| {
        symlink("../disk", temp.join("root/brought")).unwrap();
        Root::open(temp.join("root"))
            .unwrap()
            .symlink(b"../disk", &path("ours"), Some(FileTime::new(9, 0)))
            .unwrap();
        let time = std::process::Command::new("touch")
            .args(["-h", "-d", "@77"])
            .arg(temp.join("root/brought"))
            .status();
        assert!(time.unwrap().success());
        symlink("../disk", temp.join("root/twice")).unwrap();
        std::fs::hard_link(temp.join("root/twice"), temp.join("root/other")).unwrap();
        symlink("../ours/sub", temp.join("root/d/through")).unwrap();
    });
    for name in ["brought", "ours"] {
        assert!(refused(&root, name).contains("brought by a copy"));
    }
    assert!(refused(&root, "twice").contains("several names"));
    assert!(refused(&root, "d/through").contains("through the link ours"));
    std::thread::sleep(std::time::Duration::from_millis(20));
    symlink("../disk", temp.path().join("root/late")).unwrap();
    assert!(refused(&root, "late").contains("after this run began"));
}

#[test]
fn a_link_to_itself_to_what_is_there_twice_or_to_no_directory_is_not_used() {
    let (_temp, root) = beside(|temp| {
        for (link, target) in [
            ("up", ".."),
            ("itself", "../root"),
            ("inner", "inside"),
            ("nowhere", "no/such"),
            ("to-file", "inside/file"),
            ("loop", "loop"),
            ("one", "../disk"),
            ("other", "../disk"),
        ] {
            symlink(target, temp.join("root").join(link)).unwrap();
        }
        std::fs::write(temp.join("root/inside/file"), "").unwrap();
    });
    let keep = |name: &str| root.keep_link(&path(name), None, true);
    assert!(keep("itself").unwrap_err().to_string().contains("above it"));
    assert!(keep("inner").unwrap_err().to_string().contains("another directory of the destination"));
    assert!(root.keep_link(&path("inner"), None, false).unwrap(), "without deletion");
    for name in ["nowhere", "to-file", "inside", "absent"] {
        assert!(!keep(name).unwrap(), "{name}");
    }
    assert!(keep("loop").is_err());
    assert!(keep("one").unwrap());
    assert!(keep("other").unwrap_err().to_string().contains("another link"));
    assert!(keep("up").unwrap_err().to_string().contains("above it"));
}

#[test]
fn below_a_confining_root_no_link_leads_out_of_it() {
    let (temp, _) = beside(|temp| {
        std::fs::create_dir_all(temp.join("root/target/deep")).unwrap();
        for (link, target) in [
            ("root/target/in", "../inside"),
            ("root/target/deep/far", "../../inside/sub"),
            ("root/target/out", "../../disk"),
            ("root/target/through", "../back/root/inside"),
            ("root/back", "../"),
            ("root/target/chained", "../d/../chain"),
            ("root/chain", "inside"),
        ] {
            symlink(target, temp.join(link)).unwrap();
        }
        symlink(temp.join("root/inside"), temp.join("root/target/absolute")).unwrap();
    });
    let confining = Root::open(temp.path().join("root")).unwrap();
    let root = confining.follow(&path("target")).unwrap();
    let keep = |name: &str| root.keep_link(&path(name), Some(&confining), false);
    assert!(keep("in").unwrap() && keep("deep/far").unwrap());
    root.create_new(&path("deep/far/file"), 0o600).unwrap();
    assert!(temp.path().join("root/inside/sub/file").exists());
    for (name, why) in [
        ("out", "out of the root"),
        ("absolute", "out of the root"),
        ("through", "another link"),
        ("chained", "another link"),
    ] {
        let error = keep(name).unwrap_err().to_string();
        assert!(error.contains(why), "{name}: {error}");
    }
}
