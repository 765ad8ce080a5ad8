//! What a client does for a copy between two daemons: it asks one for a grant, and lets the other one use it.
//!
//! Always true: no content comes here; as the key of the other daemon, each daemon is told the one that the
//! other has proved to this client itself.

use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use farhaul_connect::{DaemonTarget, GRANT_SECS, GrantWish};
use farhaul_copy::{BetweenJob, CopyJob, DrivingDaemon, ManifestCopy, REPORT_SCHEMA, Report};
use farhaul_session::handle::Handle;
use farhaul_session::panic_guard::contained;
use farhaul_text::printable;
use farhaul_words::{Code, Error, Event};

use super::commission::{ADDRESSES_MAX, Commission, RemoteDaemon};
use super::control::ControlSession;

/// Runs a job whose source and destination are at daemons, to its end. The report is filled as far as the
/// copy went, even if there is an error.
pub fn copy(job: CopyJob, handle: &Handle) -> (Report, Option<Error>) {
    handle.begin();
    let (report, error) = contained(|| run(job, handle)).flatten().unwrap_or_else(|error| {
        let report = Report { schema: REPORT_SCHEMA, ..Report::default() };
        (report, Some(error))
    });
    let report = report.ended_by(error.as_ref());
    // The last snapshot of the daemon may be older.
    handle.counts().failed.store(report.failed_count, Relaxed);
    handle.counts().vanished.store(report.vanished_count, Relaxed);
    handle.end_with(report.exit_code(error.as_ref()), error.as_ref());
    (report, error)
}

fn run(job: CopyJob, handle: &Handle) -> Result<(Report, Option<Error>), Error> {
    let between = BetweenJob::of(job)?;
    let (mut report, mut error) = drive(&between, DrivingDaemon::Source, handle)?;
    if error.as_ref().is_some_and(|error| error.code() == Code::GrantUsed) && !handle.is_cancelled() {
        // The other daemon has accepted the grant, but its answer was lost on the way.
        handle.begin_again();
        (report, error) = drive(&between, DrivingDaemon::Source, handle)?;
    }
    let is_fetched =
        |error: &&Error| is_out_of_reach(error) && !handle.is_cancelled() && between.can_be_fetched();
    let Some(unreached) = error.as_ref().filter(is_fetched) else { return Ok((report, error)) };
    let warning = format!("{}; so {} fetches it", unreached.what(), shown(&between.to));
    handle.tell(Event::warning(&warning));
    handle.begin_again();
    let (mut report, error) = drive(&between, DrivingDaemon::Destination, handle)?;
    report.session.warnings.insert(0, warning);
    Ok((report, error))
}

/// Lets one daemon copy with the other, and writes a manifest here if one is wanted. An error of this
/// function keeps the copy from beginning, or ends what is known of it; an error that ends the copy over
/// there is returned with its report.
fn drive(
    between: &BetweenJob,
    driver: DrivingDaemon,
    handle: &Handle,
) -> Result<(Report, Option<Error>), Error> {
    // Created first, so that a manifest of an earlier copy is not taken for this one's.
    let manifest = between.manifest.as_deref().map(|path| ManifestCopy::create(path, handle));
    let mut manifest = manifest.transpose()?;
    let made = commission(between, driver, manifest.as_mut(), handle);
    let Some(manifest) = manifest else { return made };
    match made {
        Ok((report, error)) => match (error, manifest.finish(&report)) {
            (None, Err(error)) => Ok((Report { ok: false, ..report }, Some(error))),
            (error, _) => Ok((report, error)),
        },
        Err(error) => {
            // A manifest without an end is the lesser problem.
            let _ = manifest.finish(&Report::default().ended_by(Some(&error)));
            Err(error)
        }
    }
}

