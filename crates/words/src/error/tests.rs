use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::*;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

// ---- the lists ----------------------------------------------------------------------------------

#[test]
fn each_code_has_a_name_and_a_number_of_its_own() {
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for &code in Code::ALL {
        assert!(names.insert(code.name()) && numbers.insert(code.number()), "{code} is there twice");
        assert_eq!(Code::of_name(code.name()), Some(code));
        assert_eq!(Code::of_number(code.number()), Some(code));
        assert_eq!(Blame::of_number(code.number()), Some(code.blame()), "{code}");
        let fits = |c: char| c.is_ascii_uppercase() || c == '-';
        assert!(code.name().starts_with("FH-") && code.name().chars().all(fits), "{code}");
        assert!(code.meaning().ends_with('.') && code.hint() != Some(""), "{code}");
    }
    assert_eq!((Code::of_number(0), Code::of_name("FH-OF-TOMORROW")), (None, None));
    assert_eq!((Blame::of_number(0), Blame::of_number(999), Blame::of_number(6000)), (None, None, None));
}

#[test]
fn each_misbehaviour_has_a_name_and_a_number_of_its_own() {
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for &how in Misbehaviour::ALL {
        assert!(names.insert(how.name()) && numbers.insert(how.number()), "{how} is there twice");
        assert_eq!(Misbehaviour::of_name(how.name()), Some(how));
        assert_eq!(Misbehaviour::of_number(how.number()), Some(how));
    }
    assert_eq!(Misbehaviour::of_number(0), None);
}

#[test]
fn what_a_peer_does_wrong_is_counted() {
    let how = Misbehaviour::BenchOrder;
    let before = how.count();
    let error = Error::from(how);
    assert_eq!(how.count(), before + 1);
    assert!(misbehaviour_counts().contains(&(how, before + 1)));
    let again = error.clone();
    assert_eq!((how.count(), again.misbehaviour()), (before + 1, Some(how)), "a copy is no second time");
    assert_eq!(
        error.to_string(),
        "the far end broke the protocol: a measurement's steps come in another order"
    );
}

/// The text of all tests below a folder: in Rust, a file of tests, or the part of a file behind the mark of
/// its tests; in Python, every file.
fn tests_below(folder: &Path, found: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            // The tests of these lists name everything, and test nothing of it.
            if !path.ends_with("words/src/error") {
                tests_below(&path, found);
            }
            continue;
        }
        if !name.ends_with(".rs") && !name.ends_with(".py") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let is_tests = name.ends_with(".py") || name.ends_with("tests.rs");
        let start = if is_tests { Some(0) } else { text.find("#[cfg(test)]\nmod tests {") };
        found.push_str(start.map_or("", |start| &text[start..]));
    }
}

#[test]
fn each_misbehaviour_has_a_test_that_names_it() {
    let mut tests = String::new();
    tests_below(&project().join("crates"), &mut tests);
    tests_below(&project().join("tests"), &mut tests);
    let is_word_end = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let is_named = |how: &Misbehaviour| {
        let in_rust = format!("Misbehaviour::{how}");
        tests.contains(&format!("\"{how}\""))
            || tests.match_indices(&in_rust).any(|(at, found)| is_word_end(&tests[at + found.len()..]))
    };
    let without: Vec<_> = Misbehaviour::ALL.iter().filter(|how| !is_named(how)).collect();
    assert!(without.is_empty(), "no test names {without:?}");
}

// ---- errors of the system -----------------------------------------------------------------------

