//! Random reads of a remote file, many at a time, as single requests or as vectors.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use farhaul::Error;
use farhaul::copy::Location;
use farhaul::errors::Code;
use farhaul::options::NetworkOptions;
use farhaul::read::{FileRange, RangeQueue, Remote, RemoteFile};

use super::findings::{FindingRow, Findings, ReadRow};
use super::{Monitor, bps};

/// How long, in `beside` mode, the other reader runs alone before anything is measured.
const BESIDE_FIRST: Duration = Duration::from_secs(4);

/// What is measured.
#[derive(Debug, Clone)]
pub struct ReadConfig {
    /// The file.
    pub location: Location,
    pub network: NetworkOptions,
    /// Bytes of each read.
    pub len: u64,
    /// The number of reads under way at a time; `vector` is the number of ranges in one request.
    pub at_once: u64,
    pub vector: u64,
    /// The measurement ends after this many reads, or after `time`.
    pub reads: u64,
    pub time: Duration,
    /// Whether the file is meanwhile also read from beginning to end, again and again, in the same session.
    pub beside: bool,
}

/// Measures, and adds to `findings`.
pub fn measure(config: &ReadConfig, watch: &Monitor<'_>, findings: &mut Findings) -> Result<(), Error> {
    if config.len == 0 || config.at_once == 0 || config.vector == 0 || config.vector > config.at_once {
        return Err(Error::new(Code::BadOption, "--vector must be at least 1 and at most --at-once"));
    }
    watch.begin("connecting")?;
    let remote = Remote::called_by(watch, &config.location, config.network.clone())?;
    let file = remote.file(b"")?;
    if file.size() < config.len {
        return Err(Error::new(Code::BadOption, "the file is smaller than one read"));
    }
    // The first read is not measured, as it warms up the path and the session.
    file.read_at(0, config.len)?;
    watch.begin("reading")?;
    let over = AtomicBool::new(false);
    let beside = AtomicU64::new(0);
    let measured = std::thread::scope(|scope| {
        if config.beside {
            scope.spawn(|| read_all(&file, &over, &beside));
            // It fills the path once its rate has been found.
            std::thread::sleep(BESIDE_FIRST);
            beside.store(0, Relaxed);
        }
        let measured = reads(config, &file, watch);
        over.store(true, Relaxed);
        measured
    });
    let row = measured?;
    let beside_bps = config.beside.then(|| bps(beside.load(Relaxed), row.seconds));
    findings.rows.push(FindingRow::Read(ReadRow { beside_bps, ..row }));
    drop(file);
    remote.finish().map(drop)
}

fn read_all(file: &RemoteFile, over: &AtomicBool, bytes: &AtomicU64) {
    while !over.load(Relaxed) {
        let mut reader = file.reader(FileRange { offset: 0, len: file.size() });
        while let (Ok(Some(chunk)), false) = (reader.next_chunk(), over.load(Relaxed)) {
            bytes.fetch_add(chunk.len() as u64, Relaxed);
        }
    }
}

/// The reads under way, and when each was asked for.
struct ReadsInFlight {
    queue: RangeQueue,
    asked: HashMap<u64, Instant>,
    seed: u64,
    room: u64,
    len: u64,
}

impl ReadsInFlight {
    fn submit(&mut self, count: u64) -> Result<(), Error> {
        let ranges: Vec<_> = (0..count).map(|_| self.random()).collect();
        let now = Instant::now();
        let first = self.queue.submit_all(&ranges)?;
        self.asked.extend((first..first + count).map(|number| (number, now)));
        Ok(())
    }

    fn random(&mut self) -> FileRange {
        // Pseudo-random numbers that are the same in each run (splitmix64).
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        FileRange { offset: (mixed ^ (mixed >> 31)) % self.room, len: self.len }
    }
}

fn reads(config: &ReadConfig, file: &RemoteFile, watch: &Monitor<'_>) -> Result<ReadRow, Error> {
    let (asked, room) = (HashMap::new(), file.size() - config.len + 1);
    let mut flight = ReadsInFlight { queue: file.queue(), asked, seed: 1, room, len: config.len };
    let begin = Instant::now();
    let (mut submitted, mut latencies, mut by_second) = (0, Vec::new(), Vec::new());
    loop {
        let goes_on = begin.elapsed() < config.time && submitted < config.reads;
        while goes_on && flight.queue.pending() + config.vector <= config.at_once && submitted < config.reads
        {
            let count = config.vector.min(config.reads - submitted);
            flight.submit(count)?;
            submitted += count;
        }
        watch.check()?;
        let Some((number, read)) = flight.queue.next() else { break };
        let bytes = read?.len() as u64;
        if let Some(asked) = flight.asked.remove(&number) {
            latencies.push(asked.elapsed());
        }
        let second = begin.elapsed().as_secs() as usize;
        by_second.resize(by_second.len().max(second + 1), 0);
        by_second[second] += bytes;
    }
    let seconds = begin.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |share: f64| {
        let place = (latencies.len() as f64 * share) as usize;
        latencies
            .get(place.min(latencies.len().saturating_sub(1)))
            .map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    let bytes: u64 = by_second.iter().sum();
    Ok(ReadRow {
        bytes_each: config.len,
        at_once: config.at_once,
        vector: config.vector,
        reads: latencies.len() as u64,
        bytes,
        seconds,
        bps: bps(bytes, seconds),
        median_ms: at(0.5),
        p99_ms: at(0.99),
        max_ms: at(1.0),
        bytes_by_second: by_second,
        beside_bps: None,
    })
}
