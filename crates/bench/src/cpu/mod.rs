//! `farhaul bench cpu`: how fast one core handles the content of a transfer: cipher, digest, copy.
//!
//! Always true: a rate is per processor time of the thread, so that other work on the host changes it little;
//! the content comes from blocks, as in a transfer, and stays in the cache, except for the copies.

mod cipher;
mod copy;

use std::time::Duration;

use farhaul::Error;
use farhaul::options::Cipher;
use farhaul::sisters::disk_threads;
use farhaul_blocks::BlockPool;
use farhaul_volume::{CHUNK, chunk_cv};

use crate::findings::{CipherRow, DigestRow, ExpectedRate, FindingRow, Findings};
use crate::stopwatch::Stopwatch;
use crate::{Monitor, bps};

/// Payload lengths of datagrams: the first ones of a path, those of 1500-byte packets, those of 9000-byte
/// packets.
pub const SEGMENTS: [usize; 3] = [1158, 1430, 8934];
const CIPHERS: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305];
/// The lengths to digest: a small file and a chunk.
const DIGEST_LENGTHS: [usize; 2] = [64 << 10, CHUNK as usize];

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub struct CpuConfig {
    /// The time of each measurement.
    pub time: Duration,
}

impl Default for CpuConfig {
    fn default() -> CpuConfig {
        CpuConfig { time: Duration::from_millis(300) }
    }
}

/// Measures everything that one core does.
pub fn measure(config: &CpuConfig, monitor: &Monitor<'_>, findings: &mut Findings) -> Result<(), Error> {
    let seconds = config.time.as_secs_f64();
    let pool =
        BlockPool::new(2, CHUNK as usize).map_err(|source| Error::of_host("no memory for blocks", source))?;
    let mut block = pool.take();
    // A cipher is as fast with zeros, but then readers of the figures would have to know that.
    fill(&mut block);
    for cipher in CIPHERS {
        for segment_bytes in SEGMENTS {
            monitor.begin(&format!("{}, {segment_bytes} bytes", cipher.name()))?;
            findings.rows.push(FindingRow::Cipher(cipher::measure(cipher, segment_bytes, &block, seconds)));
        }
    }
    for segment_bytes in DIGEST_LENGTHS {
        monitor.begin(&format!("blake3, {segment_bytes} bytes"))?;
        let bps = rate(seconds, segment_bytes, || {
            std::hint::black_box(chunk_cv(std::hint::black_box(&block[..segment_bytes])));
        });
        findings.rows.push(FindingRow::Digest(DigestRow { segment_bytes, bps }));
    }
    monitor.begin("memory copy")?;
    copy::measure(seconds, findings)?;
    findings.expected = expected(findings);
    Ok(())
}

/// Bits per second of processor time of something that handles `bytes` bytes.
fn rate(seconds: f64, bytes: usize, mut work: impl FnMut()) -> f64 {
    // The first call touches code and memory for the first time.
    work();
    let stopwatch = Stopwatch::start();
    let mut count = 0;
    while stopwatch.wall() < seconds || count == 0 {
        work();
        count += 1;
    }
    bps(count * bytes as u64, stopwatch.cpu())
}

/// Fills the slice with bytes that have no pattern.
fn fill(bytes: &mut [u8]) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for word in bytes.chunks_mut(8) {
        // xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
}

/// The expected rate of one flow with the default cipher in 1500-byte packets. The flow's thread seals or
/// opens, readers or writers digest beside it, and neither end has more cores than this host.
fn expected(findings: &Findings) -> Option<ExpectedRate> {
    let default = Cipher::default().name();
    let is_default = |row: &&CipherRow| row.cipher == default && row.segment_bytes == SEGMENTS[1];
    let ciphers = findings
        .rows
        .iter()
        .filter_map(|row| if let FindingRow::Cipher(row) = row { Some(row) } else { None });
    let cipher = ciphers.clone().find(is_default)?;
    let digest = findings.rows.iter().find_map(|row| match row {
        FindingRow::Digest(row) if row.segment_bytes as u64 == CHUNK => Some(row.bps),
        _ => None,
    })?;
    let (bps, limit) = limit(cipher, digest, findings.here.cores);
    let of =
        format!("one flow between two such hosts, {default}, 1500-byte packets, without network and disks");
    Some(ExpectedRate { bps, limit, of })
}

fn limit(cipher: &CipherRow, digest: f64, cores: usize) -> (f64, String) {
    let all_cores = |flow: f64| cores as f64 / (1.0 / flow + 1.0 / digest);
    let candidates = [
        (cipher.seal_bps, "cipher: one core seals"),
        (cipher.open_bps, "cipher: one core opens"),
        (digest * disk_threads().min(cores) as f64, "digest"),
        (all_cores(cipher.seal_bps), "all cores of the sender: cipher and digest"),
        (all_cores(cipher.open_bps), "all cores of the receiver: cipher and digest"),
    ];
    let (bps, limit) =
        candidates.into_iter().min_by(|one, other| one.0.total_cmp(&other.0)).expect("the list is not empty");
    (bps, limit.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use farhaul::errors::ExitCode;

    use super::*;

    #[test]
    fn every_row_is_there_with_a_rate() {
        let mut findings = Findings::new("cpu");
        let monitor = Monitor { stop: &AtomicBool::new(false), tell: &|_| {} };
        measure(&CpuConfig { time: Duration::ZERO }, &monitor, &mut findings).unwrap();
        let ciphers = findings.rows.iter().filter(|row| matches!(row, FindingRow::Cipher(_))).count();
        assert_eq!(ciphers, 9);
        assert!(findings.expected.unwrap().bps > 0.0);
        for row in &findings.rows {
            match row {
                FindingRow::Cipher(row) => assert!(row.seal_bps > 0.0 && row.open_bps > 0.0),
                FindingRow::Digest(row) => assert!(row.bps > 0.0),
                FindingRow::Copy(row) => assert!(row.bps > 0.0),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn the_slowest_stage_is_named() {
        let cipher = |seal_bps, open_bps| CipherRow {
            cipher: String::new(),
            segment_bytes: 1430,
            seal_bps,
            open_bps,
            seal_ns: 0.0,
            open_ns: 0.0,
        };
        assert_eq!(limit(&cipher(10.0, 20.0), 100.0, 8).1, "cipher: one core seals");
        assert_eq!(limit(&cipher(20.0, 10.0), 100.0, 8).1, "cipher: one core opens");
        let (bps, text) = limit(&cipher(20.0, 20.0), 20.0, 1);
        assert_eq!((bps, &text[..9]), (10.0, "all cores"));
    }

    #[test]
    fn a_stop_is_obeyed() {
        let mut findings = Findings::new("cpu");
        let monitor = Monitor { stop: &AtomicBool::new(true), tell: &|_| {} };
        assert!(
            matches!(measure(&CpuConfig::default(), &monitor, &mut findings), Err(error) if error.exit_code() == ExitCode::Interrupted)
        );
        assert!(findings.rows.is_empty());
    }
}
