//! Several copies over one session, one after the other or at once. Those after the first need no handshake,
//! and begin at the rate that the path has shown.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use farhaul_connect as connect;
use farhaul_connect::features::Features;
use farhaul_connect::hello::Refusal;
use farhaul_connect::{HelloParams, SessionKeys};
use farhaul_session::content_role::DeliveryOrder;
use farhaul_session::handle::Handle;
use farhaul_session::messages::MESSAGE_MAX;
use farhaul_session::options::NetworkOptions;
use farhaul_session::session::{Dialogue, Session};
use farhaul_words::{Code, Error};

use super::copy_outcome::CopyOutcome;
use super::job::{CopyJob, CopyPlan, ReadyJob, RemoteEnd, both_within, planned};
use super::report::Report;
use super::request::{CopyRequest, own_features};
use super::{CopySide, Terms, converse, serve_here};

/// The most bytes that a request in a running session may take: one message, less some room for its framing.
const WORDS_MAX: usize = MESSAGE_MAX - 1024;

/// A session with a far end that stays open for further copies. Dropping it ends the session and the copies
/// in it.
pub struct CopyConnection {
    session: Arc<Session>,
    far: RemoteEnd,
    features: Features,
    network: NetworkOptions,
    /// The keys that both ends have proved to each other.
    keys: Option<SessionKeys>,
    /// The directories that the far end is confined to, if it is on this host.
    within: Option<Vec<PathBuf>>,
    /// The thread of the far end, if the far end is on this host.
    serving: Option<JoinHandle<()>>,
}

impl CopyConnection {
    /// Connects with a first copy, and runs that copy to its end. Returns a connection if there was a
    /// session, even if the copy failed.
    pub fn open(job: CopyJob, handle: &Handle) -> (Report, Option<Error>, Option<CopyConnection>) {
        let within = job.within.local.clone();
        let mut connection = None;
        let outcome = planned(job, |plan| {
            plan.carry_out(handle, |ready| {
                let ready = one_of_many(ready)?;
                let (begun, dialogue) = CopyConnection::begin(&plan, &ready, within, handle)?;
                let connection = connection.insert(begun);
                let ReadyJob { request, side, terms, .. } = ready;
                Ok(connection.converse(dialogue, connection.agreed(request), side, terms))
            })
        });
        (outcome.report, outcome.error, connection)
    }

    fn begin(
        plan: &CopyPlan,
        ready: &ReadyJob,
        within: Option<Vec<PathBuf>>,
        handle: &Handle,
    ) -> Result<(CopyConnection, Dialogue), Error> {
        let mut opening = ready.request.opening(ready.needs.clone())?;
        opening.many = true;
        let (established, serving) = match &plan.far {
            RemoteEnd::Here => {
                let pair = connect::local_pair(&opening, &own_features())?;
                let (near, far) = both_within(pair, &plan.means)?;
                let (confines, check) = (plan.confines.clone(), plan.check.clone());
                let serve = move || drop(serve_here(far, confines, check));
                let serving = std::thread::Builder::new().name("far-end".into()).spawn(serve);
                (near, Some(serving.map_err(Error::no_thread)?))
            }
            far => {
                let params = HelloParams { opening, features: own_features(), udp: true, early: false };
                let established = match far {
                    RemoteEnd::Ssh(target) => connect::ssh_connect(target, params, handle)?,
                    RemoteEnd::Daemon(target) => connect::daemon_connect(target, params, handle)?,
                    RemoteEnd::Here => unreachable!("the outer match has handled it"),
                };
                (established.within(&plan.means)?, None)
            }
        };
        let (features, network) = (established.features, established.opening.network);
        let keys = established.keys;
        let role = ready.side.role();
        let (session, dialogue) =
            Session::start(established.session, network.clone(), role, DeliveryOrder::Any, handle)?;
        session.stay();
        let far = plan.far.clone();
        Ok((CopyConnection { session, far, features, network, keys, within, serving }, dialogue))
    }

    /// The request with what both ends have agreed on for the session.
    fn agreed(&self, request: CopyRequest) -> CopyRequest {
        request.agreed(self.network.clone(), &self.features)
    }

    fn converse(
        &self,
        dialogue: Dialogue,
        request: CopyRequest,
        side: CopySide,
        terms: Terms,
    ) -> CopyOutcome {
        converse(dialogue, request, side, &Terms { keys: self.keys.clone(), ..terms })
    }

    /// Runs one more copy with the same far end; several threads may do so at once. The copy uses the network
    /// options of the session, not those of its job.
    pub fn copy(&self, job: CopyJob, handle: &Handle) -> (Report, Option<Error>) {
        let is_elsewhere = matches!(self.far, RemoteEnd::Here) && job.within.local != self.within;
        let outcome = planned(job, |plan| match self.is_for(&plan, is_elsewhere) {
            Ok(()) => plan.carry_out(handle, |ready| self.run(ready, handle)),
            Err(error) => plan.failed(error),
        });
        (outcome.report, outcome.error)
    }

