//! `farhaul bench disk`: how fast a file is read from a disk and written to one, past the page cache and
//! through it.
//!
//! Always true: nothing is written unless the user has allowed it; a written file has no name, so that it
//! vanishes with this process, however that ends. Blocks are those of a transfer: page-aligned, a chunk long,
//! handled by as many threads.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use farhaul::Error;
use farhaul::errors::Code;
use farhaul::sisters::disk_threads;
use farhaul_blocks::BlockPool;
use farhaul_volume::CHUNK;
use rustix::fs::{Advice, FallocateFlags, Mode, OFlags};

use crate::findings::{DiskRow, ExpectedRate, FindingRow, Findings};
use crate::stopwatch::Stopwatch;
use crate::{Monitor, bps};

/// A block smaller than a chunk, to show what a chunk gains.
const SMALL_BLOCK: usize = 128 << 10;
/// The granularity of direct reads and writes that every usual disk accepts.
const ALIGN: u64 = 4096;

/// What to measure.
#[derive(Debug, Clone)]
pub struct DiskConfig {
    /// A file to read, or a directory in which to make a file.
    pub path: PathBuf,
    /// Whether a file may be made.
    pub write: bool,
    /// The most bytes of each measurement.
    pub size: u64,
    /// The longest time of each measurement (the sync of a buffered write is added).
    pub time: Duration,
}

/// Reads, and writes if that is allowed, in every way that a transfer might.
pub fn measure(config: &DiskConfig, watch: &Monitor<'_>, findings: &mut Findings) -> Result<(), Error> {
    let size = config.size / ALIGN * ALIGN;
    if size == 0 {
        return Err(Error::new(Code::BadOption, "--size must be 4K at least"));
    }
    let look = |source| unusable(&config.path, "look at", &source);
    let meta = std::fs::metadata(&config.path).map_err(look)?;
    let file = match (meta.is_dir(), meta.is_file(), config.write) {
        (true, _, true) => write_all(config, size, watch, findings)?,
        (false, true, false) => MeasuredFile::existing(&config.path, &meta, size)?,
        (true, _, false) => {
            return Err(Error::new(
                Code::BadOption,
                format!(
                    "{}: a directory can be measured only by writing a file; allow that with --write, or name a file to read",
                    config.path.display()
                ),
            ));
        }
        (_, true, true) => {
            return Err(Error::new(
                Code::BadOption,
                format!(
                    "{}: a file is never written to; name a directory with --write",
                    config.path.display()
                ),
            ));
        }
        (_, _, _) => {
            return Err(Error::new(
                Code::BadOption,
                format!("{}: neither a file nor a directory", config.path.display()),
            ));
        }
    };
    read_all(&file, config, watch, findings)?;
    findings.expected = expected(findings);
    Ok(())
}

/// A file to be read, and its path for messages.
struct MeasuredFile {
    file: File,
    path: PathBuf,
    size: u64,
}

impl MeasuredFile {
    fn existing(path: &Path, meta: &Metadata, size: u64) -> Result<MeasuredFile, Error> {
        let size = meta.len().min(size) / ALIGN * ALIGN;
        if size == 0 {
            return Err(Error::new(
                Code::BadOption,
                format!("{}: too short to measure; name a larger file", path.display()),
            ));
        }
        let file = File::open(path).map_err(|source| unusable(path, "open", &source))?;
        Ok(MeasuredFile { file, path: path.into(), size })
    }

    /// A second descriptor that bypasses the page cache; `None` if the file system does not support that.
    fn direct(&self, access: OFlags) -> Option<File> {
        let name = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let opened = rustix::fs::open(name, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty());
        opened.ok().map(File::from)
    }

    /// Drops the file's pages from the cache, as far as the kernel follows the advice.
    fn chill(&self) {
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
    }
}

/// The length of blocks, and how many of them are under way at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IoShape {
    block: usize,
    depth: usize,
}

/// The shapes to measure: smaller ones first, then the one that a transfer uses, which shows its gain.
fn shapes() -> Vec<IoShape> {
    let chunk = CHUNK as usize;
    let mut shapes = vec![
        IoShape { block: SMALL_BLOCK, depth: 1 },
        IoShape { block: chunk, depth: 1 },
        IoShape { block: chunk, depth: disk_threads() },
    ];
    shapes.dedup();
    shapes
}

