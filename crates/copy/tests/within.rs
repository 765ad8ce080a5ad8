//! Jobs whose local ends may lie only in certain directories.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farhaul_copy::{CopyJob, JobConfines, Location, Report, SyncOptions, copy};
use farhaul_session::handle::Handle;
use farhaul_words::{Code, Error};

/// `a` (which may be used) and `b` (which may not), each with a file `secret` in a directory `in`.
struct Places {
    _folder: tempfile::TempDir,
    top: PathBuf,
}

impl Places {
    fn new() -> Places {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        for name in ["a", "b", "ab"] {
            std::fs::create_dir_all(top.join(name).join("in")).unwrap();
            std::fs::write(top.join(name).join("in/secret"), name).unwrap();
        }
        Places { _folder: folder, top }
    }

    fn job(&self, from: &str, to: &str) -> CopyJob {
        let location = |name: &str| match name {
            "-" => Location::Pipe,
            name if name.ends_with(':') || name.starts_with("zero:") => Location::Local(name.into()),
            name => Location::Local(self.top.join(name)),
        };
        CopyJob {
            within: JobConfines { local: Some(vec![self.top.join("a")]), ..JobConfines::default() },
            ..CopyJob::new(from.split(' ').map(location), location(to))
        }
    }

    fn run(&self, from: &str, to: &str) -> (Report, Option<Error>) {
        copy(self.job(from, to), &Handle::new())
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.top.join(name)).ok()
    }
}

fn code(outcome: &(Report, Option<Error>)) -> Option<Code> {
    outcome.1.as_ref().map(Error::code)
}

#[test]
fn what_lies_within_is_copied_as_ever() {
    let places = Places::new();
    symlink("in", places.top.join("a/link")).unwrap();
    let (report, error) = places.run("a/in", "a/copy/");
    assert!(error.is_none() && report.ok, "{error:?}");
    assert_eq!(places.read("a/copy/in/secret").as_deref(), Some("a"));
    let (report, error) = places.run("a/link/", "a/other");
    assert!(error.is_none() && report.ok, "a link that stays: {error:?}");
    assert_eq!(places.read("a/other/secret").as_deref(), Some("a"));
    let (_, error) = places.run("a/in/secret", "a/name");
    assert!(error.is_none(), "{error:?}");
    assert_eq!(places.read("a/name").as_deref(), Some("a"));
    let (_, error) = places.run("zero:10", "a/zeros");
    assert!(error.is_none(), "{error:?}");
    let (_, error) = places.run("a/in", "null:");
    assert!(error.is_none(), "{error:?}");
    let mut sync = places.job("a/in", "a/mirror");
    sync.options.sync = Some(SyncOptions::default());
    let (_, error) = copy(sync, &Handle::new());
    assert!(error.is_none(), "{error:?}");
    assert_eq!(places.read("a/mirror/secret").as_deref(), Some("a"));
}

#[test]
fn what_lies_or_leads_outside_is_refused_and_nothing_is_made() {
    let places = Places::new();
    symlink("../b", places.top.join("a/leaves")).unwrap();
    symlink("../b/in/secret", places.top.join("a/file")).unwrap();
    for (from, to) in [
        ("b/in", "a/x"),
        ("ab/in", "a/x"),
        ("a/in", "b/x"),
        ("a/in", "ab/x"),
        ("a/in", "a/../b/x"),
        ("a/../b/in", "a/x"),
        ("a/leaves/in", "a/x"),
        ("a/leaves", "a/x"),
        ("a/file", "a/x"),
        ("a/in", "a/leaves"),
        ("a/in", "a/leaves/x"),
        ("a/in", "a/leaves/"),
        ("a/in b/in", "a/in"),
        ("-", "a/x"),
        ("a/in/secret", "-"),
    ] {
        let outcome = places.run(from, to);
        assert_eq!(code(&outcome), Some(Code::Forbidden), "{from} {to}: {:?}", outcome.1);
        assert!(!outcome.1.unwrap().to_string().contains('\n'));
    }
    assert!(!places.top.join("a/x").exists() && !places.top.join("b/x").exists());
    for stdin in ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/etc/passwd"] {
        let job = CopyJob { sources: vec![Location::Local(stdin.into())], ..places.job("a/in", "a/x") };
        assert_eq!(code(&copy(job, &Handle::new())), Some(Code::Forbidden), "{stdin}");
    }
}

