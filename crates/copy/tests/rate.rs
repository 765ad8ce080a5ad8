//! Changes the rate of a running transfer through the API: client and daemon run in one process, over the
//! loopback interface.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farhaul_copy::{CopyJob, Location, copy};
use farhaul_session::rate_cap::{CapMembership, RateCap};
use farhaul_session::{Budget, Handle, NetworkOptions, RateOptions, SessionLimits};
use farhaul_words::{Carrier, Policy};

mod server;

use server::Server;

/// So slow that `SIZE` would take more than two hours.
const CRAWL_BPS: u64 = 8_000;
const SIZE: u64 = 8 << 20;

/// Copies at a crawl, changes the rate once something moves, and expects an end.
fn crawl_then(policy: Policy, (from, to): (Location, Location), rate: RateOptions) {
    let network = NetworkOptions { policy, rate_bps: Some(CRAWL_BPS), ..NetworkOptions::default() };
    copy_then(network, SessionLimits::default(), (from, to), move |handle| handle.set_rate(rate).unwrap());
}

/// Copies, does something once it has begun, and expects an end.
fn copy_then(
    network: NetworkOptions,
    within: SessionLimits,
    (from, to): (Location, Location),
    then: impl FnOnce(&Handle) + Send + 'static,
) {
    let options = network.into();
    let job = CopyJob { options, means: within, ..CopyJob::new([from], to) };
    let handle = Handle::new();
    let watched = handle.clone();
    let changer = std::thread::spawn(move || {
        while watched.counts().files_total.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        then(&watched);
    });
    let (report, error) = copy(job, &handle);
    changer.join().unwrap();
    assert!(error.is_none() && report.ok, "{error:?}");
    assert_eq!((report.session.bytes, report.session.transport), (SIZE, Some(Carrier::Udp)));
}

#[test]
fn what_this_end_sends_goes_on_at_the_new_rate() {
    let server = Server::start(farhaul_session::TestHooks::default());
    let source = Location::Local(format!("random:{SIZE}").into());
    crawl_then(Policy::Fixed, (source, server.at(b"/in")), RateOptions::default());
    assert_eq!(std::fs::metadata(server.folder.path().join("root/in")).unwrap().len(), SIZE);
}

#[test]
fn what_the_far_end_sends_goes_on_at_the_new_rate() {
    let server = Server::start(farhaul_session::TestHooks::default());
    let target = server.folder.path().join("pulled");
    let source = server.at(format!("random:{SIZE}").as_bytes());
    let rate =
        RateOptions { policy: Policy::High, rate_bps: Some(1_000_000_000), rate_min_bps: Some(1_000_000) };
    crawl_then(Policy::Fair, (source, Location::Local(target.clone())), rate);
    assert_eq!(std::fs::metadata(target).unwrap().len(), SIZE);
}

/// A cap at which `SIZE` would take more than two hours, and limits within that cap.
fn within_a_crawl() -> (RateCap, SessionLimits) {
    let now = Instant::now();
    let cap = Budget::of_process().rate_cap().beside("campus-uplink", Some(10 * CRAWL_BPS), now);
    let crawl = cap.within("peer", Some(CRAWL_BPS), now);
    let caps = vec![CapMembership { cap: crawl, weight: 2.0 }].into();
    (cap, SessionLimits { caps, budget: Some(Budget::of_process()), weight: 0.5 })
}

/// Whichever end sends, it moves at a crawl until the cap is lifted.
fn capped(ends: (Location, Location)) {
    let (cap, within) = within_a_crawl();
    let (crawl, seen) = (within.caps.get()[0].cap.clone(), cap.clone());
    copy_then(NetworkOptions::default(), within, ends, move |handle| {
        let usage = seen.usage();
        assert_eq!((usage.sessions, usage.most_bps), (1, Some(10 * CRAWL_BPS)));
        // A cap corrects itself: for a while it gives up to a twentieth less or more.
        assert!(usage.given_bps.abs_diff(CRAWL_BPS) <= CRAWL_BPS / 20, "{usage:?}");
        handle.set_weight(3.0);
        crawl.set_most(None, Instant::now());
        seen.set_most(None, Instant::now());
    });
    let usage = cap.usage();
    assert!(usage.sessions == 0 && usage.moved_bytes > 0, "{usage:?}");
}

#[test]
fn what_this_end_sends_is_within_its_caps() {
    let server = Server::start(farhaul_session::TestHooks::default());
    capped((Location::Local(format!("random:{SIZE}").into()), server.at(b"/in")));
}

#[test]
fn what_the_far_end_sends_is_within_the_caps_of_this_one() {
    let server = Server::start(farhaul_session::TestHooks::default());
    let target = server.folder.path().join("pulled");
    capped((server.at(format!("random:{SIZE}").as_bytes()), Location::Local(target)));
}

#[test]
fn a_rate_that_makes_no_sense_changes_nothing() {
    let fixed = RateOptions { policy: Policy::Fixed, ..RateOptions::default() };
    assert!(Handle::new().set_rate(fixed).is_err());
}
