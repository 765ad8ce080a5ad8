//! `farhaul bench link`: datagrams from host to host without the transport, plain and sealed, with one and
//! more flows, in both directions.
//!
//! How to read it: [`measure`] is the near end, which chooses the cases (`case.rs`) and asks the far end to
//! take part; `case_run.rs` is one end of a case, `flow.rs` one flow of it with its `window.rs`, `meeting.rs`
//! the datagrams beside the measured ones.
//!
//! Always true: a given rate is not exceeded; without one, at most a window is in flight at any time, and
//! less if datagrams are lost; no case lasts longer than configured.

mod case;
mod case_run;
mod flow;
mod meeting;
mod window;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use farhaul::Error;
use farhaul::errors::Code;
use farhaul::options::Cipher;
use farhaul::target::SshTarget;
use farhaul_connect::hello::HelloSecret;
use farhaul_proto::{CIPHER_BLOCK, segment_datagram};

use crate::Monitor;
use crate::bps;
use crate::far_end::FarEnd;
use crate::findings::{ExpectedRate, FindingRow, Findings, LinkRow};
use crate::messages::{CaseOpening, EndpointAnswer, EndpointQuestion};

pub(crate) use case::{CaseTotals, LinkCase, LinkSide};
use case_run::CaseRoute;
pub(crate) use case_run::{CaseKeys, CaseRun, bind, ends, ports, recv_buffer_bytes};

/// The window if no rate is given: enough for a link of 10 Gbit/s and 1 ms, and not more than a switch can
/// hold.
const WINDOW: u64 = 2 << 20;
/// If a rate is given, as many bytes may be in flight as it sends in this many seconds.
const WINDOW_TIME: f64 = 0.5;
/// The lengths of IP packets on Ethernet, plain and jumbo.
const PACKETS: [usize; 2] = [1500, 9000];
/// From this share on, a core counts as busy.
const FULL: f64 = 0.9;

/// The direction of the datagrams, seen from this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DatagramDirection {
    To,
    From,
    #[default]
    Both,
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct LinkConfig {
    pub target: SshTarget,
    /// The time of each case, at most a minute.
    pub time: Duration,
    /// The highest rate of all flows together, in bits of UDP payload a second.
    pub rate_bps: Option<u64>,
    pub direction: DatagramDirection,
    /// The numbers of flows to measure; empty for one and two.
    pub flows: Vec<usize>,
    /// The lengths of IP packets in bytes; empty for 1500 and 9000, as the path allows.
    pub packets: Vec<usize>,
    pub cipher: Cipher,
    /// The first and last UDP port that the far end may use.
    pub udp_ports: (u16, u16),
}

/// Measures every case that was asked for.
pub fn measure(config: &LinkConfig, watch: &Monitor<'_>, findings: &mut Findings) -> Result<(), Error> {
    judge(config)?;
    watch.begin("connecting")?;
    let far = FarEnd::start(&config.target, watch)?;
    findings.there = Some(far.facts.clone());
    let mut link = LinkBench { config, watch, far, far_buffer_bytes: None };
    let way = link.find_way()?;
    for packet in link.packets(way, findings) {
        for direction in [LinkSide::Near, LinkSide::Far].into_iter().filter(|&sender| config.wants(sender)) {
            for cipher in [None, Some(config.cipher)] {
                for &flows in config.flows() {
                    link.case(direction, packet, way, cipher, flows, findings)?;
                }
            }
        }
    }
    findings.expected = expected(findings);
    Ok(())
}

/// Refuses values that cannot work, before anything is connected.
fn judge(config: &LinkConfig) -> Result<(), Error> {
    let usage = |text: String| Err(Error::new(Code::BadOption, text));
    if config.cipher == Cipher::None {
        return usage("--cipher none: the plain datagrams are measured anyway".into());
    }
    if config.time.as_secs_f64() > case::SECONDS_MAX {
        return usage(format!("--seconds: {} is the most for a link", case::SECONDS_MAX));
    }
    for &packet in &config.packets {
        let is_sound = (128..=65_535).contains(&packet);
        if !is_sound {
            return usage(format!("--packet {packet}: IP packets have 128 to 65535 bytes here"));
        }
    }
    for &flows in &config.flows {
        if !(1..=16).contains(&flows) {
            return usage(format!("--flows {flows}: between 1 and 16 flows are allowed"));
        }
    }
    Ok(())
}

