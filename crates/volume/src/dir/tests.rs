use super::*;

fn dir(path: &std::path::Path) -> Dir {
    Dir::new(std::fs::File::open(path).unwrap().into())
}

#[test]
fn names_that_differ_in_case_only_are_told_apart_where_they_are() {
    let temp = tempfile::tempdir().unwrap();
    for name in ["a", "A", "x"] {
        std::fs::write(temp.path().join(name), name).unwrap();
    }
    for there in ["a", "x"] {
        let dir = dir(temp.path());
        dir.check_own(b"1").unwrap();
        assert!(dir.names.get().is_none(), "a name without letters says nothing");
        dir.check_own(there.as_bytes()).unwrap();
        assert!(matches!(dir.names.get(), Some(None)), "{there}");
    }
}

#[test]
fn names_without_letters_are_looked_up_in_the_listing_or_asked_for_by_another_name() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("é"), "").unwrap();
    let dir_of_one = dir(temp.path());
    dir_of_one.check_own("é".as_bytes()).unwrap();
    assert!(dir_of_one.folding().is_some(), "nothing is known, so names are compared");
    let error = dir_of_one.check_own("É".as_bytes()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "this file system does not tell it from \"é\" (case-insensitive); rename one of them (if it was renamed at the source: farhaul sync `delete-before`)"
    );
    std::fs::write(temp.path().join("a"), "").unwrap();
    let dir_of_two = dir(temp.path());
    dir_of_two.check_own("é".as_bytes()).unwrap();
    assert!(dir_of_two.folding().is_none());
}

#[test]
fn in_a_directory_that_folds_a_name_is_made_once() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("there"), "").unwrap();
    let dir = dir(temp.path());
    dir.names.set(Some(Mutex::default())).unwrap();
    let make = |name: &'static str| {
        let path = temp.path().join(name);
        move || std::fs::write(path, "new").map_err(|_| Errno::IO)
    };
    for name in ["there", "new", "Unusual name."] {
        dir.place(name.as_bytes(), make(name)).unwrap();
        dir.place(name.as_bytes(), make(name)).unwrap();
    }
    // An entry that comes back under a name that is not alike is removed again.
    let elsewhere = || std::fs::write(temp.path().join("other"), "").map_err(|_| Errno::IO);
    assert!(dir.place(b"Gone", elsewhere).is_err());
    assert!(!temp.path().join("Gone").exists());
}

#[test]
fn an_error_about_a_name_says_so() {
    for (error, is_about_names) in [
        (Errno::INVAL, true),
        (Errno::ILSEQ, true),
        (Errno::NAMETOOLONG, true),
        (Errno::NOSPC, false),
        (Errno::NOENT, false),
    ] {
        assert_eq!(name_error(&of_name(error)).is_some(), is_about_names, "{error}");
    }
}
