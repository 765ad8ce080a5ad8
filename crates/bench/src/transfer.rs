//! `farhaul bench transfer`: real transfers between this host and another one, with memory or a disk at
//! either end.
//!
//! Always true: nothing is written to a disk at either end unless the user has allowed it; written files lie
//! in a folder made for them, which is removed at the end, at the far end even if this host is gone.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use farhaul::copy::{CopyJob, Location, Report};
use farhaul::errors::Code;
use farhaul::events::Carrier;
use farhaul::options::TransferOptions;
use farhaul::sisters::run_copy;
use farhaul::target::{DaemonTarget, SshTarget};
use farhaul::{Error, Handle};

use crate::far_end::FarEnd;
use crate::findings::{ExpectedRate, FindingRow, Findings, HostFacts, TransferRow};
use crate::folder::BenchFolder;
use crate::messages::{EndpointAnswer, EndpointQuestion};
use crate::{Monitor, bps};

/// Names of the files in the folders.
const SOURCE: &str = "source";
const ARRIVED: &str = "arrived";
/// How soon a time limit or a stop by the user takes effect.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The other host.
#[derive(Debug, Clone)]
pub enum BenchTarget {
    Ssh(SshTarget),
    Daemon(DaemonTarget),
}

impl BenchTarget {
    /// A path there.
    pub fn location(&self, path: Vec<u8>) -> Location {
        match self {
            BenchTarget::Ssh(target) => Location::Ssh { target: target.clone(), path },
            BenchTarget::Daemon(target) => Location::Daemon { target: target.clone(), path },
        }
    }

    /// Its name, as the user has written it.
    pub fn host(&self) -> &str {
        match self {
            BenchTarget::Ssh(target) => &target.host,
            BenchTarget::Daemon(target) => &target.host,
        }
    }
}

/// The direction of the content, seen from this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferDirection {
    Push,
    Pull,
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct TransferConfig {
    pub target: BenchTarget,
    pub direction: TransferDirection,
    /// Whether files may be made, in the directories `here` and `there`.
    pub write: bool,
    pub here: PathBuf,
    pub there: Vec<u8>,
    /// A file at the sending end that is read, instead of one made for this.
    pub from: Option<Vec<u8>>,
    /// The most content of each case.
    pub size: u64,
    /// The longest time of each case.
    pub time: Duration,
    pub options: TransferOptions,
}

/// The source or sink of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContentMedium {
    Memory,
    Disk,
}

impl ContentMedium {
    fn name(self) -> &'static str {
        match self {
            ContentMedium::Memory => "memory",
            ContentMedium::Disk => "disk",
        }
    }
}

/// One of the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransferSide {
    Here,
    There,
}

const CASES: [(ContentMedium, ContentMedium); 4] = [
    (ContentMedium::Memory, ContentMedium::Memory),
    (ContentMedium::Memory, ContentMedium::Disk),
    (ContentMedium::Disk, ContentMedium::Memory),
    (ContentMedium::Disk, ContentMedium::Disk),
];

/// Runs every case that is allowed.
pub fn measure(config: &TransferConfig, watch: &Monitor<'_>, findings: &mut Findings) -> Result<(), Error> {
    if config.size == 0 || config.options.dry_run {
        return Err(Error::new(Code::BadOption, "without content there is nothing to measure"));
    }
    findings.there = Some(HostFacts { name: config.target.host().into(), ..HostFacts::default() });
    watch.begin("connecting")?;
    let mut bench = TransferBench::new(config, watch)?;
    if let Some(far) = &bench.far {
        findings.there = Some(far.facts.clone());
    }
    for (from, to) in CASES {
        match bench.refusal(from, to) {
            Some(why) => findings.skip(format!("{} to {}", from.name(), to.name()), why),
            None => bench.case(from, to, findings)?,
        }
    }
    findings.expected = expected(findings);
    Ok(())
}

/// Copies until everything is done, time is up, or the user stops it.
pub(crate) fn copy_for(job: CopyJob, watch: &Monitor<'_>, time: Option<Duration>) -> (Report, Option<Error>) {
    let (handle, done) = (Handle::new(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut since = None;
            while !done.load(Relaxed) {
                // The time counts from the first byte on, as a connection may wait for a password.
                if handle.counts().bytes_done.load(Relaxed) > 0 {
                    since.get_or_insert_with(Instant::now);
                }
                let is_over = since.zip(time).is_some_and(|(since, time)| since.elapsed() >= time);
                if is_over || watch.stop.load(Relaxed) {
                    handle.cancel();
                }
                std::thread::sleep(LOOK_EVERY);
            }
        });
        let outcome = run_copy(job, &handle);
        done.store(true, Relaxed);
        outcome
    })
}

struct TransferBench<'a> {
    config: &'a TransferConfig,
    watch: &'a Monitor<'a>,
    here: Option<BenchFolder>,
    /// The far end; its folder is removed when this is dropped.
    far: Option<FarEnd<'a>>,
    there: Option<PathBuf>,
    has_source: bool,
}

