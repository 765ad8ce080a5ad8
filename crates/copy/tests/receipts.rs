//! Receipts of real sessions: client and daemon run in one process, over the loopback interface.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use farhaul_connect::{PublicKey, SshTarget};
use farhaul_copy::{
    CopyConnection, CopyJob, DeleteOptions, Durability, Location, ManifestOptions, Receipt, ReceiptOptions,
    Report, SyncOptions, TransferOptions, VerifyMode, copy, manifest_root,
};
use farhaul_session::Handle;
use farhaul_words::{Code, Error};

mod server;

use server::Server;

struct Fixture {
    server: Server,
    near: tempfile::TempDir,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum SessionKind {
    Push,
    Pull,
}

const BOTH: [SessionKind; 2] = [SessionKind::Push, SessionKind::Pull];

impl Fixture {
    fn new() -> Fixture {
        let near = tempfile::tempdir().unwrap();
        Fixture { server: Server::start(farhaul_session::TestHooks::default()), near }
    }

    fn far(&self, name: &str) -> PathBuf {
        self.server.folder.path().join("root").join(name)
    }

    fn near(&self, name: &str) -> PathBuf {
        self.near.path().join(name)
    }

    /// The directories that the content comes from and goes to.
    fn ends(&self, way: SessionKind) -> (PathBuf, PathBuf) {
        match way {
            SessionKind::Push => (self.near("tree"), self.far("copy")),
            SessionKind::Pull => (self.far("tree"), self.near("copy")),
        }
    }

    fn key(&self, name: &str) -> PublicKey {
        PublicKey::load(&self.server.folder.path().join(name)).unwrap()
    }

    /// A copy of `tree/` to `copy/`, or a sync if its options are given.
    fn job(&self, way: SessionKind, sync: Option<SyncOptions>) -> CopyJob {
        let (source, destination) = match way {
            SessionKind::Push => (Location::Local(self.near("tree/")), self.server.at(b"copy/")),
            SessionKind::Pull => (self.server.at(b"tree/"), Location::Local(self.near("copy/"))),
        };
        CopyJob {
            options: TransferOptions { sync, ..TransferOptions::default() },
            receipt: Some(ReceiptOptions { file: None, is_required: true }),
            ..CopyJob::new([source], destination)
        }
    }

