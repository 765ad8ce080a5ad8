use proptest::prelude::*;

use super::*;

fn filter(rules: &[&str]) -> Filter {
    let mut list = RuleList::default();
    rules.iter().try_for_each(|rule| list.rule(rule.as_bytes())).unwrap();
    Filter::new(&list.lines()).unwrap()
}

#[test]
fn the_first_match_decides() {
    let filter = filter(&["+ a.o", "- *.o", "include keep/", "exclude *"]);
    for (path, is_dir, excluded) in [
        (&b"a.o"[..], false, false),
        (b"x/a.o", false, false),
        (b"b.o", false, true),
        (b"keep", true, false),
        (b"keep", false, true),
    ] {
        assert_eq!(filter.excludes(path, is_dir, FilterSide::Sender), excluded, "{}", escape(path));
    }
}

#[test]
fn rules_of_one_side_are_not_asked_at_the_other() {
    let filter = filter(&["P kept", "hide secret", "- both"]);
    for (path, at_sender, at_receiver) in
        [("kept", false, true), ("secret", true, false), ("both", true, true)]
    {
        assert_eq!(filter.excludes(path.as_bytes(), false, FilterSide::Sender), at_sender, "{path}");
        assert_eq!(filter.excludes(path.as_bytes(), false, FilterSide::Receiver), at_receiver, "{path}");
    }
    let filter = filter.unprotecting();
    assert!(
        filter.excludes(b"kept", false, FilterSide::Receiver)
            && !filter.excludes(b"both", false, FilterSide::Receiver)
    );
}

#[test]
fn rules_that_make_no_sense_are_refused_in_one_line() {
    for rule in [
        "",
        "foo",
        "- ",
        "-",
        "-a",
        "-_",
        "!x",
        "! ",
        ": .rules",
        "dir-merge x",
        "-/ x",
        ".w x",
        "exclude",
        "-p x",
    ] {
        let error = RuleList::default().rule(rule.as_bytes()).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
    }
    assert!(Filter::new(&[b". /etc/passwd".to_vec()]).is_err(), "a peer names no file");
    assert!(Filter::new(&vec![b"- x".to_vec(); RULES_MAX + 1]).is_err());
    assert!(Filter::new(&[[b"- ".to_vec(), vec![b'x'; PATTERN_MAX + 1]].concat()]).is_err());
    assert!(Filter::new(&[[b"- ".to_vec(), vec![b'x'; PATTERN_MAX]].concat()]).is_ok());
}

#[test]
fn files_of_rules() {
    let temp = tempfile::tempdir().unwrap();
    let path = |name: &str| temp.path().join(name);
    // Windows puts a byte order mark in front.
    std::fs::write(path("windows"), "\u{feff}secret\r\n").unwrap();
    let mut list = RuleList::default();
    list.exclude_from(&path("windows")).unwrap();
    assert_eq!(list.lines(), [b"- secret"]);
    std::fs::write(path("patterns"), "# comment\n; comment\n\n+ a\r\nb\n- c").unwrap();
    std::fs::write(
        path("rules"),
        format!("- x\nmerge {}\n.- {}", path("more").display(), path("plain").display()),
    )
    .unwrap();
    std::fs::write(path("more"), "!\n+ y\n").unwrap();
    std::fs::write(path("plain"), "+ z").unwrap();
    let mut list = RuleList::default();
    list.exclude_from(&path("patterns")).unwrap();
    assert_eq!(list.lines(), [b"+ a", b"- b", b"- c"]);
    list.rule(format!("merge {}", path("rules").display()).as_bytes()).unwrap();
    assert_eq!(list.lines(), [&b"+ y"[..], b"- + z"]);
    std::fs::write(path("nul"), "a\nb\0+ c\0").unwrap();
    let mut list = RuleList::new(Separator::Nul);
    list.exclude_from(&path("nul")).unwrap();
    assert_eq!(list.lines(), [&b"- a\nb"[..], b"+ c"]);
    std::fs::write(path("loop"), format!("merge {}", path("loop").display())).unwrap();
    let error = RuleList::default().rule(format!(". {}", path("loop").display()).as_bytes()).unwrap_err();
    assert!(matches!(error, FilterError::TooDeep(_)));
    assert!(RuleList::default().exclude_from(&path("none")).is_err());
    assert!(RuleList::default().exclude_from(Path::new("/dev/zero")).is_err());
}

#[test]
fn an_exclamation_mark_clears_and_prefixes_turn_the_kind() {
    let mut list = RuleList::default();
    list.exclude(b"a").unwrap();
    list.exclude(b"!").unwrap();
    list.include(b"- b").unwrap();
    list.exclude(b"!c").unwrap();
    list.exclude(b"").unwrap();
    assert_eq!(list.lines(), [&b"- b"[..], b"- !c"]);
    assert!(list.exclude(b"- ").is_err());
}

proptest! {
    #[test]
    fn any_line_is_a_rule_or_an_error(line in proptest::collection::vec(any::<u8>(), 0..40), path in proptest::collection::vec(any::<u8>(), 1..40)) {
        if let Ok(filter) = Filter::new(&[line]) {
            let _ = filter.excludes(&path, false, FilterSide::Sender);
        }
    }

    #[test]
    fn a_rule_survives_as_a_line(code in prop_oneof![Just("-"), Just("+"), Just("H"), Just("S"), Just("P"), Just("R"), Just("-!"), Just("+s"), Just("-r!")], pattern in "[a-z*/! _]{1,9}") {
        let mut list = RuleList::default();
        list.rule(format!("{code} {pattern}").as_bytes()).unwrap();
        let lines = list.lines();
        let mut again = RuleList::default();
        again.rule(&lines[0]).unwrap();
        prop_assert_eq!(&again.rules, &list.rules);
        prop_assert_eq!(again.lines(), lines);
    }
}
