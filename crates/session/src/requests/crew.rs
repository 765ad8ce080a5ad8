//! Threads of a request that work on the same thing and end together.
//!
//! Always true: such a thread changes something only while it holds a pass of its request's gate
//! ([`Guarded`]). When [`together`] returns, all of its threads have ended, even if a thread could not be
//! started or something panicked; and it waits for no thread that has not been told to end.

use std::thread::{Builder, Scope};

use farhaul_handover::permit::Guarded;
use farhaul_words::Error;

use crate::budget::Resource;
use crate::panic_guard::contained;
use crate::requests::request::Request;

/// Starts threads that end with [`together`].
pub struct Crew<'scope, 'env: 'scope> {
    scope: &'scope Scope<'scope, 'env>,
    request: &'env Request,
}

/// Runs `work`, which may start threads, and waits for these. When `work` is over, `let_go` makes them end;
/// if `work` has failed, the request has been stopped before that.
pub fn together<'env, T>(
    request: &'env Request,
    let_go: impl FnOnce(),
    work: impl for<'scope> FnOnce(&Crew<'scope, 'env>) -> Result<T, Error>,
) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let ended = contained(|| work(&Crew { scope, request })).flatten();
        if let Err(error) = &ended {
            request.stop(error);
        }
        let_go();
        ended
    })
}

impl<'scope> Crew<'scope, '_> {
    pub fn start(&self, name: &str, work: impl FnOnce() + Send + 'scope) -> Result<(), Error> {
        let request = self.request;
        let charge = request.budget().charge_of(Resource::Threads, 1)?;
        let work = move || {
            let _charge = charge;
            let _guarded = Guarded::thread();
            request.work(work);
        };
        Builder::new().name(name.into()).spawn_scoped(self.scope, work).map(drop).map_err(Error::no_thread)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use farhaul_blocks::BlockPool;

    use super::*;
    use crate::budget::{Budget, ResourceLimits};
    use crate::requests::handle::Handle;
    use crate::shared_state::{SessionAllowance, SessionShared};
    use farhaul_words::Code;

    fn request() -> Arc<Request> {
        let pool = || BlockPool::new(1, 1).unwrap();
        let shared = SessionShared::new(
            true,
            Vec::new(),
            pool(),
            pool(),
            0,
            Handle::new(),
            SessionAllowance::default(),
        );
        Request::new(&shared, shared.add_request(1, Handle::new()))
    }

    /// Runs threads that work until they are told to end; returns the result if `end` is what happens in the
    /// session.
    fn ended_by(end: impl Fn(&Crew<'_, '_>) -> Result<(), Error>) -> Result<(), Error> {
        let (request, over) = (request(), AtomicBool::new(false));
        let until_over = || {
            while !over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        };
        let ended = together(
            &request,
            || over.store(true, Ordering::Relaxed),
            |crew| {
                crew.start("works", until_over)?;
                end(crew)
            },
        );
        assert_eq!(request.is_stopped(), ended.is_err());
        ended
    }

    #[test]
    fn whatever_ends_the_work_ends_its_threads() {
        assert!(ended_by(|_| Ok(())).is_ok());
        assert!(
            matches!(ended_by(|_| Err(Error::interrupted())), Err(error) if error.code() == Code::Interrupted)
        );
        assert!(
            matches!(ended_by(|_| panic!("oh")), Err(error) if error.code() == Code::Bug && error.what().contains("oh"))
        );
    }

    #[test]
    fn a_panic_in_a_thread_fails_the_session() {
        let request = request();
        let wait = |_: &Crew<'_, '_>| {
            while !request.is_stopped() {
                std::thread::yield_now();
            }
            Ok(())
        };
        together(&request, || {}, |crew| crew.start("fails", || panic!("oh")).and_then(|()| wait(crew)))
            .unwrap();
        assert!(
            matches!(request.take_failure(), Some(error) if error.code() == Code::Bug && error.what().contains("oh"))
        );
        assert!(request.session().goodbye().reason.contains("oh"));
    }

    #[test]
    fn a_thread_for_which_there_is_no_room_is_refused_by_its_name() {
        let pool = || BlockPool::new(1, 1).unwrap();
        let budget = Budget::new("this daemon", ResourceLimits { threads: 1, ..ResourceLimits::default() });
        let allowance = SessionAllowance { budget: budget.clone(), ..SessionAllowance::default() };
        let shared = SessionShared::new(true, Vec::new(), pool(), pool(), 0, Handle::new(), allowance);
        let (request, over) =
            (Request::new(&shared, shared.add_request(1, Handle::new())), AtomicBool::new(false));
        let until_over = || {
            while !over.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        };
        let let_go = || over.store(true, Ordering::Relaxed);
        let error = together(&request, let_go, |crew| {
            crew.start("works", until_over)?;
            crew.start("too many", || ())
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("the threads of this daemon are used up (1)"), "{error}");
        assert_eq!(budget.used_of(Resource::Threads), 0, "threads that have ended are given back");
    }
}