impl<'a> TransferBench<'a> {
    fn new(config: &'a TransferConfig, watch: &'a Monitor<'a>) -> Result<TransferBench<'a>, Error> {
        let mut bench = TransferBench {
            config,
            watch,
            here: None,
            far: None,
            there: None,
            has_source: config.from.is_some(),
        };
        if config.write {
            // One file at a time arrives, and the one before still exists while the next one takes its name.
            let room = config.size.saturating_mul(2);
            bench.here = Some(BenchFolder::make(&config.here, room)?);
            if let BenchTarget::Ssh(target) = &config.target {
                let mut far = FarEnd::start(target, watch)?;
                let path = config.there.clone();
                match far.ask(&EndpointQuestion::Folder { path, room })? {
                    EndpointAnswer::Folder { path } => bench.there = Some(OsString::from_vec(path).into()),
                    other => return Err(FarEnd::strange(&other)),
                }
                bench.far = Some(far);
            }
        }
        Ok(bench)
    }

    fn sender(&self) -> TransferSide {
        match self.config.direction {
            TransferDirection::Push => TransferSide::Here,
            TransferDirection::Pull => TransferSide::There,
        }
    }

    fn receiver(&self) -> TransferSide {
        match self.config.direction {
            TransferDirection::Push => TransferSide::There,
            TransferDirection::Pull => TransferSide::Here,
        }
    }

    /// Why a case cannot be measured, if it cannot.
    fn refusal(&self, from: ContentMedium, to: ContentMedium) -> Option<&'static str> {
        let needs =
            |medium: ContentMedium, which| medium == ContentMedium::Disk && self.folder(which).is_none();
        let source = from == ContentMedium::Disk && self.config.from.is_none() && needs(from, self.sender());
        if !source && !needs(to, self.receiver()) {
            None
        } else if self.config.write {
            Some("a daemon does not remove what was written; over SSH it can be measured")
        } else if needs(to, self.receiver()) {
            Some("it writes to a disk: allow that with --write")
        } else {
            Some("a file must be written to be read: allow that with --write, or name one with --from")
        }
    }

    fn folder(&self, which: TransferSide) -> Option<PathBuf> {
        match which {
            TransferSide::Here => self.here.as_ref().map(|folder| folder.path().to_path_buf()),
            TransferSide::There => self.there.clone(),
        }
    }

    fn case(&mut self, from: ContentMedium, to: ContentMedium, findings: &mut Findings) -> Result<(), Error> {
        if from == ContentMedium::Disk && !self.has_source {
            self.make_source()?;
        }
        let (sender, receiver) = (self.sender(), self.receiver());
        let source = match (from, &self.config.from) {
            (ContentMedium::Memory, _) => format!("random:{}", self.config.size).into_bytes(),
            (ContentMedium::Disk, Some(file)) => file.clone(),
            (ContentMedium::Disk, None) => self.file(sender, SOURCE),
        };
        let sink = match to {
            ContentMedium::Memory => b"null:".to_vec(),
            ContentMedium::Disk => self.file(receiver, ARRIVED),
        };
        if from == ContentMedium::Disk && self.config.from.is_none() {
            self.settle(sender)?;
        }
        self.watch.begin(&format!("{} to {}", from.name(), to.name()))?;
        let begun = Instant::now();
        let (report, error) =
            self.copy(self.place(sender, source), self.place(receiver, sink), Some(self.config.time));
        let cut = matches!(&error, Some(error) if error.code() == Code::Interrupted)
            && !self.watch.stop.load(Relaxed);
        match error {
            Some(error) if !cut => return Err(error),
            _ => {}
        }
        report.session.warnings.iter().for_each(|warning| findings.warn(warning.clone()));
        if report.session.bytes == 0 {
            findings.skip(format!("{} to {}", from.name(), to.name()), "nothing arrived in time");
        } else {
            findings.rows.push(FindingRow::Transfer(self.row(from, to, &report, cut, begun.elapsed())));
        }
        if to == ContentMedium::Disk {
            self.forget(receiver)?;
        }
        Ok(())
    }

    fn row(
        &self,
        from: ContentMedium,
        to: ContentMedium,
        report: &Report,
        cut: bool,
        wall: Duration,
    ) -> TransferRow {
        // A transfer that was ended early reports no duration.
        let seconds = if report.session.seconds > 0.0 { report.session.seconds } else { wall.as_secs_f64() };
        TransferRow {
            from: from.name().into(),
            to: to.name().into(),
            direction: if self.config.direction == TransferDirection::Push { "to" } else { "from" }.into(),
            bytes: report.session.bytes,
            seconds,
            bps: bps(report.session.bytes, seconds),
            lost: report.session.loss_fraction,
            cpu_seconds_here: report.session.cpu_seconds_local,
            cpu_seconds_there: report.session.cpu_seconds_remote,
            transport: report.session.transport.map_or("", Carrier::name).into(),
            bottleneck: report.session.bottleneck.clone(),
            cut,
        }
    }

