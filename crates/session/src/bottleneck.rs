//! Says in words which stage limited a transfer: the waits show at which end, the busy shares there show
//! which stage.
//!
//! A sender's flow either works or waits: for content (then the sender's disk, digest or scan is the limit),
//! for the receiver's credit (its disk or digest), for the network (window and pace), or for the rate that
//! was set. If it hardly waits, its own thread is the limit. Busy shares alone mislead: on a full machine
//! every stage is slow, and a stage that waits for another looks idle.

use farhaul_words::{Stage, StageFigures};

/// A wait for less than this share of the time is no limit.
const WAITED: f64 = 0.25;
/// If the receiving thread works for more than this share of the time, it is the reason that the network
/// brings no more.
const BUSY: f64 = 0.85;
/// If nobody waits, a thread that works for less than this share of the time is no limit. If somebody waits,
/// even an idle stage may be the limit, as it may wait itself: a stage that reads from a slow pipe does.
const HOLDS_UP: f64 = 0.1;
/// A transfer that is smaller than this and shorter than [`JUDGED_SECONDS`] is over before anything can limit
/// it.
const JUDGED_BYTES: u64 = 64 << 10;
const JUDGED_SECONDS: f64 = 0.5;
/// The stages that work on packets, all on one thread.
const FLOW: [Stage; 4] = [Stage::Seal, Stage::Send, Stage::Receive, Stage::Open];
/// The sender's stages also have `park`; a receiver parks blocks within `open`, which counts it already.
const SENDERS_FLOW: [Stage; 5] = [Stage::Seal, Stage::Send, Stage::Receive, Stage::Open, Stage::Park];

/// The stages that get the sender's content.
const SOURCE: [Stage; 4] = [Stage::Scan, Stage::Read, Stage::Digest, Stage::Fill];

/// The limit of a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BottleneckVerdict {
    /// "network", "rate", "none", or an end and its stage, such as "sender read".
    pub(crate) limit: String,
    /// The limit with its figure, for people.
    pub(crate) text: String,
}

impl BottleneckVerdict {
    fn new(limit: &str, text: String) -> BottleneckVerdict {
        BottleneckVerdict { limit: limit.to_string(), text }
    }

    /// Nothing has limited it.
    fn none() -> BottleneckVerdict {
        BottleneckVerdict::new("none", "nothing in particular".into())
    }

    /// The words for a report; `None` if nothing has limited the transfer.
    pub(crate) fn into_words(self) -> Option<String> {
        (self.limit != "none").then_some(self.text)
    }
}

/// The limiting stage with its figure.
pub(crate) fn verdict(stages: &[StageFigures], bytes: u64, seconds: f64) -> BottleneckVerdict {
    if bytes < JUDGED_BYTES && seconds < JUDGED_SECONDS {
        return BottleneckVerdict::none();
    }
    let all = Stages { stages, bytes, seconds };
    let waits = [Stage::WaitContent, Stage::WaitReceiver, Stage::WaitNetwork, Stage::WaitRate]
        .map(|wait| (all.busy("sender", wait), wait));
    let (waited, longest) = waits
        .into_iter()
        .fold((0.0, Stage::WaitContent), |most, wait| if wait.0 > most.0 { wait } else { most });
    if waited < WAITED {
        let flows = all.busiest(&[("sender", &SENDERS_FLOW), ("receiver", &FLOW)], true);
        return if all.flow_busy() < HOLDS_UP { BottleneckVerdict::none() } else { flows };
    }
    let goodput = format!("{:.1} Mbit/s", bytes as f64 * 8.0 / seconds.max(1e-9) / 1e6);
    let receiving: f64 = FLOW.iter().map(|&stage| all.busy("receiver", stage)).sum();
    match longest {
        // A few bytes come late because their source rests, as a file does that is followed while it grows.
        Stage::WaitContent if bytes < JUDGED_BYTES && all.sources_busy() < HOLDS_UP => {
            BottleneckVerdict::none()
        }
        // A source that comes slowly keeps everybody idle, its reader too. Which of them did the least is no matter.
        Stage::WaitContent if all.sources_busy() < HOLDS_UP && all.busy("sender", Stage::Read) > 0.0 => {
            all.busiest(&[("sender", &[Stage::Read])], false)
        }
        Stage::WaitContent => all.busiest(&[("sender", &SOURCE)], false),
        Stage::WaitReceiver => {
            all.busiest(&[("receiver", &[Stage::Write, Stage::Digest, Stage::Finish, Stage::Use])], false)
        }
        Stage::WaitRate => {
            BottleneckVerdict::new("rate", format!("the rate that was set: it came to {goodput}"))
        }
        _ if receiving >= BUSY => all.busiest(&[("receiver", &FLOW)], true),
        _ => {
            let share = waited * 100.0;
            let text = format!("network: {goodput}, the sender waited for it {share:.0} % of the time");
            BottleneckVerdict::new("network", text)
        }
    }
}

