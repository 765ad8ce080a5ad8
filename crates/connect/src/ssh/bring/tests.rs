use std::io::Write as _;

use super::*;

/// A 64-bit ELF file with program headers of these kinds.
fn elf(kinds: &[u32]) -> Vec<u8> {
    let mut head = vec![0_u8; 64];
    head[..6].copy_from_slice(b"\x7fELF\x02\x01");
    head[32..40].copy_from_slice(&64_u64.to_le_bytes());
    head[54..56].copy_from_slice(&56_u16.to_le_bytes());
    head[56..58].copy_from_slice(&u16::try_from(kinds.len()).unwrap().to_le_bytes());
    for kind in kinds {
        let mut entry = [0_u8; 56];
        entry[..4].copy_from_slice(&kind.to_le_bytes());
        head.extend(entry);
    }
    head
}

#[test]
fn a_program_without_a_loader_needs_no_library() {
    assert_eq!(names_no_loader(&elf(&[1, 2, 6])), Some(true));
    assert_eq!(names_no_loader(&elf(&[1, PT_INTERP])), Some(false));
    assert_eq!(names_no_loader(b"#!/bin/sh\n"), None);
    let whole = elf(&[1, 2, PT_INTERP]);
    for len in 0..whole.len() {
        let seen = names_no_loader(&whole[..len]);
        assert!(seen.is_none() || (64 + 2 * 56..).contains(&len), "{len}");
    }
    let mut far = elf(&[1]);
    far[32..40].fill(0xff);
    assert_eq!(names_no_loader(&far), None);
}

#[test]
fn a_digest_is_of_the_whole_file() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![7; 600_000]).unwrap();
    let (len, digest) = digest_of(&mut file).unwrap();
    assert_eq!((len, digest.len()), (600_000, 64));
    assert_eq!(digest_of(&mut file).unwrap().1, digest, "it begins at the start again");
}

/// The script runs in the shell of this host: what it says and does in each case.
mod script {
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// Runs the command in a home with the given input, and returns what it prints.
    fn run(home: &Path, digest: &str, input: &[u8]) -> String {
        let command = super::super::script::command(digest, "no-farhaul-here", "endpoint");
        let mut child = Command::new("sh")
            .args(["-c", &command])
            .env("HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let feeder = std::thread::spawn(move || {
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    }

    const PROGRAM: &[u8] = b"#!/bin/sh\necho \"started $@\"\n";

    fn digest() -> String {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(PROGRAM).unwrap();
        digest_of(&mut file).unwrap().1
    }

    fn take(content: &[u8], form: &str) -> Vec<u8> {
        [format!("take {} {form}\n", content.len()).as_bytes(), content].concat()
    }

    fn home() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn it_takes_a_program_and_starts_it() {
        let (home, digest) = (home(), digest());
        let said = run(home.path(), &digest, &take(PROGRAM, "plain"));
        assert!(
            said.starts_with(&format!(
                "{} is {} Linux no ",
                super::super::script::MARK,
                std::env::consts::ARCH
            )),
            "{said}"
        );
        assert!(said.ends_with(&format!("\nstarted brought {digest} endpoint\n")), "{said}");
    }

    #[test]
    fn it_unpacks_what_was_packed() {
        let (home, digest) = (home(), digest());
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(PROGRAM).unwrap();
        let said = run(home.path(), &digest, &take(&encoder.finish().unwrap(), "gzip"));
        assert!(said.contains("started brought"), "{said}");
    }

    #[test]
    fn what_is_damaged_or_cut_short_is_not_started_and_does_not_stay() {
        let digest = digest();
        for input in [take(b"#!/bin/sh\necho other\n", "plain"), b"take 100000 plain\nshort".to_vec()] {
            let home = home();
            let said = run(home.path(), &digest, &input);
            assert!(said.contains(" no damaged ") && !said.contains("started"), "{said}");
            let folder =
                home.path().join(super::super::script::FOLDER).join(super::super::script::version_folder());
            assert_eq!(fs_names(&folder), Vec::<String>::new());
        }
    }

    fn fs_names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_folder_that_others_can_write_in_is_refused_all_the_way_up() {
        let digest = digest();
        for (place, mode) in [(".", 0o770), (".cache", 0o757), (".cache/farhaul", 0o775)] {
            let home = home();
            std::fs::create_dir_all(home.path().join(".cache/farhaul")).unwrap();
            std::fs::set_permissions(home.path().join(place), std::fs::Permissions::from_mode(mode)).unwrap();
            let said = run(home.path(), &digest, &take(PROGRAM, "plain"));
            assert!(said.contains(" no writable ") && !said.contains("started"), "{place}: {said}");
        }
    }

    #[test]
    fn a_folder_that_leads_out_of_the_home_is_refused() {
        let (home, other, digest) = (home(), home(), digest());
        std::os::unix::fs::symlink(other.path(), home.path().join(".cache")).unwrap();
        let said = run(home.path(), &digest, &take(PROGRAM, "plain"));
        assert!(said.contains(" no elsewhere ") && !said.contains("started"), "{said}");
    }

    #[test]
    fn a_missing_home_is_told() {
        let said = run(Path::new("/nowhere/at/all"), &digest(), b"");
        assert!(said.contains(" no home /nowhere/at/all"), "{said}");
    }

    #[test]
    fn nothing_is_made_before_it_is_wanted() {
        let home = home();
        let said = run(home.path(), &digest(), b"stop\n");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(fs_names(home.path()).is_empty());
    }
}