#[test]
fn what_the_system_says_chooses_the_code() {
    use std::io::ErrorKind;
    for (kind, code) in [
        (ErrorKind::NotFound, Code::NotFound),
        (ErrorKind::PermissionDenied, Code::PermissionDenied),
        (ErrorKind::StorageFull, Code::NoSpace),
        (ErrorKind::QuotaExceeded, Code::NoSpace),
        (ErrorKind::ReadOnlyFilesystem, Code::ReadOnly),
        (ErrorKind::TimedOut, Code::FilesAway),
        (ErrorKind::Other, Code::FilesFailed),
    ] {
        assert_eq!(Code::of_files(&kind.into()), code);
    }
    for &(errno, name, code) in code::SYSTEM_ERRORS {
        assert_eq!(Code::of_files(&errno.into()), code, "{name}");
    }
    assert_eq!(Code::of_files(&rustix::io::Errno::INVAL.into()), Code::FilesFailed);
    assert_eq!(Code::of_files(&rustix::io::Errno::IO.into()), Code::DiskFailed);
    let of_host = |errno: rustix::io::Errno| Error::of_host("x", errno.into());
    assert_eq!(of_host(rustix::io::Errno::MFILE).code(), Code::NoDescriptors);
    assert_eq!(of_host(rustix::io::Errno::NOMEM).code(), Code::NoMemory);
    let of_resources = |errno: rustix::io::Errno| is_of_resources(&errno.into());
    assert!(of_resources(rustix::io::Errno::NFILE) && of_resources(rustix::io::Errno::NOMEM));
    assert!(!of_resources(rustix::io::Errno::NOENT) && !of_resources(rustix::io::Errno::IO));
    let error = of_host(rustix::io::Errno::NODEV);
    assert_eq!(error.code(), Code::HostFailed);
    assert!(error.to_string().starts_with("x: "), "{error}");
}

// ---- what passes ------------------------------------------------------------------------------

/// Every code, sorted by hand: a new one has to be added here, too.
const PASSES: &[Code] = &[
    Code::AlreadyRuns,
    Code::TooMany,
    Code::StoreLocked,
    Code::NoService,
    Code::NameServerAway,
    Code::NotListening,
    Code::Busy,
    Code::PeerCannotStart,
    Code::Unreachable,
    Code::UdpBlocked,
    Code::SshFailed,
    Code::NoCarrier,
    Code::NoPort,
    Code::CannotListen,
    Code::TargetRefused,
    Code::TargetUnreachable,
    Code::NoSecret,
    Code::GrantRefused,
    Code::GrantUsed,
    Code::GrantExpired,
    Code::SourceChanged,
    Code::SourceVanished,
    Code::BeingWritten,
    Code::NoSpace,
    Code::FilesAway,
    Code::NotOnDisk,
    Code::NoOverflow,
    Code::Superseded,
    Code::ProgramFailed,
    Code::PeerInterrupted,
    Code::PeerEnded,
    Code::PeerGone,
    Code::NoReceipt,
    Code::RightsNarrowed,
    Code::ShareUsed,
    Code::PeerSilent,
    Code::PeerFailed,
    Code::Damaged,
    Code::HostFailed,
    Code::NoMemory,
    Code::NoDescriptors,
    Code::NoThread,
    Code::Interrupted,
];
const STAYS: &[Code] = &[
    Code::BadOption,
    Code::BadLocation,
    Code::BadPattern,
    Code::BadList,
    Code::SourcesCollide,
    Code::IntoItself,
    Code::SameFile,
    Code::NotOneFile,
    Code::UnsafeRoot,
    Code::Misuse,
    Code::NoSuchAddress,
    Code::BadConfig,
    Code::BadState,
    Code::BadRequest,
    Code::OneRequestOnly,
    Code::NoSuchThing,
    Code::NotNow,
    Code::NotInTime,
    Code::KeyReused,
    Code::TooLarge,
    Code::NoToken,
    Code::OutOfScope,
    Code::StoreNewer,
    Code::StoreOlder,
    Code::StoreBroken,
    Code::HookFailed,
    Code::CheckFailed,
    Code::ContentRefused,
    Code::HostUnknown,
    Code::Forked,
    Code::NoSsh,
    Code::NotInstalled,
    Code::CannotBring,
    Code::NotFarhaul,
    Code::SshRefused,
    Code::NoKey,
    Code::KeyExposed,
    Code::BadKey,
    Code::HostKeyChanged,
    Code::HostKeyWrong,
    Code::HostKeyUnknown,
    Code::KeyNotAuthorized,
    Code::KeyRevoked,
    Code::Forbidden,
    Code::NoCommonVersion,
    Code::FeatureMissing,
    Code::NotFound,
    Code::PermissionDenied,
    Code::AlreadyExists,
    Code::NotADirectory,
    Code::BadPath,
    Code::DeleteLimit,
    Code::DeleteGuard,
    Code::RequiredMissing,
    Code::BadManifest,
    Code::BadReceipt,
    Code::ReadOnly,
    Code::FilesFailed,
    Code::DiskFailed,
    Code::OutputLost,
    Code::MetadataNotSet,
    Code::ReceiptWrong,
    Code::Accused,
    Code::Misbehaved,
    Code::Bug,
];