    /// Runs a job with a manifest, whose root has to be the receipt's.
    fn run(&self, job: CopyJob) -> (Report, Receipt) {
        let manifest = self.near("m.jsonl");
        let job = CopyJob { manifest: Some(manifest.clone()), ..job };
        let (report, error) = copy(job, &Handle::new());
        assert!(error.is_none(), "{error:?}");
        let receipt = (**report.receipt.as_ref().unwrap_or_else(|| panic!("{report:?}"))).clone();
        let root = manifest_root(&manifest).unwrap();
        receipt.check(&[self.key("client.pub"), self.key("host.pub")], Some(&root)).unwrap();
        assert_eq!(report.tree_root.as_deref(), Some(&*root));
        let files = receipt.received.statement.files;
        assert_eq!((receipt.sent.statement.files, receipt.received.statement.digests_told), (files, 0));
        (report, receipt)
    }
}

fn tree(folder: &Path) {
    std::fs::create_dir_all(folder.join("deep/er")).unwrap();
    std::fs::create_dir(folder.join("empty")).unwrap();
    for number in 0..40u8 {
        std::fs::write(folder.join(format!("deep/small{number}")), vec![number; 3000]).unwrap();
    }
    std::fs::write(folder.join("nothing"), b"").unwrap();
    std::fs::write(
        folder.join("deep/er/large"),
        (0..9_000_000u32).map(|at| (at / 7) as u8).collect::<Vec<_>>(),
    )
    .unwrap();
    std::fs::write(folder.join("deep/er/medium"), vec![9; 1_500_000]).unwrap();
    std::fs::hard_link(folder.join("deep/small3"), folder.join("again")).unwrap();
    symlink("deep/er", folder.join("link")).unwrap();
    std::fs::write(folder.join("n\u{e4}me \\ \""), b"name").unwrap();
}

#[test]
fn both_ends_sign_for_a_tree_whichever_way_it_goes() {
    for way in BOTH {
        let fixture = Fixture::new();
        let (source, _) = fixture.ends(way);
        tree(&source);
        let (report, receipt) = fixture.run(fixture.job(way, None));
        let sent = &receipt.sent.statement;
        assert!(
            report.ok
                && sent.unread + sent.failed + sent.digests_told == 0
                && sent.durable == Durability::End,
            "{sent:?}"
        );
        assert_eq!((sent.files, sent.entries), (44, 44 + 4 + 2), "{way:?}: directories and links count");
        assert_eq!(
            (&sent.paths[..], sent.paths_in_all),
            (&[if way == SessionKind::Push { "copy/" } else { "tree/" }.to_string()][..], 1)
        );
        assert_eq!(sent.bytes, report.session.bytes);
        let keys = (fixture.key("client.pub").line(), fixture.key("host.pub").line());
        let (sender, receiver) = if way == SessionKind::Push { keys } else { (keys.1, keys.0) };
        assert_eq!(
            (sent.sender_key.as_deref(), sent.receiver_key.as_deref()),
            (Some(&*sender), Some(&*receiver))
        );
        // Unchanged files are not read, and the receipt says so. Once they are read, the root is the same as
        // when they arrived.
        let (_, again) = fixture.run(fixture.job(way, None));
        assert_eq!(
            (again.received.statement.unread, again.received.statement.files),
            (43, 44),
            "one is empty"
        );
        assert_ne!(again.received.statement.tree_root, sent.tree_root);
        let mut reading = fixture.job(way, None);
        reading.options.integrity.manifest =
            Some(ManifestOptions { unchanged: true, ..ManifestOptions::default() });
        let (_, read) = fixture.run(reading);
        assert_eq!((read.received.statement.unread, read.sent.statement.digests_told), (0, 44));
        assert_eq!(read.received.statement.tree_root, sent.tree_root);
        assert_ne!(read.sent.statement.transfer, sent.transfer);
    }
}

#[test]
fn the_ends_agree_on_what_was_there_in_part_or_under_another_name() {
    for way in BOTH {
        let fixture = Fixture::new();
        let (source, target) = fixture.ends(way);
        tree(&source);
        fixture.run(fixture.job(way, None));
        // A large file that differs in a few bytes, one that was renamed, one that differs only in its time,
        // and one that is surplus.
        let large = source.join("deep/er/large");
        let mut content = std::fs::read(&large).unwrap();
        content[5_000_000] ^= 1;
        std::fs::write(&large, content).unwrap();
        std::fs::rename(source.join("deep/er/medium"), source.join("moved")).unwrap();
        std::fs::write(source.join("deep/small7"), vec![7; 3000]).unwrap();
        std::fs::write(target.join("surplus"), b"").unwrap();
        let sync =
            SyncOptions { checksum: true, detect_renames: true, delete: Some(DeleteOptions::default()) };
        let (report, receipt) = fixture.run(fixture.job(way, Some(sync)));
        assert!(
            report.ok && report.renames == 1 && report.deleted == 1 && report.bytes_matched > 0,
            "{report:?}"
        );
        let (sent, received) = (&receipt.sent.statement, &receipt.received.statement);
        assert_eq!((sent.unread, received.unread, sent.digests_told), (0, 0, 0), "{way:?}");
        let copied = std::fs::read(target.join("deep/er/large")).unwrap();
        assert!(copied == std::fs::read(large).unwrap());
    }
}

#[test]
fn what_has_failed_is_counted_and_the_rest_is_signed_for() {
    for way in BOTH {
        let fixture = Fixture::new();
        let (source, target) = fixture.ends(way);
        tree(&source);
        std::fs::create_dir_all(target.join("nothing/in the way")).unwrap();
        let (report, receipt) = fixture.run(fixture.job(way, None));
        assert!(!report.ok && report.failed_count == 1, "{report:?}");
        let (sent, received) = (&receipt.sent.statement, &receipt.received.statement);
        assert_eq!((sent.failed, received.failed, received.files), (1, 1, 43), "{way:?}");
    }
}

#[test]
fn a_single_file_under_another_name_and_a_stream_have_receipts_too() {
    let fixture = Fixture::new();
    std::fs::write(fixture.near("one"), b"content").unwrap();
    std::fs::write(fixture.far("two"), vec![2; 2_000_000]).unwrap();
    let push = CopyJob {
        sources: vec![Location::Local(fixture.near("one"))],
        destination: fixture.server.at(b"renamed"),
        ..fixture.job(SessionKind::Push, None)
    };
    let (report, receipt) = fixture.run(push);
    assert!(report.renamed && receipt.received.statement.paths == ["renamed"], "{report:?}");
    let pull = CopyJob {
        sources: vec![fixture.server.at(b"two")],
        destination: Location::Local(fixture.near("other")),
        ..fixture.job(SessionKind::Pull, None)
    };
    fixture.run(pull);
    let made = CopyJob {
        sources: vec![Location::Local("random:3000000".into())],
        destination: fixture.server.at(b"made"),
        ..fixture.job(SessionKind::Push, None)
    };
    let (_, receipt) = fixture.run(made);
    assert_eq!(receipt.received.statement.bytes, 3_000_000);
}

#[test]
fn a_destination_that_is_spread_has_one_receipt() {
    let fixture = Fixture::new();
    tree(&fixture.near("tree"));
    for name in ["one", "two"] {
        std::fs::create_dir(fixture.far(name)).unwrap();
    }
    let job = CopyJob {
        destination: fixture.server.at(b"one/"),
        spread: vec![vec![b"one".to_vec(), b"two".to_vec()]],
        ..fixture.job(SessionKind::Push, None)
    };
    let (report, receipt) = fixture.run(job);
    assert!(report.ok && report.spread.iter().all(|place| place.files > 0), "{report:?}");
    assert_eq!((receipt.received.statement.files, receipt.received.statement.entries), (44, 50));
}

#[test]
fn the_document_is_written_and_a_manifest_is_not_needed() {
    for way in BOTH {
        let fixture = Fixture::new();
        let (source, target) = fixture.ends(way);
        tree(&source);
        let file = fixture.near("receipt.json");
        let mut job = fixture.job(way, None);
        job.receipt = Some(ReceiptOptions { file: Some(file.clone()), is_required: true });
        let (report, error) = copy(job, &Handle::new());
        assert!(error.is_none() && report.ok, "{error:?}");
        let receipt = Receipt::parse(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(Some(&receipt), report.receipt.as_deref());
        assert_eq!(report.tree_root.as_deref(), Some(&*receipt.sent.statement.tree_root));
        receipt.check(&[fixture.key("host.pub")], None).unwrap();
        assert!(target.join("deep/er/large").exists());
        // Without a request for a receipt there is none.
        let mut plain = fixture.job(way, None);
        plain.receipt = None;
        let (report, error) = copy(plain, &Handle::new());
        assert!(error.is_none() && report.receipt.is_none() && report.no_receipt.is_none(), "{error:?}");
        assert_eq!(report.tree_root, None);
    }
}

#[test]
fn where_there_can_be_none_it_is_said_before_anything_is_sent() {
    let fixture = Fixture::new();
    let source = fixture.near("tree");
    tree(&source);
    let target = SshTarget { host: "nowhere.invalid".into(), ..SshTarget::default() };
    let ssh = || Location::Ssh { target: target.clone(), path: b"x".to_vec() };
    let run = |destination: Location, is_required: bool| {
        let mut job = CopyJob { destination, ..fixture.job(SessionKind::Push, None) };
        job.receipt = Some(ReceiptOptions { file: Some(fixture.near("none/receipt")), is_required });
        copy(job, &Handle::new())
    };
    let code = |outcome: &(Report, Option<Error>)| outcome.1.as_ref().map(Error::code);
    for (destination, why) in [
        (ssh(), "over SSH"),
        (Location::Local(fixture.near("here")), "within one host"),
        (fixture.server.at(b"null:"), "is on no disk"),
    ] {
        let outcome = run(destination, true);
        assert_eq!(code(&outcome), Some(Code::BadOption), "{why}");
        assert!(outcome.1.unwrap().to_string().contains(why), "{why}");
    }
    assert!(!fixture.near("here").exists());
    // A receipt that is not required is left out, and the report says why.
    let (report, error) = run(Location::Local(fixture.near("here")), false);
    assert!(error.is_none() && report.ok && fixture.near("here").exists(), "{error:?}");
    assert!(report.receipt.is_none() && report.no_receipt.unwrap().contains("within one host"));
    // A file that cannot be written is noticed before anything is sent.
    let outcome = run(fixture.server.at(b"copy"), true);
    assert_eq!(code(&outcome), Some(Code::NotFound), "{:?}", outcome.1);
    assert!(!fixture.far("copy").exists());
    let options = |change: fn(&mut TransferOptions)| {
        let mut job = fixture.job(SessionKind::Push, None);
        change(&mut job.options);
        code(&copy(job, &Handle::new()))
    };
    assert_eq!(options(|options| options.dry_run = true), Some(Code::BadOption));
    assert_eq!(options(|options| options.integrity.verify = VerifyMode::Transit), Some(Code::BadOption));
}

#[test]
fn each_copy_over_one_connection_has_its_own() {
    let fixture = Fixture::new();
    tree(&fixture.near("tree"));
    let (report, error, connection) =
        CopyConnection::open(fixture.job(SessionKind::Push, None), &Handle::new());
    assert!(error.is_none() && report.receipt.is_some(), "{error:?}");
    let connection = connection.unwrap();
    tree(&fixture.far("tree"));
    let (second, error) = connection.copy(fixture.job(SessionKind::Pull, None), &Handle::new());
    assert!(error.is_none(), "{error:?}");
    let first = report.receipt.unwrap().sent.statement;
    let second = second.receipt.unwrap().sent.statement;
    assert_ne!(first.transfer, second.transfer);
    assert_eq!((first.sender_key, first.receiver_key), (second.receiver_key, second.sender_key));
}
