//! The rate of a running transfer, changed through the API: client and daemon in one process, over the loopback interface.

use std::sync::atomic::Ordering;
use std::time::Duration;

use farhaul_copy::{CopyJob, Location, copy};
use farhaul_session::{Handle, NetworkOptions, Policy, RateOptions};

mod server;

use server::Server;

/// So slow that `SIZE` would take more than two hours.
const CRAWL_BPS: u64 = 8_000;
const SIZE: u64 = 8 << 20;

/// Copies at a crawl, changes the rate once something moves, and expects an end.
fn crawl_then(policy: Policy, (from, to): (Location, Location), rate: RateOptions) {
    let options = NetworkOptions { policy, rate_bps: Some(CRAWL_BPS), ..NetworkOptions::default() }.into();
    let job = CopyJob {
        sources: vec![from],
        destination: to,
        names: None,
        spread: Vec::new(),
        options,
        retry: None,
        manifest: None,
        within: None,
        receipt: None,
    };
    let handle = Handle::new();
    let watched = handle.clone();
    let changer = std::thread::spawn(move || {
        while watched.counts().files_total.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        watched.set_rate(rate).unwrap();
    });
    let (report, error) = copy(job, &handle);
    changer.join().unwrap();
    assert!(error.is_none() && report.ok, "{error:?}");
    assert_eq!((report.session.bytes, report.session.transport.as_str()), (SIZE, "udp"));
}

#[test]
fn what_this_end_sends_goes_on_at_the_new_rate() {
    let server = Server::start(farhaul_session::Testing::default());
    let source = Location::Local(format!("random:{SIZE}").into());
    crawl_then(Policy::Fixed, (source, server.at(b"/in")), RateOptions::default());
    assert_eq!(std::fs::metadata(server.folder.path().join("root/in")).unwrap().len(), SIZE);
}

#[test]
fn what_the_far_end_sends_goes_on_at_the_new_rate() {
    let server = Server::start(farhaul_session::Testing::default());
    let target = server.folder.path().join("pulled");
    let source = server.at(format!("random:{SIZE}").as_bytes());
    let rate =
        RateOptions { policy: Policy::High, rate_bps: Some(1_000_000_000), rate_min_bps: Some(1_000_000) };
    crawl_then(Policy::Fair, (source, Location::Local(target.clone())), rate);
    assert_eq!(std::fs::metadata(target).unwrap().len(), SIZE);
}

#[test]
fn a_rate_that_makes_no_sense_changes_nothing() {
    let fixed = RateOptions { policy: Policy::Fixed, ..RateOptions::default() };
    assert!(Handle::new().set_rate(fixed).is_err());
}
