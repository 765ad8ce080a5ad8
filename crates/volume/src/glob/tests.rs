use proptest::prelude::*;

use super::*;

#[test]
fn patterns_match_as_a_shell_does() {
    let yes: &[(&[u8], &[u8])] = &[
        (b"*", b"abc"),
        (b"*", b""),
        (b"a*c", b"abbbc"),
        (b"*.bam", b"x.y.bam"),
        (b"?", b"\xff"),
        (b"[abc]", b"b"),
        (b"[a-c]x", b"bx"),
        (b"[!a-c]", b"d"),
        (b"[^a-c]", b"d"),
        (b"[]]", b"]"),
        (b"[!]]", b"a"),
        (b"[a-]", b"-"),
        (b"\\*", b"*"),
        (b"[", b"["),
        (b"[a", b"[a"),
        (b"a**b", b"ab"),
        (b"\\", b"\\"),
        (b"*a*b*", b"xxaxxbxx"),
    ];
    let no: &[(&[u8], &[u8])] = &[
        (b"?", b""),
        (b"?", b"ab"),
        (b"a*c", b"abcd"),
        (b"[abc]", b"d"),
        (b"[!a-c]", b"b"),
        (b"\\*", b"x"),
        (b"", b"a"),
        (b"[a-c]", b"B"),
        (b"*a*b*", b"ba"),
    ];
    for (pattern, name) in yes {
        assert!(matches(pattern, name), "{} {}", pattern.escape_ascii(), name.escape_ascii());
    }
    for (pattern, name) in no {
        assert!(!matches(pattern, name), "{} {}", pattern.escape_ascii(), name.escape_ascii());
    }
}

#[test]
fn a_hostile_pattern_takes_no_exponential_time() {
    let pattern = b"*a".repeat(120);
    assert!(!matches(&pattern, &[b'b'; 255]));
    assert!(!matches(&[&pattern[..], b"c"].concat(), &[b'a'; 255]));
}

fn expanded(base: &GlobBase, pattern: &str) -> Vec<String> {
    let found = expand(base, pattern.as_bytes(), &mut GlobAllowance::default()).unwrap();
    found.into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
}

#[test]
fn each_component_is_expanded() {
    let temp = tempfile::tempdir().unwrap();
    for name in ["run1/a.bam", "run1/b.bam", "run2/a.bam", "run2/.hidden.bam", "run3/x*y", "run3/xay", "file"]
    {
        let path = temp.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    std::os::unix::fs::symlink("/etc", temp.path().join("out")).unwrap();
    std::os::unix::fs::symlink("run1", temp.path().join("in")).unwrap();
    let root = GlobBase::Root(Root::open(temp.path()).unwrap());
    assert_eq!(expanded(&root, "run?/*.bam"), ["run1/a.bam", "run1/b.bam", "run2/a.bam"]);
    assert_eq!(expanded(&root, "/run[12]/a.bam"), ["/run1/a.bam", "/run2/a.bam"]);
    assert_eq!(expanded(&root, "run2/.*"), ["run2/.hidden.bam"]);
    assert_eq!(expanded(&root, "run3/x*y"), ["run3/x*y"], "what exists as written is meant");
    assert_eq!(expanded(&root, "run3/x?y"), ["run3/x*y", "run3/xay"]);
    assert_eq!(expanded(&root, "run3/x\\*y"), ["run3/x*y"]);
    assert_eq!(expanded(&root, "none*"), ["none*"]);
    assert_eq!(expanded(&root, "*/"), ["in/", "run1/", "run2/", "run3/"]);
    assert_eq!(expanded(&root, "in/[a]*"), ["in/a.bam"]);
    assert_eq!(expanded(&root, "out/pass*"), ["out/pass*"], "no link leads out of a root");
    assert_eq!(expanded(&root, "../*"), ["../*"], "nor does anything lead out of it");
    assert_eq!(expanded(&root, "~/file*"), ["~/file*"]);
    let pattern = format!("{}/run1/*.bam", temp.path().display());
    let expected = ["a", "b"].map(|name| format!("{}/run1/{name}.bam", temp.path().display()));
    assert_eq!(expanded(&GlobBase::User, &pattern), expected);
    let through_a_link = format!("{}/out/passw?", temp.path().display());
    assert_eq!(expanded(&GlobBase::User, &through_a_link).len(), 1);
}

#[test]
fn home_directories() {
    assert_eq!(expand_home(b"~root/x"), b"/root/x");
    assert_eq!(expand_home(b"~no-such-user-here/x"), b"~no-such-user-here/x");
    assert_eq!(expand_home(b"a~"), b"a~");
    if let Some(home) = passwd::own_home() {
        assert_eq!(expand_home(b"~/x"), [&home[..], b"/x"].concat());
    }
}

proptest! {
    #[test]
    fn nothing_panics_and_a_literal_matches_itself(pattern in proptest::collection::vec(any::<u8>(), 0..30), name in proptest::collection::vec(any::<u8>(), 0..30)) {
        matches(&pattern, &name);
        if !is_pattern(&name) {
            prop_assert!(matches(&name, &name));
            prop_assert_eq!(unescaped(&name), name);
        }
    }
}

#[test]
fn what_patterns_find_and_look_at_together_is_bounded() {
    let temp = tempfile::tempdir().unwrap();
    for number in 0..100 {
        std::fs::write(temp.path().join(format!("file{number}")), "").unwrap();
    }
    let base = GlobBase::Root(Root::open(temp.path()).unwrap());
    let rounds = |mut allowance: GlobAllowance, pattern: &[u8]| {
        let mut rounds = 0;
        loop {
            match expand(&base, pattern, &mut allowance) {
                Ok(_) => rounds += 1,
                Err(error) => return (rounds, error.to_string()),
            }
        }
    };
    let few = GlobAllowance { bytes: 100 * (MATCH_BYTES + 6) * 3, looks: 1_000_000, spent: 0 };
    let (found, why) = rounds(few, b"*");
    assert!(found == 3 && why.contains("matches too many files"), "{found} {why}");
    let few = GlobAllowance { bytes: 1_000_000, looks: 1000, spent: 0 };
    let (found, why) = rounds(few, b"none*");
    assert!(found == 9 && why.contains("too many files"), "{found} {why}");
    let (found, why) = rounds(GlobAllowance::default(), &[b'*'; COMPONENT_MAX + 1]);
    assert!(found == 0 && why.contains("too long"), "{found} {why}");
}