    /// Refuses a copy that this connection does not lead to.
    fn is_for(&self, plan: &CopyPlan, is_elsewhere: bool) -> Result<(), Error> {
        let misuse = |what: &str| Err(Error::new(Code::Misuse, what));
        if is_elsewhere {
            return misuse("the connection is for other directories of this host");
        }
        match plan.far.is_same(&self.far) {
            true => Ok(()),
            false => misuse("the connection is with another host"),
        }
    }

    fn run(&self, ready: ReadyJob, handle: &Handle) -> Result<CopyOutcome, Error> {
        let ReadyJob { request, needs, side, terms } = one_of_many(ready)?;
        self.features.satisfy(&needs).map_err(Refusal::into_error)?;
        let request = self.agreed(request);
        let words = request.words()?;
        if words.len() > WORDS_MAX {
            let what =
                format!("the request takes {} bytes, more than a running session accepts", words.len());
            let hint =
                "give fewer or shorter rules, or open the connection with this copy: CopyConnection::open";
            return Err(Error::new(Code::BadOption, what).with_hint(hint));
        }
        let dialogue = self.session.open(words, side.role(), handle);
        Ok(self.converse(dialogue, request, side, terms))
    }
}

/// Refuses a copy to a pipe, which needs its content in order: a session keeps order for everything that it
/// carries or for nothing.
fn one_of_many(ready: ReadyJob) -> Result<ReadyJob, Error> {
    match ready.request.is_in_order() {
        true => Err(Error::new(Code::Misuse, "a copy to a pipe needs a session of its own")),
        false => Ok(ready),
    }
}

impl Drop for CopyConnection {
    fn drop(&mut self) {
        self.session.close(None);
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::job::Location;

    fn job(source: PathBuf, destination: &Path) -> CopyJob {
        CopyJob::new([Location::Local(source)], Location::Local(destination.to_path_buf()))
    }

    /// A tree of a large file and of small ones, told apart by `seed`.
    fn tree(folder: &Path, seed: u8) -> PathBuf {
        let tree = folder.join(format!("tree{seed}"));
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("large"), vec![seed; 5_000_000]).unwrap();
        for number in 0..50u8 {
            std::fs::write(tree.join(format!("small{number}")), vec![seed ^ number; 3000]).unwrap();
        }
        tree
    }

    fn is_there(tree: &Path, copied: &Path) -> bool {
        std::fs::read_dir(tree).unwrap().all(|entry| {
            let name = entry.unwrap().file_name();
            std::fs::read(tree.join(&name)).unwrap() == std::fs::read(copied.join(&name)).unwrap_or_default()
        })
    }

    #[test]
    fn copies_go_one_after_the_other_and_at_once_over_one_session() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let trees: Vec<_> = (0..6).map(|seed| tree(from.path(), seed)).collect();
        let handle = || Handle::new();
        let (report, error, connection) = CopyConnection::open(job(trees[0].clone(), to.path()), &handle());
        assert!(error.is_none() && report.files == 51, "{error:?}");
        let connection = connection.expect("there was a session");
        let copy = |tree: &PathBuf| {
            let (report, error) = connection.copy(job(tree.clone(), to.path()), &handle());
            assert!(error.is_none() && report.ok && report.files == 51, "{error:?}");
            assert_eq!(report.session.bytes, 5_150_000);
        };
        copy(&trees[1]);
        // A copy that fails does not disturb the others.
        let (_, error) = connection.copy(job(from.path().join("none"), to.path()), &handle());
        assert!(matches!(error, Some(ref error) if error.code() == Code::NotFound), "{error:?}");
        copy(&trees[2]);
        std::thread::scope(|scope| {
            for tree in &trees[3..] {
                scope.spawn(|| copy(tree));
            }
        });
        drop(connection);
        for (seed, tree) in trees.iter().enumerate() {
            assert!(is_there(tree, &to.path().join(format!("tree{seed}"))), "tree {seed}");
        }
    }

    #[test]
    fn a_copy_that_is_cancelled_leaves_the_session_to_the_others() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (first, second) = (tree(from.path(), 1), tree(from.path(), 2));
        let (_, error, connection) = CopyConnection::open(job(first.clone(), to.path()), &Handle::new());
        let connection = connection.filter(|_| error.is_none()).expect("there was a session");
        let cancelled = Handle::new();
        cancelled.cancel();
        let (_, error) = connection.copy(job(second.clone(), to.path()), &cancelled);
        assert!(matches!(error, Some(ref error) if error.code() == Code::Interrupted), "{error:?}");
        let (report, error) = connection.copy(job(second.clone(), to.path()), &Handle::new());
        assert!(error.is_none() && report.ok, "{error:?}");
        assert!(is_there(&second, &to.path().join("tree2")));
    }

    #[test]
    fn what_the_far_end_refuses_is_said_of_that_copy_alone() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = tree(from.path(), 1);
        let (_, _, connection) = CopyConnection::open(job(first.clone(), to.path()), &Handle::new());
        let connection = connection.expect("there was a session");
        let (_, error) =
            connection.copy(job(first.clone(), &to.path().join("no/such/place/")), &Handle::new());
        assert!(error.is_some());
        let (report, error) = connection.copy(job(first, &to.path().join("other")), &Handle::new());
        assert!(error.is_none() && report.files == 51, "{error:?}");
    }
}