#[test]
fn each_code_passes_or_stays() {
    for &code in Code::ALL {
        let advice = match (PASSES.contains(&code), STAYS.contains(&code)) {
            (true, false) => RetryAdvice::Helps,
            (false, true) => RetryAdvice::Futile,
            (in_both, _) => panic!("{code} is in {} of the lists", if in_both { "both" } else { "none" }),
        };
        assert_eq!(code.retry(), advice, "{code}");
        let told = Error::new(code, "x").advice().unwrap_or_default();
        let says_so = told.contains("again") || told.contains("later");
        assert!(says_so || advice == RetryAdvice::Futile || code == Code::Interrupted, "{code}: {told}");
    }
}

#[test]
fn a_hint_says_once_whether_it_passes() {
    let advice = |code, hint: &str| Error::new(code, "x").with_hint(hint).advice().unwrap();
    assert_eq!(advice(Code::Unreachable, "is it up?"), "is it up?; this may pass by itself: try again later");
    assert_eq!(advice(Code::Busy, "try again at night"), "try again at night");
    assert_eq!(advice(Code::NotFound, "look for it"), "look for it");
    let alone = |code| Error::new(code, "x").advice();
    assert_eq!(alone(Code::ReadOnly).unwrap(), "trying again does not help before this is mended");
    assert_eq!((alone(Code::NotFound), alone(Code::Interrupted)), (None, None));
}

// ---- the page of errors -------------------------------------------------------------------------