fn commission(
    between: &BetweenJob,
    driver: DrivingDaemon,
    manifest: Option<&mut ManifestCopy>,
    handle: &Handle,
) -> Result<(Report, Option<Error>), Error> {
    let (near, far) = match driver {
        DrivingDaemon::Source => (&between.from, &between.to),
        DrivingDaemon::Destination => (&between.to, &between.from),
    };
    let (path, request) = (between.errand(driver).path, between.request(driver));
    let mut driving = ControlSession::open(near, request.within.is_some(), handle)?;
    let (key, grant) = grant(between, driver, far, driving.key(), handle)?;
    if key == driving.key() {
        between.check_within_one()?;
    }
    let far = RemoteDaemon {
        host: bare(far).to_string(),
        addresses: addresses(far),
        port: far.port,
        key,
        path,
        grant,
    };
    let commission = Commission { copy: request, far, details: handle.wants_details() };
    let made = driving.copy(&commission, manifest, handle);
    let (report, error) = match made {
        Ok((report, error)) => {
            driving.finish();
            (report, error)
        }
        Err(error) => return Err(if handle.is_cancelled() { Error::interrupted() } else { error }),
    };
    let error = error.map(|error| match handle.is_cancelled() && error.code() == Code::PeerInterrupted {
        true => Error::interrupted(),
        false => error.about(&shown(near)),
    });
    Ok((report, error))
}

/// Asks a daemon for a grant for `key`; returns that daemon's own key and the token to show there.
fn grant(
    between: &BetweenJob,
    driver: DrivingDaemon,
    at: &DaemonTarget,
    key: &str,
    handle: &Handle,
) -> Result<(String, farhaul_connect::hello::HelloSecret), Error> {
    let errand = between.errand(driver);
    let mut control = ControlSession::open(at, errand.within.is_some(), handle)?;
    let lifetime = Duration::from_secs(GRANT_SECS);
    let wish = GrantWish { key: key.to_string(), errand, lifetime };
    let granted = control.grant(wish, || handle.is_cancelled());
    let granted = granted.map_err(|error| match error.code() {
        Code::Interrupted => error,
        _ => error.about(&shown(at)),
    })?;
    let own = control.key().to_string();
    control.finish();
    Ok((own, granted.token))
}

/// Whether the copy may work if the other daemon connects.
fn is_out_of_reach(error: &Error) -> bool {
    matches!(
        error.code(),
        Code::NotListening | Code::Unreachable | Code::UdpBlocked | Code::HostUnknown | Code::NameServerAway
    )
}

fn bare(target: &DaemonTarget) -> &str {
    target.host.trim_start_matches('[').trim_end_matches(']')
}

fn shown(target: &DaemonTarget) -> String {
    printable(target.host.as_bytes(), 255)
}

/// The addresses that this host finds for a daemon; the other daemon may not know the name.
fn addresses(target: &DaemonTarget) -> Vec<IpAddr> {
    let found = (bare(target), target.port).to_socket_addrs();
    let mut addresses: Vec<IpAddr> =
        found.into_iter().flatten().map(|address| address.ip().to_canonical()).collect();
    addresses.dedup();
    addresses.truncate(ADDRESSES_MAX);
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_another_way_may_mend_is_tried_the_other_way() {
        let is = |code| is_out_of_reach(&Error::new(code, "x"));
        assert!(is(Code::NotListening) && is(Code::Unreachable) && is(Code::HostUnknown));
        assert!(
            !is(Code::HostKeyWrong) && !is(Code::GrantUsed) && !is(Code::PeerSilent) && !is(Code::NoSpace)
        );
    }

    #[test]
    fn an_address_is_taken_as_it_is_written() {
        let target = |host: &str| DaemonTarget { host: host.into(), ..DaemonTarget::default() };
        assert_eq!(addresses(&target("192.0.2.7")), ["192.0.2.7".parse::<IpAddr>().unwrap()]);
        assert_eq!(addresses(&target("[2001:db8::7]")), ["2001:db8::7".parse::<IpAddr>().unwrap()]);
        assert_eq!(bare(&target("[2001:db8::7]")), "2001:db8::7");
    }
}