struct Stages<'a> {
    stages: &'a [StageFigures],
    bytes: u64,
    seconds: f64,
}

impl Stages<'_> {
    fn busy(&self, end: &str, stage: Stage) -> f64 {
        let found = self.stages.iter().find(|one| one.end == end && one.name == stage.name());
        found.map_or(0.0, |stage| stage.busy)
    }

    /// The largest of the busy shares of the sender's stages that get content.
    fn sources_busy(&self) -> f64 {
        SOURCE.into_iter().map(|stage| self.busy("sender", stage)).fold(0.0, f64::max)
    }

    /// The larger of the two ends' busy shares for work on packets.
    fn flow_busy(&self) -> f64 {
        let busy =
            |end: &str, stages: &[Stage]| stages.iter().map(|&stage| self.busy(end, stage)).sum::<f64>();
        busy("sender", &SENDERS_FLOW).max(busy("receiver", &FLOW))
    }

    /// The busiest of these stages in words. With `one_thread` the stages of an end count together.
    fn busiest(&self, candidates: &[(&str, &[Stage])], one_thread: bool) -> BottleneckVerdict {
        let mut worst = (0.0, BottleneckVerdict::none());
        for &(end, stages) in candidates {
            let busy = |stage: Stage| self.busy(end, stage);
            let longest = stages.iter().copied().max_by(|&one, &other| busy(one).total_cmp(&busy(other)));
            let Some(longest) = longest else { continue };
            let thread =
                if one_thread { stages.iter().map(|&stage| busy(stage)).sum() } else { busy(longest) };
            if thread > worst.0 {
                // The rate that the stage would reach if it never waited.
                let rate = self.bytes as f64 / (thread.max(1e-6) * self.seconds.max(1e-9)) / 1e6;
                let percent = (thread * 100.0).min(100.0);
                // Empty files have no rate.
                let rate = if rate < 0.5 { String::new() } else { format!("{rate:.0} MB/s, ") };
                let text = format!("{end}'s {}: {rate}{percent:.0} % busy", longest.words());
                worst = (thread, BottleneckVerdict::new(&format!("{end} {}", longest.name()), text));
            }
        }
        worst.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: &str = "sender";
    const RECEIVER: &str = "receiver";

    /// 1 GB in two seconds.
    fn judge(stages: &[(&str, &str, f64)]) -> String {
        let stage = |&(end, name, busy): &(&str, &str, f64)| StageFigures {
            name: name.into(),
            end: end.into(),
            busy,
        };
        verdict(&stages.iter().map(stage).collect::<Vec<_>>(), 1_000_000_000, 2.0).text
    }

    #[test]
    fn who_waits_for_content_waits_for_the_senders_busiest_stage() {
        let stages = [
            (SENDER, "wait-content", 0.6),
            (SENDER, "read", 0.97),
            (SENDER, "digest", 0.5),
            (RECEIVER, "write", 0.99),
        ];
        assert_eq!(judge(&stages), "sender's reading of the source: 515 MB/s, 97 % busy");
        assert!(
            judge(&[(SENDER, "wait-content", 0.6), (SENDER, "scan", 0.9)])
                .starts_with("sender's directory scan")
        );
        assert!(
            judge(&[(SENDER, "wait-content", 0.6), (SENDER, "digest", 0.9)]).starts_with("sender's digest")
        );
    }

    #[test]
    fn who_waits_for_credit_waits_for_the_receivers_busiest_stage() {
        let stages = [
            (SENDER, "wait-receiver", 0.5),
            (SENDER, "read", 0.99),
            (RECEIVER, "write", 0.9),
            (RECEIVER, "open", 0.95),
        ];
        assert_eq!(judge(&stages), "receiver's writing of the destination: 556 MB/s, 90 % busy");
        assert!(
            judge(&[(SENDER, "wait-receiver", 0.5), (RECEIVER, "finish", 0.9)])
                .contains("finishing of files")
        );
    }

    #[test]
    fn a_busy_receiver_is_why_the_window_is_full() {
        let stages = [(SENDER, "wait-network", 0.5), (RECEIVER, "open", 0.6), (RECEIVER, "receive", 0.35)];
        assert_eq!(judge(&stages), "receiver's opening of packets: 526 MB/s, 95 % busy");
        assert!(judge(&stages[..2]).starts_with("network: 4000.0 Mbit/s"));
    }

    #[test]
    fn who_does_not_wait_is_the_limit_himself() {
        let stages = [
            (SENDER, "wait-network", 0.1),
            (SENDER, "seal", 0.5),
            (SENDER, "send", 0.4),
            (RECEIVER, "write", 0.95),
        ];
        assert_eq!(judge(&stages), "sender's sealing of packets: 556 MB/s, 90 % busy");
    }

    #[test]
    fn where_nothing_has_limited_it_nothing_is_said() {
        let stage = |end: &str, name: &str, busy| StageFigures { name: name.into(), end: end.into(), busy };
        let judge = |stages: &[StageFigures], bytes, seconds| verdict(stages, bytes, seconds).into_words();
        // Three bytes, copied within a host in five milliseconds.
        let stages = [stage(RECEIVER, "open", 0.03), stage(SENDER, "seal", 0.01)];
        assert_eq!(judge(&stages, 3, 0.005), None);
        assert_eq!(judge(&stages, 1 << 30, 2.0), None);
        let waits = [stage(SENDER, "wait-network", 0.9), stage(RECEIVER, "finish", 0.4)];
        assert_eq!(judge(&waits, 3, 0.005), None);
        assert_eq!(judge(&[], 0, 0.0), None);
        // Many empty files.
        let stages = [stage(SENDER, "wait-receiver", 0.8), stage(RECEIVER, "finish", 0.9)];
        assert_eq!(judge(&stages, 0, 9.0).as_deref(), Some("receiver's finishing of files: 90 % busy"));
        // A small file that is followed until it has rested.
        let stages = [stage(SENDER, "wait-content", 0.98), stage(SENDER, "digest", 0.004)];
        assert_eq!(judge(&stages, 30, 2.1), None);
        let stages = [stage(SENDER, "wait-content", 0.8), stage(SENDER, "scan", 0.9)];
        assert_eq!(judge(&stages, 0, 9.0).as_deref(), Some("sender's directory scan: 90 % busy"));
        // A source that comes slowly keeps its reader idle.
        for digest in [0.001, 0.05] {
            let stages = [
                stage(SENDER, "wait-content", 0.8),
                stage(SENDER, "read", 0.02),
                stage(SENDER, "digest", digest),
            ];
            let words = judge(&stages, 12_000_000, 3.0);
            assert!(words.is_some_and(|words| words.starts_with("sender's reading")), "{digest}");
        }
    }

    #[test]
    fn each_limit_has_an_id_under_which_it_is_explained() {
        let receivers = [Stage::Write, Stage::Digest, Stage::Finish, Stage::Use];
        let stages =
            [(SENDER, &SENDERS_FLOW[..]), (SENDER, &SOURCE), (RECEIVER, &FLOW), (RECEIVER, &receivers)];
        for (end, stage) in
            stages.iter().flat_map(|(end, stages)| stages.iter().map(move |stage| (end, stage)))
        {
            let limit = format!("{end} {}", stage.name());
            assert!(farhaul_words::limit_id(&limit).is_some(), "{limit}");
        }
    }

    #[test]
    fn who_waits_for_the_rate_that_was_set_is_told_so() {
        let stages = [(SENDER, "wait-network", 0.3), (SENDER, "wait-rate", 0.5), (RECEIVER, "open", 0.9)];
        assert_eq!(judge(&stages), "the rate that was set: it came to 4000.0 Mbit/s");
    }
}
