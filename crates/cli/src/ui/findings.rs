//! The findings of a measurement, as a table for people.

use std::mem::discriminant;

use farhaul_bench::{FindingRow, Findings, HostFacts, LinkRow};

use super::{printer, summary, units};

/// Returns the hosts, a table for each kind of rows, what was not measured, and the expected rate.
pub fn table(findings: &Findings) -> String {
    let mut text = format!("{}\n", host("this host", &findings.here));
    if let Some(there) = findings.there.as_ref().filter(|there| there.cores > 0) {
        text += &format!("{}\n", host(&there.name, there));
    }
    // Each kind of rows has its own columns.
    for rows in findings.rows.chunk_by(|one, other| discriminant(one) == discriminant(other)) {
        let heading = heading(&rows[0]).iter().map(ToString::to_string).collect();
        let lines: Vec<Line> = std::iter::once(heading).chain(rows.iter().map(line)).collect();
        text += "
";
        text += &aligned(&lines);
    }
    for skipped in &findings.skipped {
        text += &format!(
            "not measured: {}: {}\n",
            printer::harmless(&skipped.what),
            printer::harmless(&skipped.why)
        );
    }
    if let Some(expected) = &findings.expected {
        let limit = if expected.limit.is_empty() { "not known" } else { &expected.limit };
        let (of, limit) = (printer::harmless(&expected.of), printer::harmless(limit));
        text += &format!("\nexpected: {} ({of})\nlimit:    {limit}\n", units::rate(expected.bps));
    }
    text
}

fn host(name: &str, facts: &HostFacts) -> String {
    let HostFacts { version, cores, processor, kernel, .. } = facts;
    let cores = units::count(*cores as u64, "core");
    let processor = if processor.is_empty() { String::new() } else { format!(" ({processor})") };
    printer::harmless(&format!("{name}: {cores}{processor}, Linux {kernel}, farhaul {version}"))
}

type Line = Vec<String>;

fn heading(row: &FindingRow) -> &'static [&'static str] {
    match row {
        FindingRow::Cipher(_) => &["cipher", "segment", "seal, a core", "open, a core", "seal", "open"],
        FindingRow::Digest(_) => &["digest", "segment", "a core"],
        FindingRow::Copy(_) => &["memory copy", "segment", "a core", "working set"],
        FindingRow::Disk(_) => {
            &["disk", "block", "depth", "rate", "a second", "a block", "busy cores", "moved"]
        }
        FindingRow::Link(_) => &[
            "datagrams",
            "packet",
            "flows",
            "rate",
            "lost",
            "sender",
            "a core",
            "receiver",
            "a core",
            "limit",
        ],
        FindingRow::Read(_) => {
            &["reads", "each", "at once", "in one", "rate", "a second", "median", "99 %", "slowest", "beside"]
        }
        FindingRow::Transfer(_) => {
            &["transfer", "rate", "moved", "time", "over", "cpu here", "cpu there", "slowest"]
        }
    }
}

fn line(row: &FindingRow) -> Line {
    match row {
        FindingRow::Cipher(row) => vec![
            row.cipher.clone(),
            bytes(row.segment_bytes),
            units::rate(row.seal_bps),
            units::rate(row.open_bps),
            format!("{:.0} ns", row.seal_ns),
            format!("{:.0} ns", row.open_ns),
        ],
        FindingRow::Digest(row) => vec!["blake3".into(), bytes(row.segment_bytes), units::rate(row.bps)],
        FindingRow::Copy(row) => vec![
            row.how.clone(),
            bytes(row.segment_bytes),
            units::rate(row.bps),
            units::size(row.working_set_bytes),
        ],
        FindingRow::Disk(row) => vec![
            format!("{} {}", row.way, row.operation),
            bytes(row.block_bytes),
            row.depth.to_string(),
            units::rate(row.bps),
            units::size((row.bps / 8.0) as u64),
            format!("{:.2} ms", row.block_ms),
            format!("{:.2}", row.cpu),
            units::size(row.bytes),
        ],
        FindingRow::Link(row) => link(row),
        FindingRow::Read(row) => vec![
            row.reads.to_string(),
            units::size(row.bytes_each),
            row.at_once.to_string(),
            row.vector.to_string(),
            units::rate(row.bps),
            format!("{:.0}", row.reads as f64 / row.seconds.max(1e-9)),
            format!("{:.1} ms", row.median_ms),
            format!("{:.1} ms", row.p99_ms),
            format!("{:.1} ms", row.max_ms),
            row.beside_bps.map_or_else(|| "-".into(), units::rate),
        ],
        FindingRow::Transfer(row) => vec![
            format!("{} to {}", row.from, row.to),
            units::rate(row.bps),
            format!("{}{}", units::size(row.bytes), if row.cut { " (time was up)" } else { "" }),
            format!("{:.2} s", row.seconds),
            row.transport.clone(),
            format!("{:.2} s", row.cpu_seconds_here),
            format!("{:.2} s", row.cpu_seconds_there),
            row.bottleneck.clone(),
        ],
    }
}

