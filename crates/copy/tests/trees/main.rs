//! Copies whole random trees over a network that loses, repeats and reorders packets.
//! What arrives has to be what was sent, despite interruptions, and again after changes. `PROPTEST_CASES=2000
//! cargo test --release -p farhaul-copy --test trees` runs longer.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use farhaul_copy::{
    CopyJob, DeleteOptions, DeleteWhen, FileOptions, IntegrityOptions, Location, Report, SyncOptions,
    TransferOptions, VerifyMode, copy,
};
use farhaul_session::{Fault, Handle, NetworkOptions, TestHooks};
use farhaul_words::Error;
use proptest::prelude::*;
use proptest::sample::Index;

mod model;
mod seen;
#[path = "../server/mod.rs"]
mod server;

use model::{TreeChange, change, tree};
use seen::{SeenKind, differences, see};
use server::Server;

/// The number of cases in an ordinary test run.
const CASES: u32 = 12;

/// The two ends and the network between them.
#[derive(Debug, Clone)]
struct Route {
    is_push: bool,
    /// Both ends are in this process, without a network.
    is_here: bool,
    /// The faults, at either end.
    testing: TestHooks,
    flows: u16,
    verify: VerifyMode,
}

#[derive(Debug, Clone, Copy)]
enum Interruption {
    None,
    /// The user cancels the transfer after this part.
    Cancel(Index),
    /// The daemon is stopped after this part.
    Stop(Index),
}

fn way() -> impl Strategy<Value = Route> {
    let share = || prop_oneof![Just(0.0), Just(0.02), 0.0..0.25];
    let fault = (share(), share(), share(), any::<u32>()).prop_map(|(loss, duplicate, reorder, seed)| {
        Fault { loss, duplicate, reorder, seed: seed.into(), ..Fault::default() }
    });
    let verify = prop_oneof![4 => Just(VerifyMode::Digest), 1 => Just(VerifyMode::Transit), 1 => Just(VerifyMode::Readback)];
    let fault = proptest::option::weighted(0.8, fault);
    (any::<bool>(), proptest::bool::weighted(0.15), fault, 1..3u16, prop_oneof![Just(22), 4..9u32], verify)
        .prop_map(|(is_push, is_here, fault, flows, epoch_bits, verify)| Route {
            is_push,
            is_here,
            testing: TestHooks { fault, epoch_bits },
            flows,
            verify,
        })
}

fn interruption() -> impl Strategy<Value = Interruption> {
    prop_oneof![
        2 => Just(Interruption::None),
        2 => any::<Index>().prop_map(Interruption::Cancel),
        1 => any::<Index>().prop_map(Interruption::Stop),
    ]
}

fn sync() -> impl Strategy<Value = SyncOptions> {
    let when = prop_oneof![Just(DeleteWhen::After), Just(DeleteWhen::Before)];
    (any::<bool>(), any::<bool>(), when).prop_map(|(checksum, detect_renames, when)| SyncOptions {
        checksum,
        detect_renames,
        delete: Some(DeleteOptions { when, ..DeleteOptions::default() }),
    })
}

/// A source and a destination in a folder of their own.
struct Ends {
    server: Server,
    way: Route,
}

impl Ends {
    fn new(way: Route) -> Ends {
        Ends { server: Server::start(way.testing), way }
    }

    fn path(&self, name: &str, is_near: bool) -> std::path::PathBuf {
        self.server.folder.path().join(if is_near { "" } else { "root" }).join(name)
    }

    fn source(&self) -> std::path::PathBuf {
        self.path("source", self.way.is_push)
    }

    fn target(&self) -> std::path::PathBuf {
        self.path("target", !self.way.is_push)
    }

