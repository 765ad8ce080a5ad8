//! Changes names below a directory, as an ssh user's client, as a daemon's, and as one that is kept within a directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use farhaul_connect::PathPrefixes;
use farhaul_volume::{FileTime, Root};
use farhaul_words::{Code, Failure};

use super::changes::{make_directory, remove, rename, set_time};
use super::messages::{IntoDirectory, RemoveExtent, RenameRule};
use super::names_scope::NamesScope;

/// A directory `in`, the way out of which is `out`.
struct Place {
    _folder: tempfile::TempDir,
    top: PathBuf,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("in/sub")).unwrap();
        fs::create_dir(top.join("out")).unwrap();
        fs::write(top.join("out/secret"), "secret").unwrap();
        fs::write(top.join("in/file"), "file").unwrap();
        symlink("../out", top.join("in/up")).unwrap();
        symlink(top.join("out"), top.join("in/away")).unwrap();
        symlink("sub", top.join("in/stays")).unwrap();
        Place { _folder: folder, top }
    }

    /// Each kind of scope, with what a path below `in` begins with there, and whether the scope ends at `in`.
    fn scopes(&self) -> Vec<(NamesScope, String, bool)> {
        let within = |path: PathBuf| PathPrefixes::new([path]).unwrap();
        let root = |path: &Path| Root::open(path).unwrap();
        let inside = self.top.join("in");
        let shown = inside.display().to_string();
        vec![
            (NamesScope::over_ssh(None).unwrap(), shown.clone(), false),
            (NamesScope::over_ssh(Some(&within(inside.clone()))).unwrap(), shown, true),
            (NamesScope::below(root(&inside), None).unwrap(), String::new(), true),
            (NamesScope::below(root(&self.top), Some(within("/in".into()))).unwrap(), "/in".into(), true),
        ]
    }
}

fn code(outcome: Result<(), Failure>) -> Option<Code> {
    outcome.err().map(|failure| failure.code)
}

#[test]
fn directories_are_made_with_those_above_them_if_that_is_wished() {
    let kinds = Place::new().scopes().len();
    for kind in 0..kinds {
        let place = Place::new();
        let (scope, begin, _) = &place.scopes()[kind];
        let at = |path: &str| format!("{begin}/{path}").into_bytes();
        assert_eq!(code(make_directory(scope, &at("new"), false)), None);
        assert_eq!(code(make_directory(scope, &at("new"), false)), Some(Code::AlreadyExists));
        assert_eq!(code(make_directory(scope, &at("new"), true)), None, "it may be there");
        assert_eq!(code(make_directory(scope, &at("a/b/c"), false)), Some(Code::NotFound));
        assert_eq!(code(make_directory(scope, &at("a//b/c/"), true)), None);
        assert_eq!(
            code(make_directory(scope, &at("stays/x/y"), true)),
            None,
            "a link that stays is followed"
        );
        assert!(place.top.join("in/a/b/c").is_dir() && place.top.join("in/sub/x/y").is_dir());
        assert!(code(make_directory(scope, &at("file/x"), true)).is_some());
        assert_eq!(fs::read_dir(place.top.join("out")).unwrap().count(), 1);
    }
}

#[test]
fn a_rename_replaces_what_it_may_and_goes_into_directories() {
    let (never, if_there, must) = (IntoDirectory::Never, IntoDirectory::IfThere, IntoDirectory::Must);
    for kind in 0..4 {
        let place = Place::new();
        let (scope, begin, _) = &place.scopes()[kind];
        let at = |path: &str| format!("{begin}/{path}").into_bytes();
        let moved = |from: &str, to: &str, into, rule| code(rename(scope, &at(from), &at(to), into, rule));
        let inside = |path: &str| place.top.join("in").join(path);
        fs::write(inside("other"), "other").unwrap();
        assert_eq!(moved("none", "x", if_there, RenameRule::Replace), Some(Code::NotFound));
        assert_eq!(moved("file", "other", if_there, RenameRule::Keep), Some(Code::AlreadyExists));
        assert_eq!(fs::read(inside("other")).unwrap(), b"other");
        assert_eq!(moved("file", "other", if_there, RenameRule::Replace), None);
        assert_eq!(fs::read(inside("other")).unwrap(), b"file");
        assert_eq!(moved("other", "none", must, RenameRule::Replace), Some(Code::NotADirectory));
        assert_eq!(moved("other", "none/", if_there, RenameRule::Replace), Some(Code::NotADirectory));
        assert_eq!(moved("other", "stays", must, RenameRule::Replace), None);
        assert!(inside("sub/other").exists());
        assert_eq!(moved("sub/other", "sub", never, RenameRule::Keep), Some(Code::AlreadyExists));
        assert_eq!(moved("sub", "sub/below", if_there, RenameRule::Keep), Some(Code::IntoItself));
        assert_eq!(moved("sub", "renamed", if_there, RenameRule::Keep), None);
        assert!(inside("renamed/other").exists() && !inside("sub").exists());
        assert_eq!(moved("up", "link", if_there, RenameRule::Keep), None, "the link itself is renamed");
        assert!(inside("link").is_symlink() && place.top.join("out/secret").exists());
    }
}