fn link(row: &LinkRow) -> Line {
    let busy = |cpu: f64| format!("{cpu:.2} cores");
    vec![
        format!("{}, {}", row.direction, row.cipher.as_deref().unwrap_or("plain")),
        row.packet_bytes.to_string(),
        row.flows.to_string(),
        units::rate(row.bps),
        summary::loss(row.lost),
        busy(row.sender_cpu),
        units::rate(row.sender_bps_per_core),
        busy(row.receiver_cpu),
        units::rate(row.receiver_bps_per_core),
        row.limit.clone(),
    ]
}

/// Multiples of 1024 get a unit, others are shown in bytes: readers look for a segment of 1430 bytes, not
/// 1.40 KiB.
fn bytes(bytes: usize) -> String {
    if bytes.is_multiple_of(1024) { units::size(bytes as u64) } else { format!("{bytes} B") }
}

/// Columns as wide as their widest cell; the first is aligned to the left, the others to the right.
fn aligned(lines: &[Line]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        let cells: Vec<String> = cells.collect();
        text += &printer::harmless(cells.join("  ").trim_end());
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use farhaul_bench::{CipherRow, DigestRow, ExpectedRate, SkippedStage};

    use super::*;

    fn findings() -> Findings {
        let cipher = CipherRow {
            cipher: "aes-128-gcm".into(),
            segment_bytes: 1430,
            seal_bps: 36e9,
            open_bps: 40e9,
            seal_ns: 319.6,
            open_ns: 287.6,
        };
        Findings {
            here: HostFacts { version: "1".into(), cores: 2, kernel: "6.1".into(), ..HostFacts::default() },
            rows: vec![
                FindingRow::Cipher(cipher),
                FindingRow::Digest(DigestRow { segment_bytes: 1 << 20, bps: 20e9 }),
                FindingRow::Digest(DigestRow { segment_bytes: 1 << 16, bps: 9e9 }),
            ],
            skipped: vec![SkippedStage { what: "a".into(), why: "b".into() }],
            expected: Some(ExpectedRate { bps: 20e9, limit: "digest".into(), of: "one flow".into() }),
            ..Findings::new("cpu")
        }
    }

    #[test]
    fn the_table_has_units_the_figure_and_what_limits_it() {
        let text = table(&findings());
        let expected = "\
this host: 2 cores, Linux 6.1, farhaul 1

cipher       segment  seal, a core  open, a core    seal    open
aes-128-gcm   1430 B   36.0 Gbit/s   40.0 Gbit/s  320 ns  288 ns

digest   segment       a core
blake3  1.00 MiB  20.0 Gbit/s
blake3  64.0 KiB  9.00 Gbit/s
not measured: a: b

expected: 20.0 Gbit/s (one flow)
limit:    digest
";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_a_host_says_cannot_steer_the_terminal() {
        let there =
            HostFacts { name: "h".into(), cores: 1, kernel: "\x1b[2J".into(), ..HostFacts::default() };
        let text = table(&Findings { there: Some(there), ..findings() });
        assert!(!text.contains('\x1b') && text.contains("\\u{1b}"), "{text}");
    }
}