    fn run(&self, sync: Option<SyncOptions>, interruption: Interruption) -> (Report, Option<Error>) {
        let location = |name: &str, path: &Path, is_near: bool| match is_near || self.way.is_here {
            true => Location::Local(path.join("")),
            false => self.server.at(format!("/{name}/").as_bytes()),
        };
        let options = TransferOptions {
            network: NetworkOptions {
                flows: self.way.flows,
                testing: self.way.testing,
                ..NetworkOptions::default()
            },
            files: FileOptions { keep_setuid: true, specials: true, xattrs: true, ..FileOptions::default() },
            integrity: IntegrityOptions { verify: self.way.verify, ..IntegrityOptions::default() },
            sync,
            ..TransferOptions::default()
        };
        let job = CopyJob {
            options,
            ..CopyJob::new(
                [location("source", &self.source(), self.way.is_push)],
                location("target", &self.target(), !self.way.is_push),
            )
        };
        let sizes: Vec<u64> = see(&self.source())
            .values()
            .filter_map(|seen| if let SeenKind::File { size, .. } = seen.kind { Some(size) } else { None })
            .collect();
        let handle = Handle::new();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (total, watched, is_over) =
                (sizes.iter().sum::<u64>() + sizes.len() as u64, &handle, &is_over);
            scope.spawn(move || {
                let (Interruption::Cancel(part) | Interruption::Stop(part)) = interruption else { return };
                // Only after the transfer has begun, as a missing daemon is another case.
                let part = 1 + part.index(total.max(1) as usize) as u64;
                while watched.counts().bytes_done.load(Relaxed) + watched.counts().files_done.load(Relaxed)
                    < part
                {
                    if is_over.load(Relaxed) {
                        return;
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
                match interruption {
                    Interruption::Stop(_) if !self.way.is_here => self.server.stop(),
                    _ => watched.cancel(),
                }
            });
            let ended = copy(job, &handle);
            is_over.store(true, Relaxed);
            ended
        })
    }

    /// Runs the transfer, and once more if it was interrupted.
    fn finish(
        mut self,
        sync: Option<SyncOptions>,
        interruption: Interruption,
    ) -> Result<Ends, TestCaseError> {
        // At any instant, every file must be one of the old ones or one of the new ones.
        let contents = |path: &Path| see(path).into_values().map(|seen| seen.kind).collect::<Vec<_>>();
        let whole: Vec<_> = [contents(&self.source()), contents(&self.target())].concat();
        let (report, error) = self.run(sync, interruption);
        // The daemon may have been stopped after the transfer.
        self.server.revive();
        let is_interrupted = error.is_some();
        prop_assert!(!is_interrupted || !matches!(interruption, Interruption::None), "{error:?}");
        if is_interrupted {
            for (name, seen) in see(&self.target()) {
                let suffixes = [&b".fhpart"[..], b".fhjournal", b".fhtmp", b".fhlink"];
                let is_ours = suffixes.iter().any(|suffix| name.ends_with(suffix));
                prop_assert!(is_ours || whole.contains(&seen.kind), "{name:?} is neither old nor new");
            }
            let (report, error) = self.run(sync, Interruption::None);
            prop_assert!(error.is_none() && report.ok, "{error:?} {:?}", report.failed);
        } else {
            prop_assert!(report.ok, "{:?}", report.failed);
        }
        let found = differences(&self.source(), &self.target());
        prop_assert!(found.is_empty(), "{found:#?}");
        Ok(self)
    }
}

fn config() -> ProptestConfig {
    let chosen = std::env::var_os("PROPTEST_CASES").is_some();
    let default =
        ProptestConfig { failure_persistence: None, max_shrink_iters: 400, ..ProptestConfig::default() };
    if chosen { default } else { ProptestConfig { cases: CASES, ..default } }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn a_tree_arrives_as_it_is_and_again_after_changes(
        way in way(),
        tree in tree(),
        is_sync in any::<bool>(),
        first in interruption(),
        changes in proptest::collection::vec(change(), 0..12),
        sync in sync(),
        second in interruption(),
    ) {
        let ends = Ends::new(way);
        tree.make(&ends.source());
        let ends = ends.finish(is_sync.then_some(SyncOptions::default()), first)?;
        changes.iter().for_each(|change: &TreeChange| change.make(&ends.source()));
        let ends = ends.finish(Some(sync), second)?;
        let (report, error) = ends.run(Some(sync), Interruption::None);
        prop_assert!(error.is_none() && report.ok, "{error:?} {:?}", report.failed);
        prop_assert_eq!((report.files, report.links, report.session.bytes, report.deleted), (0, 0, 0, 0), "nothing is left to do");
    }
}