    /// Makes a file at the sending end by a transfer of its own. There is no time limit, as half a file would
    /// be useless.
    fn make_source(&mut self) -> Result<(), Error> {
        self.watch.begin("writing the file to be read")?;
        let made = Location::Local(format!("random:{}", self.config.size).into());
        let sender = self.sender();
        let place = self.place(sender, self.file(sender, SOURCE));
        if let Some(error) = self.copy(made, place, None).1 {
            return Err(error);
        }
        self.has_source = true;
        Ok(())
    }

    /// The path of a file in the folder of an end that has one.
    fn file(&self, which: TransferSide, name: &str) -> Vec<u8> {
        self.folder(which).unwrap_or_default().join(name).into_os_string().into_vec()
    }

    fn place(&self, which: TransferSide, path: Vec<u8>) -> Location {
        match which {
            TransferSide::Here => Location::Local(OsString::from_vec(path).into()),
            TransferSide::There => self.config.target.location(path),
        }
    }

    /// Copies until everything is done, time is up, or the user stops it.
    fn copy(&self, from: Location, to: Location, time: Option<Duration>) -> (Report, Option<Error>) {
        let job = CopyJob { options: self.config.options.clone(), ..CopyJob::new([from], to) };
        copy_for(job, self.watch, time)
    }

    fn settle(&mut self, which: TransferSide) -> Result<(), Error> {
        match which {
            TransferSide::Here => self.here.as_ref().map_or(Ok(()), |folder| folder.settle(SOURCE)),
            TransferSide::There => self.tell(&EndpointQuestion::Settle { name: SOURCE.into() }),
        }
    }

    fn forget(&mut self, which: TransferSide) -> Result<(), Error> {
        match which {
            TransferSide::Here => self.here.as_ref().map_or(Ok(()), |folder| folder.forget(ARRIVED)),
            TransferSide::There => self.tell(&EndpointQuestion::Forget { name: ARRIVED.into() }),
        }
    }

    fn tell(&mut self, question: &EndpointQuestion) -> Result<(), Error> {
        match self.far.as_mut().map(|far| far.ask(question)) {
            None | Some(Ok(EndpointAnswer::Done)) => Ok(()),
            Some(Ok(other)) => Err(FarEnd::strange(&other)),
            Some(Err(error)) => Err(error),
        }
    }
}

/// The expected rate: that of the case with the most disks, which is nearest to real use.
fn expected(findings: &Findings) -> Option<ExpectedRate> {
    let rows = findings
        .rows
        .iter()
        .filter_map(|row| if let FindingRow::Transfer(row) = row { Some(row) } else { None });
    let disks = |row: &TransferRow| [&row.from, &row.to].into_iter().filter(|end| *end == "disk").count();
    let row = rows.max_by_key(|row| disks(row))?;
    Some(ExpectedRate {
        bps: row.bps,
        limit: row.bottleneck.clone(),
        of: format!("a transfer from {} to {}, as measured", row.from, row.to),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(write: bool) -> TransferConfig {
        TransferConfig {
            target: BenchTarget::Daemon(DaemonTarget {
                host: "dtn".into(),
                port: 1,
                identity_file: None,
                known_hosts_file: None,
                fingerprint: None,
                accept_new: false,
                ..DaemonTarget::default()
            }),
            direction: TransferDirection::Push,
            write,
            here: std::env::temp_dir(),
            there: Vec::new(),
            from: None,
            size: 1 << 20,
            time: Duration::from_secs(10),
            options: TransferOptions::default(),
        }
    }

    fn possible(config: &TransferConfig) -> Vec<bool> {
        let watch = Monitor { stop: &AtomicBool::new(false), tell: &|_| {} };
        let bench = TransferBench::new(config, &watch).unwrap();
        CASES.into_iter().map(|(from, to)| bench.refusal(from, to).is_none()).collect()
    }

    #[test]
    fn no_disk_is_written_unless_it_is_allowed_and_can_be_undone() {
        assert_eq!(possible(&config(false)), [true, false, false, false]);
        let named = TransferConfig { from: Some(b"file".to_vec()), ..config(false) };
        assert_eq!(possible(&named), [true, false, true, false]);
        // A file that is written at a daemon would stay there.
        assert_eq!(possible(&config(true)), [true, false, true, false]);
        let pull = TransferConfig { direction: TransferDirection::Pull, ..config(true) };
        assert_eq!(possible(&pull), [true, true, false, false]);
    }

    #[test]
    fn the_case_with_most_disks_is_expected() {
        let row = |from: &str, to: &str, bps| {
            FindingRow::Transfer(TransferRow {
                from: from.into(),
                to: to.into(),
                direction: "to".into(),
                bytes: 1,
                seconds: 1.0,
                bps,
                lost: 0.0,
                cpu_seconds_here: 0.0,
                cpu_seconds_there: 0.0,
                transport: "udp".into(),
                bottleneck: "sender network".into(),
                cut: false,
            })
        };
        let mut findings = Findings::new("transfer");
        assert_eq!(expected(&findings), None);
        findings.rows =
            vec![row("memory", "memory", 9.0), row("disk", "disk", 5.0), row("disk", "memory", 7.0)];
        assert_eq!(expected(&findings).unwrap().bps, 5.0);
    }
}