#[test]
fn options_that_follow_links_follow_none_that_leads_out() {
    let places = Places::new();
    symlink("../../b/in/secret", places.top.join("a/in/out")).unwrap();
    symlink(places.top.join("b/in"), places.top.join("a/in/absolute")).unwrap();
    symlink("secret", places.top.join("a/in/stays")).unwrap();
    let mut following = places.job("a/in", "a/followed/");
    following.options.files.follow = true;
    let (report, error) = copy(following, &Handle::new());
    assert!(error.is_none() && report.failed_count == 2, "{report:?}");
    assert_eq!(places.read("a/followed/in/stays").as_deref(), Some("a"));
    assert!(!has_any(&places.top.join("a/followed"), "b"));
    // A link to a directory outside is not used for a directory that arrives.
    std::fs::create_dir(places.top.join("a/target")).unwrap();
    symlink(places.top.join("b"), places.top.join("a/target/in")).unwrap();
    let mut keeping = places.job("a/in", "a/target/");
    keeping.options.files.keep_dirlinks = true;
    let _ = copy(keeping, &Handle::new());
    assert!(!places.top.join("b/secret").exists() && places.read("b/in/secret").as_deref() == Some("b"));
}

#[test]
fn directories_of_a_spread_lie_within_as_well() {
    let places = Places::new();
    let list = |names: &[&str]| {
        names
            .iter()
            .map(|name| places.top.join(name).as_os_str().as_encoded_bytes().to_vec())
            .collect::<Vec<_>>()
    };
    for name in ["a/one", "a/two", "b/one"] {
        std::fs::create_dir_all(places.top.join(name)).unwrap();
    }
    let spread = |names: &[&str], within: &[&str]| {
        let job = CopyJob {
            spread: vec![list(names)],
            within: JobConfines {
                local: Some(within.iter().map(|name| places.top.join(name)).collect()),
                ..JobConfines::default()
            },
            ..places.job("a/in/secret", "a/one/")
        };
        copy(job, &Handle::new())
    };
    assert_eq!(code(&spread(&["a/one", "b/one"], &["a"])), Some(Code::Forbidden));
    assert_eq!(code(&spread(&["a/one", "a/two"], &["a"])), None);
    assert_eq!(code(&spread(&["a/one", "b/one"], &["a", "b"])), None, "both may be used");
    // A source may be in two places if both are allowed.
    std::fs::write(places.top.join("b/one/more"), "more").unwrap();
    let job = CopyJob {
        spread: vec![list(&["a/one", "b/one"])],
        within: JobConfines {
            local: Some(vec![places.top.join("a"), places.top.join("b")]),
            ..JobConfines::default()
        },
        ..places.job("a/one/", "a/all/")
    };
    let (report, error) = copy(job, &Handle::new());
    assert!(error.is_none() && report.ok, "{error:?}");
    assert_eq!(places.read("a/all/more").as_deref(), Some("more"));
    assert_eq!(places.read("a/all/secret").as_deref(), Some("a"));
}

/// Swaps a directory for a link to a place outside and back, as fast as it can, until it is dropped.
struct Swapping {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Swapping {
    fn start(place: PathBuf, outside: PathBuf) -> Swapping {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let (aside, link) = (place.with_extension("aside"), place.with_extension("link"));
        let swap = move || {
            while !stopped.load(Ordering::Relaxed) {
                symlink(&outside, &link).unwrap();
                std::fs::rename(&place, &aside).unwrap();
                std::fs::rename(&link, &place).unwrap();
                std::fs::remove_file(&place).unwrap();
                std::fs::rename(&aside, &place).unwrap();
            }
        };
        Swapping { stop, thread: Some(std::thread::spawn(swap)) }
    }
}

impl Drop for Swapping {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn has_any(folder: &Path, content: &str) -> bool {
    std::fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => has_any(&path, content),
            kind if kind.is_file() => std::fs::read_to_string(&path).is_ok_and(|text| text == content),
            _ => false,
        }
    })
}

#[test]
fn a_link_that_is_swapped_in_meanwhile_does_not_help() {
    let places = Places::new();
    std::fs::create_dir(places.top.join("a/got")).unwrap();
    let before = std::fs::read_dir(places.top.join("b")).unwrap().count();
    let (mut fine, mut refused) = (0, 0);
    {
        // Read through the swapped directory.
        let _swapping = Swapping::start(places.top.join("a/in"), places.top.join("b/in"));
        for round in 0..60 {
            let (report, error) = places.run("a/in/secret a/in", &format!("a/got/{round}/"));
            match report.ok && error.is_none() {
                true => fine += 1,
                false => refused += 1,
            }
        }
    }
    assert!(!has_any(&places.top.join("a/got"), "b"), "what lies outside has been read");
    {
        // Write through it.
        std::fs::create_dir(places.top.join("a/out")).unwrap();
        let _swapping = Swapping::start(places.top.join("a/out"), places.top.join("b"));
        for round in 0..60 {
            let (report, error) = places.run("a/in/secret", &format!("a/out/{round}"));
            match report.ok && error.is_none() {
                true => fine += 1,
                false => refused += 1,
            }
        }
    }
    let after = std::fs::read_dir(places.top.join("b")).unwrap().count();
    assert_eq!(after, before, "something was written outside ({fine} went well, {refused} were refused)");
}
