//! The findings of a measurement: the `--json` object, published in docs/guide/bench.md, from which the table
//! is made as well.

use farhaul::errors::ErrorDetail;
use serde::{Deserialize, Serialize};

/// The version of the object's shape; raised when a field changes its meaning or is removed.
pub const FINDINGS_SCHEMA: u32 = 1;

/// All findings of one `farhaul bench`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Findings {
    pub schema: u32,
    pub ok: bool,
    /// Why it ended early, if it did; the rows were measured before.
    pub error: Option<String>,
    pub error_detail: Option<ErrorDetail>,
    /// "cpu", "disk", "link", "transfer" or "read".
    pub bench: String,
    pub here: HostFacts,
    /// The other host of a link or transfer, as far as it has described itself.
    pub there: Option<HostFacts>,
    pub rows: Vec<FindingRow>,
    /// `None` if too little was measured.
    pub expected: Option<ExpectedRate>,
    /// What was not measured, and why.
    pub skipped: Vec<SkippedStage>,
    pub warnings: Vec<String>,
}

impl Findings {
    pub fn new(bench: &str) -> Findings {
        Findings {
            schema: FINDINGS_SCHEMA,
            bench: bench.into(),
            here: HostFacts::of_this_host(),
            ..Findings::default()
        }
    }

    pub(crate) fn skip(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.skipped.push(SkippedStage { what: what.into(), why: why.into() });
    }

    pub(crate) fn warn(&mut self, text: String) {
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }
}

/// The facts of a host on which the figures depend.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// The name that the user has given it; empty for this host.
    pub name: String,
    /// The version of farhaul.
    pub version: String,
    /// The number of cores that this process may use.
    pub cores: usize,
    /// The processor's name; empty if the system does not say.
    pub processor: String,
    pub kernel: String,
}

impl HostFacts {
    pub(crate) fn of_this_host() -> HostFacts {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        HostFacts {
            name: String::new(),
            version: env!("CARGO_PKG_VERSION").into(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: processor(&text),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        }
    }
}

fn processor(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_string()).unwrap_or_default()
}

/// The rate that the rows lead to, and the stage that limits it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExpectedRate {
    /// Content bits a second.
    pub bps: f64,
    /// What will limit it.
    pub limit: String,
    /// What the figure is for, in words.
    pub of: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SkippedStage {
    pub what: String,
    pub why: String,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum FindingRow {
    Cipher(CipherRow),
    Digest(DigestRow),
    Copy(CopyRow),
    Disk(DiskRow),
    Link(LinkRow),
    Transfer(TransferRow),
    Read(ReadRow),
}

/// Sealing and opening as a flow does it, on one core.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CipherRow {
    pub cipher: String,
    /// The payload bytes of a datagram.
    pub segment_bytes: usize,
    /// Payload bits per second of processor time.
    pub seal_bps: f64,
    pub open_bps: f64,
    /// The processor time of one datagram.
    pub seal_ns: f64,
    pub open_ns: f64,
}

/// The volume's BLAKE3 on one core.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DigestRow {
    pub segment_bytes: usize,
    pub bps: f64,
}

/// A copy from memory to memory on one core.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CopyRow {
    /// "plain" or "non-temporal" (past the cache).
    pub how: String,
    pub segment_bytes: usize,
    /// The bytes that are copied before the same ones are copied again.
    pub working_set_bytes: u64,
    pub bps: f64,
}

/// One way of reading or writing a file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskRow {
    /// "read" or "write".
    pub operation: String,
    /// "direct" or "buffered".
    pub way: String,
    pub block_bytes: usize,
    /// The number of threads, each with one block under way.
    pub depth: usize,
    pub bytes: u64,
    /// Includes the sync of a buffered write.
    pub seconds: f64,
    pub bps: f64,
    /// The mean time of one block.
    pub block_ms: f64,
    /// The number of busy cores.
    pub cpu: f64,
}

/// Datagrams of one size in one direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkRow {
    /// "to" or "from" the host.
    pub direction: String,
    /// The bytes of the IP packet, headers included.
    pub packet_bytes: usize,
    /// The UDP payload of that packet.
    pub datagram_bytes: usize,
    /// `None` if the datagrams are not sealed.
    pub cipher: Option<String>,
    pub flows: usize,
    pub seconds: f64,
    /// The UDP payload bits a second that arrived (and opened, if sealed).
    pub bps: f64,
    /// The share of datagrams that were lost, 0 to 1.
    pub lost: f64,
    /// The number of busy cores at each end, with the kernel's work as far as it is charged to our threads.
    pub sender_cpu: f64,
    pub receiver_cpu: f64,
    /// Bits per second of processor time.
    pub sender_bps_per_core: f64,
    pub receiver_bps_per_core: f64,
    /// What limited the rate, in words: "sender's core", "receiver's core", "--rate", "window" or "path".
    pub limit: String,
}

/// Random reads of a far file.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ReadRow {
    pub bytes_each: u64,
    /// The number of reads under way at a time; `vector` is the number in one request.
    pub at_once: u64,
    pub vector: u64,
    pub reads: u64,
    pub bytes: u64,
    pub seconds: f64,
    pub bps: f64,
    /// From the request to the last byte of the answer.
    pub median_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// The bytes that arrived in each second.
    pub bytes_by_second: Vec<u64>,
    /// The rate of a reader in the same session meanwhile.
    pub beside_bps: Option<f64>,
}

/// One transfer, as `farhaul cp` runs it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TransferRow {
    /// "memory" or "disk".
    pub from: String,
    pub to: String,
    /// "to" or "from" the host.
    pub direction: String,
    pub bytes: u64,
    pub seconds: f64,
    pub bps: f64,
    pub lost: f64,
    pub cpu_seconds_here: f64,
    pub cpu_seconds_there: f64,
    /// "udp", "tcp" or "ssh".
    pub transport: String,
    /// The busiest stage, in words.
    pub bottleneck: String,
    /// Whether the time limit ended it before all bytes had arrived.
    pub cut: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_it_is() {
        let row = FindingRow::Digest(DigestRow { segment_bytes: 1 << 20, bps: 8.0 });
        let text = serde_json::to_string(&row).unwrap();
        assert_eq!(text, r#"{"what":"digest","segment_bytes":1048576,"bps":8.0}"#);
    }

    #[test]
    fn the_processor_is_named_where_the_system_names_it() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: AMD EPYC\nflags: x\n"), "AMD EPYC");
        assert_eq!(processor("CPU implementer: 0x41\n"), "");
    }
}