impl LinkConfig {
    fn wants(&self, sender: LinkSide) -> bool {
        match self.direction {
            DatagramDirection::Both => true,
            DatagramDirection::To => sender == LinkSide::Near,
            DatagramDirection::From => sender == LinkSide::Far,
        }
    }

    fn flows(&self) -> &[usize] {
        if self.flows.is_empty() { &[1, 2] } else { &self.flows }
    }

    fn window_bytes(&self, flows: usize, recv_buffer_bytes: usize) -> u64 {
        let window = self.rate_bps.map_or(WINDOW, |rate| (rate as f64 / 8.0 * WINDOW_TIME) as u64);
        match (self.rate_bps, recv_buffer_bytes) {
            // Bytes that the receiver's socket cannot hold would be lost when its thread is held up.
            (None, bytes) if bytes > 0 => window.min((bytes * flows) as u64),
            _ => window.max(WINDOW),
        }
    }
}

/// The bytes of IP and UDP headers.
fn headers(is_six: bool) -> usize {
    if is_six { 48 } else { 28 }
}

/// The length of a datagram; a sealed one is as long as a transfer's.
fn datagram_bytes(max: usize, cipher: Option<Cipher>) -> usize {
    let is_sealed = cipher.is_some() && max >= case::DATAGRAM_MIN + usize::from(CIPHER_BLOCK);
    if is_sealed { usize::from(segment_datagram(max as u16, CIPHER_BLOCK)) } else { max }
}

struct LinkBench<'a> {
    config: &'a LinkConfig,
    watch: &'a Monitor<'a>,
    far: FarEnd<'a>,
    /// What the far end's sockets hold until it receives; known after the first case.
    far_buffer_bytes: Option<usize>,
}