/// docs/reference/errors.md, made from the lists.
fn page() -> String {
    let mut page = String::from(
        "# Errors

Everything that ends a transfer, or keeps it from starting, has a code. `--json` of a verb that moves or compares files has its name (`error_detail.code`), `-v` prints it below
the error's line, and no other error ever gets the same name. A program looks at the name; a script that needs no more looks at the exit code.

This page is made of the lists in `crates/words/src/error/` (`GOLDEN=write cargo test -p farhaul-words the_page`).

## Exit codes

They are the same for every verb.

| exit code | meaning |
| --- | --- |
| 0 | everything arrived, or was there already |
| 1 | some entries failed, the others arrived |
| 2 | the command makes no sense |
| 3 | the far end cannot be reached |
| 4 | not authorized |
| 5 | the versions do not fit |
| 6 | source or destination as a whole cannot be used |
| 7 | the far end or the way to it is gone; the same command goes on where it stopped |
| 8 | the far end broke the protocol |
| 9 | a fault of this host, or of Farhaul |
| 10 | all content arrived, and some modes, times or attributes could not be set |
| 11 | nothing failed; some source files had vanished when they were to be read |
| 130 | interrupted (Ctrl-C); 143 by SIGTERM, 129 by SIGHUP |
| 141 | the reader of standard output has gone (a pipe to `head`); nothing is said of it, as with other programs |

## Codes

Blame says whose fault it is: `user` (the command, its files, the keys), `peer` (the other end, or whoever runs it), `network`, `host` (a resource of a host) or
`us` (Farhaul). \"Passes\" says whether the same command can work at another time although nobody changes the command or what it names: others make room, a daemon or a name
server comes back, another transfer ends. [Jobs](../guide/jobs.md) try again what passes and nothing else, and so says `retryable` in reports. On the command line the hint
says \"again\" or \"later\" if it passes; of a file system that refuses it says that trying again does not help, if there is nothing else to say. The number travels on [the wire](wire.md).

| code | exit | blame | passes | number | meaning | what to do, if the error says nothing more |
| --- | --- | --- | --- | --- | --- | --- |
",
    );
    let flags = |text: &str| OptionName::render(text, |option| format!("--{option}"));
    for &code in Code::ALL {
        let _ = writeln!(
            page,
            "| <a id=\"{}\"></a>`{code}` | {} | {} | {} | {} | {} | {} |",
            code.name().to_lowercase(),
            code.exit_code() as u8,
            code.blame().name(),
            if code.retry() == RetryAdvice::Helps { "yes" } else { "no" },
            code.number(),
            flags(code.meaning()),
            flags(code.hint().unwrap_or_default())
        );
    }
    page.push_str(
        "
## Errors of the system

What the system says when a file is read or written chooses the code. Every other error of the system is `FH-FILES-FAILED`.

| error | code | passes |
| --- | --- | --- |
",
    );
    for &(_, name, code) in code::SYSTEM_ERRORS {
        let passes = if code.retry() == RetryAdvice::Helps { "yes" } else { "no" };
        let _ = writeln!(page, "| `{name}` | `{code}` | {passes} |");
    }
    page.push_str(
        "
On the way to another host: a refused connection (`ECONNREFUSED`) is `FH-NOT-LISTENING`; a network that is down or has no way (`ENETDOWN`, `ENETUNREACH`, `EHOSTUNREACH`) and
a host that does not answer are `FH-UNREACHABLE`; a name is `FH-HOST-UNKNOWN` if a name server says that there is none, and `FH-NAME-SERVER-AWAY` if none answers
(`EAI_AGAIN`, `EAI_FAIL`, `EAI_MEMORY`). All of these pass but `FH-HOST-UNKNOWN`. A job whose session has not begun within `connect_timeout` of
[`[jobs]`](configuration.md#jobs) has failed with `FH-UNREACHABLE`.

An ssh that ends with 255 is `FH-SSH-FAILED`, which passes. Where the service reads what ssh says, it is `FH-SSH-REFUSED` if keys, host keys or options are refused,
`FH-HOST-UNKNOWN` if the name does not exist, and `FH-NAME-SERVER-AWAY` as above.

## Misbehaviours

`FH-MISBEHAVED` names what the far end did wrong (`error_detail.misbehaviour`), `FH-ACCUSED` what the far end says that this end did wrong. Either ends the session. The hundreds
(hexadecimal) of the number say which part found it: 1 the transport, 2 the session, 3 the hello, 4 a copy, 5 a stream, 6 a measurement, 7 a read.

| misbehaviour | number | meaning |
| --- | --- | --- |
",
    );
    for &how in Misbehaviour::ALL {
        let _ = writeln!(page, "| `{how}` | {:#x} | {} |", how.number(), how.text());
    }
    page
}

#[test]
fn the_page_has_the_lists() {
    let path = project().join("docs/reference/errors.md");
    let made = page();
    farhaul_vectors::compare_text(&path, &made);
}

#[test]
fn of_two_exit_codes_a_failure_stays_and_metadata_gives_way() {
    for code in ExitCode::ALL {
        assert_eq!(ExitCode::of(code as u8), Some(code));
        assert_eq!(ExitCode::Ok.worse(code), code);
        assert_eq!(code.worse(ExitCode::Ok), code);
    }
    assert_eq!(ExitCode::of(12), None);
    assert_eq!(ExitCode::Metadata.worse(ExitCode::Vanished), ExitCode::Vanished);
    assert_eq!(ExitCode::Vanished.worse(ExitCode::Metadata), ExitCode::Vanished);
    assert_eq!(ExitCode::Vanished.worse(ExitCode::SomeFailed), ExitCode::SomeFailed);
    assert_eq!(ExitCode::Lost.worse(ExitCode::SomeFailed), ExitCode::Lost);
}