#[test]
fn links_are_removed_themselves_and_trees_only_if_that_is_wished() {
    for kind in 0..4 {
        let place = Place::new();
        let (scope, begin, _) = &place.scopes()[kind];
        let at = |path: &str| format!("{begin}/{path}").into_bytes();
        let removed = |path: &str, extent| code(remove(scope, &at(path), extent, &|| false));
        let inside = |path: &str| place.top.join("in").join(path);
        fs::create_dir_all(inside("tree/below")).unwrap();
        fs::write(inside("tree/below/file"), "x").unwrap();
        symlink("../../out", inside("tree/up")).unwrap();
        assert_eq!(removed("none", RemoveExtent::Tree), Some(Code::NotFound));
        assert_eq!(removed("tree", RemoveExtent::File), Some(Code::BadPath));
        assert!(removed("tree", RemoveExtent::EmptyDirectory).is_some());
        assert_eq!(removed("file", RemoveExtent::EmptyDirectory), Some(Code::NotADirectory));
        assert_eq!(removed("tree", RemoveExtent::Tree), None);
        assert_eq!(removed("up", RemoveExtent::Tree), None);
        assert_eq!(removed("file", RemoveExtent::File), None);
        assert_eq!(removed("sub", RemoveExtent::EmptyDirectory), None);
        assert!(!inside("tree").exists() && !inside("up").is_symlink() && !inside("sub").exists());
        assert!(place.top.join("out/secret").exists());
    }
}

#[test]
fn nothing_is_changed_outside_of_what_may_be_used() {
    for kind in 0..4 {
        let place = Place::new();
        let (scope, begin, ends) = &place.scopes()[kind];
        if !ends {
            continue;
        }
        let at = |path: &str| format!("{begin}/{path}").into_bytes();
        for path in ["up/secret", "away/secret", "../out/secret", "stays/../../out/secret"] {
            let path = at(path);
            assert!(remove(scope, &path, RemoveExtent::Tree, &|| false).is_err());
            assert!(set_time(scope, &path, FileTime::new(1, 0)).is_err());
            assert!(rename(scope, &path, &at("got"), IntoDirectory::Never, RenameRule::Replace).is_err());
            let away = rename(scope, &at("file"), &path, IntoDirectory::IfThere, RenameRule::Replace);
            assert!(away.is_err(), "{}", String::from_utf8_lossy(&path));
        }
        for path in ["up/new", "away/new", "../new", "../out/new"] {
            assert!(make_directory(scope, &at(path), false).is_err(), "{path}");
            assert!(make_directory(scope, &at(path), true).is_err(), "{path}");
        }
        for path in ["up", "away"] {
            let into = rename(scope, &at("file"), &at(path), IntoDirectory::Must, RenameRule::Replace);
            assert!(into.is_err(), "{path}");
        }
        for path in ["", "/", "."] {
            let whole = at(path);
            assert!(remove(scope, &whole, RemoveExtent::Tree, &|| false).is_err(), "{path:?}");
            assert!(rename(scope, &whole, &at("x"), IntoDirectory::Never, RenameRule::Keep).is_err());
        }
        let out: Vec<_> = fs::read_dir(place.top.join("out")).unwrap().collect();
        assert_eq!(out.len(), 1);
        assert_eq!(fs::read(place.top.join("out/secret")).unwrap(), b"secret");
        assert_eq!(fs::read_dir(&place.top).unwrap().count(), 2);
        assert!(place.top.join("in/file").exists());
    }
}

/// As with `data -> /scratch/me` in a home directory.
#[test]
fn links_lead_a_user_who_may_use_everything_anywhere() {
    let place = Place::new();
    let (scope, begin, _) = &place.scopes()[0];
    let at = |path: &str| format!("{begin}/{path}").into_bytes();
    let out = |path: &str| place.top.join("out").join(path);
    assert_eq!(code(make_directory(scope, &at("up/new/below"), true)), None);
    assert_eq!(code(rename(scope, &at("file"), &at("away"), IntoDirectory::Must, RenameRule::Keep)), None);
    assert_eq!(code(remove(scope, &at("away/secret"), RemoveExtent::File, &|| false)), None);
    assert!(out("new/below").is_dir() && out("file").exists() && !out("secret").exists());
}

#[test]
fn a_time_is_set_on_a_link_itself() {
    let place = Place::new();
    let (scope, begin, _) = &place.scopes()[2];
    let time = FileTime::new(1_700_000_000, 5);
    set_time(scope, format!("{begin}/stays").as_bytes(), time).unwrap();
    let link = fs::symlink_metadata(place.top.join("in/stays")).unwrap();
    assert_eq!(
        link.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(),
        1_700_000_000
    );
    let directory = fs::metadata(place.top.join("in/sub")).unwrap().modified().unwrap();
    assert_ne!(directory.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(), 1_700_000_000);
}