impl LinkBench<'_> {
    /// Meets the far end once and sends nothing.
    fn find_way(&mut self) -> Result<CaseRoute, Error> {
        let case = LinkCase {
            sender: LinkSide::Near,
            datagram_bytes: 1200,
            cipher: None,
            flows: 1,
            seconds: 0.0,
            rate_bps: None,
            window_bytes: WINDOW,
        };
        let ran = self.run(case)?;
        ran.way.ok_or_else(|| self.unreachable(&ran.ports))
    }

    fn unreachable(&self, ports: &[u16]) -> Error {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        Error::new(
            Code::UdpBlocked,
            format!("no datagram gets through to UDP port {} of {}", ports.join(", "), self.far.host()),
        )
        .with_hint("open these ports in its firewall, or choose others with --udp-ports")
    }

    /// The packet sizes to measure. Notes why others are skipped.
    fn packets(&self, way: CaseRoute, findings: &mut Findings) -> Vec<usize> {
        let asked = if self.config.packets.is_empty() { &PACKETS[..] } else { &self.config.packets };
        let fits = |&&packet: &&usize| way.mtu.is_none_or(|mtu| packet <= usize::from(mtu));
        for packet in asked.iter().filter(|packet| !fits(packet)) {
            let mtu = way.mtu.unwrap_or(0);
            findings.skip(
                format!("packets of {packet} bytes"),
                format!("the path from this host takes at most {mtu}"),
            );
        }
        asked.iter().filter(fits).copied().collect()
    }

    fn case(
        &mut self,
        sender: LinkSide,
        packet_bytes: usize,
        way: CaseRoute,
        cipher: Option<Cipher>,
        flows: usize,
        findings: &mut Findings,
    ) -> Result<(), Error> {
        let direction = if sender == LinkSide::Near { "to" } else { "from" };
        let name = cipher.map_or("plain", Cipher::name);
        let what = format!(
            "{direction} {}, packets of {packet_bytes} bytes, {name}, flows: {flows}",
            self.far.host()
        );
        self.watch.begin(&what)?;
        let case = LinkCase {
            sender,
            datagram_bytes: datagram_bytes(packet_bytes - headers(way.is_six), cipher),
            cipher,
            flows,
            seconds: self.config.time.as_secs_f64(),
            rate_bps: self.config.rate_bps,
            window_bytes: WINDOW,
        };
        let ran = self.run(case)?;
        if ran.sent.met < flows || ran.received.met < flows {
            return Err(self.unreachable(&ran.ports));
        }
        if let Some(error) = ran.sent.error.as_ref().or(ran.received.error.as_ref()) {
            findings.warn(format!("{what}: {error}"));
        }
        if ran.received.datagrams == 0 {
            findings.skip(what, "none of the datagrams arrives: the path takes no packets of this size");
            return Ok(());
        }
        if ran.recv_buffer_bytes < WINDOW as usize / 2 {
            findings.warn(format!(
                "a receiving socket holds {} KiB only, which limits the rate: raise net.core.rmem_max",
                ran.recv_buffer_bytes >> 10
            ));
        }
        findings.rows.push(FindingRow::Link(row(direction, packet_bytes, &ran)));
        Ok(())
    }

    /// Runs one case, from its sockets to its figures.
    fn run(&mut self, mut case: LinkCase) -> Result<FinishedCase, Error> {
        let io = |source| Error::of_host("cannot open a UDP socket", source);
        let sockets = (0..case.flows).map(|_| bind(None)).collect::<std::io::Result<Vec<_>>>().map_err(io)?;
        let near_buffer = recv_buffer_bytes(&sockets);
        let receiver_buffer = match case.sender {
            LinkSide::Near => self.far_buffer_bytes.unwrap_or(near_buffer),
            LinkSide::Far => near_buffer,
        };
        case.window_bytes = self.config.window_bytes(case.flows, receiver_buffer);
        let case = case.checked()?;
        let keys = CaseKeys { token: HelloSecret::random()?, secret: HelloSecret::random()? };
        let opening = CaseOpening {
            case: case.clone(),
            token: keys.token.clone(),
            secret: keys.secret.clone(),
            ports: ports(&sockets),
            udp_ports: self.config.udp_ports,
        };
        let (far_ports, recv_buffer_bytes) = match self.far.ask(&EndpointQuestion::Open(Box::new(opening)))? {
            EndpointAnswer::Opened { ports, recv_buffer_bytes } if ports.len() == case.flows => {
                (ports, recv_buffer_bytes)
            }
            other => return Err(FarEnd::strange(&other)),
        };
        self.far_buffer_bytes = Some(recv_buffer_bytes);
        let ends = ends(sockets, self.far.addresses(), &far_ports);
        let running = CaseRun::start(&case, LinkSide::Near, ends, &keys, Arc::default())?;
        self.await_end(&case, &running)?;
        let (near, way, far) = if case.sender == LinkSide::Near {
            let (near, way) = running.finish_with_way();
            (near, way, self.close()?)
        } else {
            let far = self.close()?;
            let (near, way) = running.finish_with_way();
            (near, way, far)
        };
        let (sent, received) = if case.sender == LinkSide::Near { (near, far) } else { (far, near) };
        let recv_buffer_bytes = if case.sender == LinkSide::Near { recv_buffer_bytes } else { near_buffer };
        Ok(FinishedCase { case, sent, received, way, ports: far_ports, recv_buffer_bytes })
    }

    /// Waits until our own flows have finished, or the far end's should have.
    fn await_end(&self, case: &LinkCase, running: &CaseRun) -> Result<(), Error> {
        let begun = Instant::now();
        while !running.is_through() {
            if self.watch.stop.load(Relaxed) {
                // Dropping the case stops both ends.
                return Err(Error::interrupted());
            }
            if case.sender == LinkSide::Far && begun.elapsed().as_secs_f64() >= case.seconds {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn close(&mut self) -> Result<CaseTotals, Error> {
        match self.far.ask(&EndpointQuestion::Close)? {
            EndpointAnswer::Closed(totals) => Ok(totals),
            other => Err(FarEnd::strange(&other)),
        }
    }
}

/// A case that is over.
struct FinishedCase {
    case: LinkCase,
    sent: CaseTotals,
    received: CaseTotals,
    way: Option<CaseRoute>,
    /// The ports of the far end.
    ports: Vec<u16>,
    /// What the receiver's sockets hold.
    recv_buffer_bytes: usize,
}

fn row(direction: &str, packet_bytes: usize, ran: &FinishedCase) -> LinkRow {
    let FinishedCase { case, sent, received, .. } = ran;
    let bits = received.bytes as f64 * 8.0;
    let per_core = |cpu: f64| if cpu > 0.0 { bits / cpu } else { 0.0 };
    let share = |totals: &CaseTotals| totals.cpu_seconds / totals.seconds.max(1e-9);
    let row = LinkRow {
        direction: direction.into(),
        packet_bytes,
        datagram_bytes: case.datagram_bytes,
        cipher: case.cipher.map(|cipher| cipher.name().to_string()),
        flows: case.flows,
        seconds: received.seconds,
        bps: bps(received.bytes, received.seconds),
        lost: 1.0 - received.datagrams as f64 / sent.datagrams.max(received.datagrams) as f64,
        sender_cpu: share(sent),
        receiver_cpu: share(received),
        sender_bps_per_core: per_core(sent.cpu_seconds),
        receiver_bps_per_core: per_core(received.cpu_seconds),
        limit: String::new(),
    };
    LinkRow { limit: limit(row.bps, case, sent, received).into(), ..row }
}

/// Names what limited a case. A thread that waits for a core counts as if it had one, or a busy host would
/// look like a slow path.
fn limit(bps: f64, case: &LinkCase, sent: &CaseTotals, received: &CaseTotals) -> &'static str {
    let is_at_rate = case.rate_bps.is_some_and(|rate| bps >= 0.95 * rate as f64);
    let wanted = |totals: &CaseTotals| {
        (totals.cpu_seconds + totals.starved_seconds) / totals.seconds.max(1e-9) / case.flows as f64
    };
    let core = |totals: &CaseTotals, own, shared| {
        if totals.starved_seconds > 0.2 * totals.cpu_seconds { shared } else { own }
    };
    let (sender, receiver) = (wanted(sent), wanted(received));
    match () {
        () if is_at_rate => "--rate",
        () if sender >= FULL && sender >= receiver => {
            core(sent, "sender's core", "sender's core, shared with other work")
        }
        () if receiver >= FULL => {
            core(received, "receiver's core", "receiver's core, shared with other work")
        }
        () if received.datagrams == sent.datagrams && sent.window_seconds > 0.5 * sent.seconds => "window",
        () => "path",
    }
}

/// The expected rate: that of the best sealed case, in the slower direction, as a transfer may go either way.
fn expected(findings: &Findings) -> Option<ExpectedRate> {
    let rows =
        findings.rows.iter().filter_map(|row| if let FindingRow::Link(row) = row { Some(row) } else { None });
    let best = |direction: &'static str| {
        let sealed = rows.clone().filter(move |row| row.direction == direction && row.cipher.is_some());
        sealed.max_by(|one, other| one.bps.total_cmp(&other.bps))
    };
    let row = [best("to"), best("from")]
        .into_iter()
        .flatten()
        .min_by(|one, other| one.bps.total_cmp(&other.bps))?;
    let LinkRow { direction, packet_bytes, flows, limit, .. } = row;
    let host = findings.there.as_ref().map_or("the host", |there| there.name.as_str());
    // The transport's headers and tag are not content.
    let content = (row.datagram_bytes - case::OVERHEAD) as f64 / row.datagram_bytes as f64;
    Some(ExpectedRate {
        bps: row.bps * content,
        limit: limit.clone(),
        of: format!(
            "content {direction} {host}, sealed, flows: {flows}, {packet_bytes}-byte packets, without protocol and disks"
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn config() -> LinkConfig {
        LinkConfig {
            target: SshTarget::default(),
            time: Duration::from_secs(3),
            rate_bps: None,
            direction: DatagramDirection::Both,
            flows: Vec::new(),
            packets: Vec::new(),
            cipher: Cipher::default(),
            udp_ports: (33001, 33100),
        }
    }

    /// Runs both ends of a case in this process.
    fn both(case: &LinkCase) -> (CaseTotals, CaseTotals) {
        let keys = CaseKeys { token: HelloSecret::random().unwrap(), secret: HelloSecret::random().unwrap() };
        let sockets = || (0..case.flows).map(|_| bind(None).unwrap()).collect::<Vec<_>>();
        let (near, far) = (sockets(), sockets());
        let (near_ports, far_ports) = (ports(&near), ports(&far));
        let loopback = ["127.0.0.1:0".parse().unwrap()];
        let start = |own, sockets, ports: &[u16]| {
            CaseRun::start(case, own, ends(sockets, &loopback, ports), &keys, Arc::default()).unwrap()
        };
        let (near, far) = (start(LinkSide::Near, near, &far_ports), start(LinkSide::Far, far, &near_ports));
        let (sender, receiver) = if case.sender == LinkSide::Near { (near, far) } else { (far, near) };
        let sent = sender.finish();
        (sent, receiver.finish())
    }

    #[test]
    fn datagrams_go_both_ways_plain_and_sealed() {
        for sender in [LinkSide::Near, LinkSide::Far] {
            for cipher in [None, Some(Cipher::Aes128Gcm)] {
                let case = LinkCase {
                    sender,
                    datagram_bytes: 1472,
                    cipher,
                    flows: 2,
                    seconds: 0.1,
                    rate_bps: Some(20_000_000),
                    window_bytes: WINDOW,
                };
                let (sent, received) = both(&case);
                assert_eq!((sent.met, received.met, &sent.error, &received.error), (2, 2, &None, &None));
                assert!(
                    received.datagrams > 0 && received.datagrams <= sent.datagrams,
                    "{sent:?} {received:?}"
                );
                // The rate is a ceiling: a slow machine may send less, but none sends more.
                assert!(sent.bytes <= 300_000 + 2 * 65_536, "{sent:?}");
                assert_eq!(received.bytes, received.datagrams * 1472);
            }
        }
    }

    #[test]
    fn a_stop_ends_a_flow_that_meets_nobody() {
        let case = LinkCase {
            sender: LinkSide::Near,
            datagram_bytes: 1472,
            cipher: None,
            flows: 1,
            seconds: 30.0,
            rate_bps: None,
            window_bytes: 100_000,
        };
        let keys = CaseKeys { token: HelloSecret::random().unwrap(), secret: HelloSecret::random().unwrap() };
        let stop = Arc::new(AtomicBool::new(true));
        let ends = ends(vec![bind(None).unwrap()], &[], &[9]);
        let (totals, way) =
            CaseRun::start(&case, LinkSide::Near, ends, &keys, stop).unwrap().finish_with_way();
        assert_eq!((totals.met, totals.datagrams, way), (0, 0, None));
    }

    #[test]
    fn the_window_is_what_the_receiver_holds_and_a_rate_lifts_it() {
        let plain = config();
        assert_eq!(plain.window_bytes(1, 8 << 20), WINDOW);
        assert_eq!(plain.window_bytes(2, 100 << 10), 200 << 10);
        let rated = LinkConfig { rate_bps: Some(8_000_000_000), ..config() };
        assert_eq!(rated.window_bytes(1, 100 << 10), 500_000_000);
        assert_eq!(LinkConfig { rate_bps: Some(8000), ..config() }.window_bytes(1, 0), WINDOW);
    }

    #[test]
    fn what_holds_a_case_is_named() {
        let case = LinkCase {
            sender: LinkSide::Near,
            datagram_bytes: 1472,
            cipher: None,
            flows: 1,
            seconds: 1.0,
            rate_bps: Some(1_000_000),
            window_bytes: WINDOW,
        };
        let totals = |cpu_seconds, starved_seconds, window_seconds| CaseTotals {
            seconds: 1.0,
            cpu_seconds,
            starved_seconds,
            window_seconds,
            ..CaseTotals::default()
        };
        let idle = totals(0.1, 0.0, 0.0);
        assert_eq!(limit(1e6, &case, &totals(1.0, 0.0, 0.0), &idle), "--rate");
        assert_eq!(limit(1e5, &case, &totals(1.0, 0.0, 0.0), &idle), "sender's core");
        assert_eq!(limit(1e5, &case, &idle, &totals(0.95, 0.0, 0.0)), "receiver's core");
        let shared = limit(1e5, &case, &idle, &totals(0.5, 0.45, 0.0));
        assert_eq!(shared, "receiver's core, shared with other work");
        assert_eq!(limit(1e5, &case, &totals(0.1, 0.0, 0.9), &idle), "window");
        assert_eq!(limit(1e5, &case, &idle, &idle), "path");
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        assert!(judge(&config()).is_ok());
        for bad in [
            LinkConfig { flows: vec![17], ..config() },
            LinkConfig { packets: vec![100], ..config() },
            LinkConfig { packets: vec![70_000], ..config() },
            LinkConfig { cipher: Cipher::None, ..config() },
            LinkConfig { time: Duration::from_secs(61), ..config() },
        ] {
            assert_eq!(judge(&bad).unwrap_err().exit_code() as u8, 2, "{bad:?}");
        }
    }
}