fn write_all(
    config: &DiskConfig,
    size: u64,
    watch: &Monitor<'_>,
    findings: &mut Findings,
) -> Result<MeasuredFile, Error> {
    let mut last = None;
    for way in [IoMethod::Direct, IoMethod::Buffered] {
        for shape in shapes().into_iter().filter(|shape| shape.block as u64 == CHUNK) {
            // A fresh file for each measurement, since overwriting existing blocks is another thing. The file
            // before is dropped first, so that there is never a need for two.
            drop(last.take());
            let made = make_file(&config.path, size)?;
            watch.begin(&format!("{} write, depth {}", way.name(), shape.depth))?;
            let row = write(&made, way, shape, config.time, watch)?;
            match row {
                Some(row) => {
                    // The part that was not written in time is a hole, which would be read without the disk.
                    let size = row.bytes;
                    findings.rows.push(FindingRow::Disk(row));
                    last = Some(MeasuredFile { size, ..made });
                }
                None => {
                    findings.skip("direct write", "the file system does not support it");
                    last = Some(made);
                    break;
                }
            }
        }
    }
    last.ok_or_else(|| Error::new(Code::BadOption, "nothing was written"))
}

fn read_all(
    subject: &MeasuredFile,
    config: &DiskConfig,
    watch: &Monitor<'_>,
    findings: &mut Findings,
) -> Result<(), Error> {
    for way in [IoMethod::Direct, IoMethod::Buffered] {
        for shape in shapes() {
            watch.begin(&format!("{} read, {} bytes, depth {}", way.name(), shape.block, shape.depth))?;
            subject.chill();
            match read(subject, way, shape, config.time, watch)? {
                Some(row) => findings.rows.push(FindingRow::Disk(row)),
                None => {
                    findings.skip("direct read", "the file system does not support it");
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Makes a file without a name, with its space reserved as a transfer reserves it.
fn make_file(folder: &Path, size: u64) -> Result<MeasuredFile, Error> {
    let file = tempfile::tempfile_in(folder).map_err(|source| unusable(folder, "make a file in", &source))?;
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size) {
        Ok(()) => {}
        Err(error @ (rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT | rustix::io::Errno::FBIG)) => {
            return Err(unusable(folder, "reserve room in", &error.into()));
        }
        // A file system that cannot reserve space is measured without it, but direct reads need the length.
        Err(_) => file.set_len(size).map_err(|source| unusable(folder, "write to", &source))?,
    }
    Ok(MeasuredFile { file, path: folder.into(), size })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IoMethod {
    Direct,
    Buffered,
}

impl IoMethod {
    fn name(self) -> &'static str {
        match self {
            IoMethod::Direct => "direct",
            IoMethod::Buffered => "buffered",
        }
    }
}

/// Returns `None` if direct access is not possible.
fn write(
    subject: &MeasuredFile,
    way: IoMethod,
    shape: IoShape,
    time: Duration,
    watch: &Monitor<'_>,
) -> Result<Option<DiskRow>, Error> {
    let direct = if way == IoMethod::Direct { subject.direct(OFlags::RDWR) } else { None };
    let file = match (way, &direct) {
        (IoMethod::Direct, None) => return Ok(None),
        (IoMethod::Direct, Some(direct)) => direct,
        (IoMethod::Buffered, _) => &subject.file,
    };
    // The kernel allows one buffered write into a file at a time, and a transfer does not try more.
    let turn = Mutex::new(());
    let begun = Stopwatch::start();
    let done = blocks(subject, shape, time, watch, |block, offset| {
        let _turn = (way == IoMethod::Buffered).then(|| turn.lock());
        file.write_all_at(block, offset)
    });
    let mut done = match done {
        Err(StopCause::Io(error)) if way == IoMethod::Direct && is_refusal(&error) => return Ok(None),
        Err(StopCause::Io(error)) => return Err(unusable(&subject.path, "write to", &error)),
        Err(StopCause::User) => return Err(Error::interrupted()),
        Ok(done) => done,
    };
    let sync = Stopwatch::start();
    file.sync_data().map_err(|source| unusable(&subject.path, "sync", &source))?;
    done.seconds = begun.wall();
    done.cpu += sync.cpu();
    Ok(Some(done.row("write", way, shape)))
}

/// Returns `None` if direct access is not possible.
fn read(
    subject: &MeasuredFile,
    way: IoMethod,
    shape: IoShape,
    time: Duration,
    watch: &Monitor<'_>,
) -> Result<Option<DiskRow>, Error> {
    let direct = if way == IoMethod::Direct { subject.direct(OFlags::RDONLY) } else { None };
    let file = match (way, &direct) {
        (IoMethod::Direct, None) => return Ok(None),
        (IoMethod::Direct, Some(direct)) => direct,
        (IoMethod::Buffered, _) => {
            // The same advice as a transfer gives. Failures do not matter.
            let _ = rustix::fs::fadvise(&subject.file, 0, None, Advice::Sequential);
            &subject.file
        }
    };
    let done = blocks(subject, shape, time, watch, |block, offset| file.read_exact_at(block, offset));
    match done {
        Ok(done) => Ok(Some(done.row("read", way, shape))),
        Err(StopCause::Io(error)) if way == IoMethod::Direct && is_refusal(&error) => Ok(None),
        Err(StopCause::Io(error)) => Err(unusable(&subject.path, "read", &error)),
        Err(StopCause::User) => Err(Error::interrupted()),
    }
}

/// The result of a pass over a file.
#[derive(Debug, Default)]
struct PassResult {
    blocks: u64,
    bytes: u64,
    seconds: f64,
    cpu: f64,
    /// The time that all threads spent on blocks.
    busy: f64,
}

impl PassResult {
    fn row(&self, operation: &str, way: IoMethod, shape: IoShape) -> DiskRow {
        DiskRow {
            operation: operation.into(),
            way: way.name().into(),
            block_bytes: shape.block,
            depth: shape.depth,
            bytes: self.bytes,
            seconds: self.seconds,
            bps: bps(self.bytes, self.seconds),
            block_ms: self.busy * 1e3 / self.blocks.max(1) as f64,
            cpu: self.cpu / self.seconds.max(1e-9),
        }
    }
}

enum StopCause {
    Io(io::Error),
    User,
}

/// Handles all blocks of the file once, in the order of their offsets, with `depth` threads that each handle
/// one at a time.
fn blocks(
    subject: &MeasuredFile,
    shape: IoShape,
    time: Duration,
    watch: &Monitor<'_>,
    handle: impl Fn(&mut [u8], u64) -> io::Result<()> + Sync,
) -> Result<PassResult, StopCause> {
    let pool = BlockPool::new(shape.depth, shape.block).map_err(StopCause::Io)?;
    let (next, begun) = (AtomicU64::new(0), Stopwatch::start());
    let stop = watch.stop;
    let thread = || -> io::Result<PassResult> {
        let own = Stopwatch::start();
        let (mut block, mut pass) = (pool.take(), PassResult::default());
        // Zeros might be stored as a hole.
        block.fill(0xa5);
        while begun.wall() < time.as_secs_f64() && !stop.load(Relaxed) {
            let offset = next.fetch_add(shape.block as u64, Relaxed);
            if offset >= subject.size {
                break;
            }
            let len = (subject.size - offset).min(shape.block as u64) as usize;
            let one = Stopwatch::start();
            handle(&mut block[..len], offset)?;
            pass.busy += one.wall();
            pass.blocks += 1;
            pass.bytes += len as u64;
        }
        pass.cpu = own.cpu();
        Ok(pass)
    };
    let passes: Vec<io::Result<PassResult>> = std::thread::scope(|scope| {
        let start = |_| std::thread::Builder::new().name("disk".into()).spawn_scoped(scope, thread);
        // If a thread cannot be started, the others end when their time is over.
        let threads: Vec<_> = (0..shape.depth).map(start).collect();
        let panicked = |_| Err(io::Error::other("a reader or writer panicked"));
        threads.into_iter().map(|thread| thread?.join().unwrap_or_else(panicked)).collect()
    });
    let mut all = PassResult { seconds: begun.wall(), ..PassResult::default() };
    for pass in passes {
        let pass = pass.map_err(StopCause::Io)?;
        all.blocks += pass.blocks;
        all.bytes += pass.bytes;
        all.cpu += pass.cpu;
        all.busy += pass.busy;
    }
    if stop.load(Relaxed) { Err(StopCause::User) } else { Ok(all) }
}

/// Whether the error says that this file cannot be read or written past the cache.
fn is_refusal(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(code, Some(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOTTY))
}

fn unusable(path: &Path, what: &str, error: &io::Error) -> Error {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Some("free space, or give a smaller --size")
        }
        _ => None,
    };
    let why = farhaul::sisters::plain(error);
    Error::new(Code::of_files(error), format!("cannot {what} {}: {why}", path.display())).with_hint_if(hint)
}

/// The expected rate: a transfer uses the faster of the two ways, with all its threads.
fn expected(findings: &Findings) -> Option<ExpectedRate> {
    let rows =
        findings.rows.iter().filter_map(|row| if let FindingRow::Disk(row) = row { Some(row) } else { None });
    let fastest = |operation: &str| {
        let rows = rows.clone().filter(|row| row.operation == operation);
        rows.filter(|row| row.block_bytes as u64 == CHUNK && row.depth == disk_threads())
            .max_by(|one, other| one.bps.total_cmp(&other.bps))
    };
    let (read, write) = (fastest("read")?, fastest("write"));
    let slower = write.filter(|write| write.bps < read.bps).unwrap_or(read);
    let threads = disk_threads();
    Some(ExpectedRate {
        bps: slower.bps,
        limit: format!("disk: {} {}", slower.way, slower.operation),
        of: match write {
            Some(_) => format!("a file from such a disk to such a disk, {threads} threads at either end"),
            None => format!("a file that leaves this disk, {threads} threads"),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn run(path: &Path, write: bool) -> (Findings, Result<(), Error>) {
        let config = DiskConfig { path: path.into(), write, size: 3 << 20, time: Duration::from_secs(60) };
        let mut findings = Findings::new("disk");
        let watch = Monitor { stop: &AtomicBool::new(false), tell: &|_| {} };
        let outcome = measure(&config, &watch, &mut findings);
        (findings, outcome)
    }

    #[test]
    fn a_directory_is_written_and_read_and_left_empty() {
        let temp = tempfile::tempdir().unwrap();
        let (findings, outcome) = run(temp.path(), true);
        outcome.unwrap();
        let count = |operation| {
            let is = |row: &&FindingRow| matches!(row, FindingRow::Disk(row) if row.operation == operation && row.bytes == 3 << 20);
            findings.rows.iter().filter(is).count()
        };
        assert!(count("write") >= 1 && count("read") >= 2, "{findings:?}");
        assert!(findings.expected.unwrap().bps > 0.0);
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_is_only_read() {
        let temp = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(temp.path(), vec![7; 1_500_000]).unwrap();
        let (findings, outcome) = run(temp.path(), false);
        outcome.unwrap();
        assert!(
            findings.rows.iter().all(|row| matches!(row, FindingRow::Disk(row) if row.operation == "read"))
        );
        assert_eq!(std::fs::read(temp.path()).unwrap(), vec![7; 1_500_000]);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let short = temp.path().join("short");
        std::fs::write(&short, "x").unwrap();
        for (path, write, code) in [
            (temp.path(), false, 2),
            (&short, true, 2),
            (&short, false, 2),
            (Path::new("/dev/null"), false, 2),
            (Path::new("/no/such/file"), false, 6),
        ] {
            let error = run(path, write).1.unwrap_err();
            assert_eq!(error.exit_code() as u8, code, "{}: {error}", path.display());
        }
    }

    #[test]
    fn a_stop_in_the_middle_is_obeyed() {
        let temp = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let tell = |what: &str| stop.store(what.contains("read"), Relaxed);
        let config = DiskConfig {
            path: temp.path().into(),
            write: true,
            size: 3 << 20,
            time: Duration::from_secs(60),
        };
        let mut findings = Findings::new("disk");
        let outcome = measure(&config, &Monitor { stop: &stop, tell: &tell }, &mut findings);
        assert!(matches!(outcome, Err(error) if error.code() == Code::Interrupted));
        assert!(!findings.rows.is_empty());
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
    }
}
