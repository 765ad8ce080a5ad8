//! The metrics of the service, in the format of OpenMetrics (docs/reference/metrics.md).
//!
//! How to read it: [`Metrics`] has every metric, `running_transfers.rs` turns the figures of running
//! transfers into counters and gauges, `client_metrics.rs` counts what clients of the daemon do, `host.rs`
//! reads what the kernel says about the process. `api/metrics.rs` is the route.
//!
//! Always true: the values of a label are a closed list, or the names of caps; counters never go back;
//! figures are read when somebody asks or a transfer ends, never by a timer.

mod client_metrics;
mod host;
mod running_transfers;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use farhaul::copy::{FailedEntry, Report};
use farhaul_handover::Held as _;
use farhaul_words::{Code, Error};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::node::Node;
use farhaul_api::ContentBytes;
use farhaul_api::FailingFiles;
use farhaul_api::JobState;
use running_transfers::RunningTransfers;

pub(crate) use client_metrics::ClientMetrics;
pub(crate) use running_transfers::WatchGuard;

/// A gauge for whole numbers and fractions.
type Level = Gauge<f64, std::sync::atomic::AtomicU64>;

/// The direction in which content goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum DirectionLabel {
    /// From this node to another.
    Sent,
    /// From another node to this one.
    Received,
    /// Within this node's host.
    Local,
    /// Between two other nodes.
    Third,
}

impl DirectionLabel {
    const ALL: [DirectionLabel; 4] =
        [DirectionLabel::Sent, DirectionLabel::Received, DirectionLabel::Local, DirectionLabel::Third];

    fn name(self) -> &'static str {
        self.into()
    }

    /// The direction of a job, by the word that records have for it.
    pub(crate) fn of_job(word: &str) -> DirectionLabel {
        match word {
            "push" => DirectionLabel::Sent,
            "pull" => DirectionLabel::Received,
            "third" => DirectionLabel::Third,
            _ => DirectionLabel::Local,
        }
    }
}

/// The side that began a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum OriginLabel {
    /// A job of this node.
    Job,
    /// A client that has connected to the daemon.
    Client,
}

impl OriginLabel {
    const ALL: [OriginLabel; 2] = [OriginLabel::Job, OriginLabel::Client];

    fn name(self) -> &'static str {
        match self {
            OriginLabel::Job => "job",
            OriginLabel::Client => "client",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabels {
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FileLabels {
    direction: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TransferLabels {
    origin: &'static str,
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    origin: &'static str,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatisticLabels {
    statistic: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabels {
    end: &'static str,
    stage: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DropLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RetryableLabels {
    retryable: &'static str,
}

/// The reason why a message to a webhook never arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum WebhookDrop {
    /// Too many messages of its owner wait.
    QueueFull,
    /// The receiver has refused it.
    Refused,
    /// All attempts have failed.
    Attempts,
    /// The message that waits in the store cannot be read.
    Unreadable,
}

impl WebhookDrop {
    const ALL: [WebhookDrop; 4] =
        [WebhookDrop::QueueFull, WebhookDrop::Refused, WebhookDrop::Attempts, WebhookDrop::Unreadable];

    fn name(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CapLabels {
    cap: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// The limit and the use of a cap.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CapFigures {
    /// The cap's name.
    pub(crate) name: String,
    /// The limit now, by its schedule; `None` if there is no limit.
    pub(crate) limit_bps: Option<f64>,
    /// Bytes of IP packets that have gone through it since it was made.
    pub(crate) moved_bytes: u64,
    /// Sessions in the cap.
    pub(crate) sessions: u64,
}

/// The format of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// The older text format of Prometheus, 0.0.4.
    Prometheus,
}

/// Buckets for the seconds that a transfer takes, from moments to days.
const DURATIONS: [f64; 10] = [0.1, 1.0, 10.0, 60.0, 300.0, 1800.0, 7200.0, 21_600.0, 86_400.0, 604_800.0];

/// All metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    flows: Mutex<RunningTransfers>,
    /// The lock is held while the metrics are written, as gauges are set anew each time.
    registry: Mutex<Registry>,
    counted: CounterMetrics,
    shown: GaugeMetrics,
    /// How much of each cap is counted.
    cap_bytes: Mutex<BTreeMap<String, u64>>,
}

/// The counters.
#[derive(Debug)]
struct CounterMetrics {
    bytes: Family<DirectionLabels, Counter>,
    wire_bytes: Counter,
    files: Family<FileLabels, Counter>,
    retransmitted: Counter,
    errors: Family<CodeLabels, Counter>,
    ended: Family<EndLabels, Counter>,
    seconds: Family<DirectionLabels, Histogram>,
    late: Counter,
    webhooks_delivered: Counter,
    webhooks_dropped: Family<DropLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    cap_bytes: Family<CapLabels, Counter>,
    cpu: Counter<f64, std::sync::atomic::AtomicU64>,
}

/// The gauges.
#[derive(Debug, Default)]
struct GaugeMetrics {
    jobs: Family<StateLabels, Gauge>,
    behind: Gauge,
    watches: Gauge,
    watches_failing: Gauge,
    watch_files_failing: Family<RetryableLabels, Gauge>,
    transfers: Family<TransferLabels, Gauge>,
    goodput: Family<DirectionLabels, Level>,
    target: Level,
    rtt: Family<StatisticLabels, Level>,
    loss: Family<StatisticLabels, Level>,
    stages: Family<StageLabels, Level>,
    cap_limit: Family<CapLabels, Level>,
    cap_sessions: Family<CapLabels, Gauge>,
    store_pending: Gauge,
    store_failing: Gauge,
    event_readers: Gauge,
    resident: Gauge,
    virtual_memory: Gauge,
    descriptors: Gauge,
    descriptors_max: Gauge,
    threads: Gauge,
    start: Level,
}

impl CounterMetrics {
    /// Counters with a closed list of labels begin with all of them at 0, as a rate needs a first value.
    fn new() -> CounterMetrics {
        fn histogram() -> Histogram {
            Histogram::new(DURATIONS)
        }
        let counted = CounterMetrics {
            bytes: Family::default(),
            wire_bytes: Counter::default(),
            files: Family::default(),
            retransmitted: Counter::default(),
            errors: Family::default(),
            ended: Family::default(),
            seconds: Family::new_with_constructor(histogram as fn() -> Histogram),
            late: Counter::default(),
            webhooks_delivered: Counter::default(),
            webhooks_dropped: Family::default(),
            requests: Family::default(),
            cap_bytes: Family::default(),
            cpu: Counter::default(),
        };
        for direction in DirectionLabel::ALL.map(DirectionLabel::name) {
            drop(counted.bytes.get_or_create(&DirectionLabels { direction }));
            drop(counted.seconds.get_or_create(&DirectionLabels { direction }));
            for outcome in ["arrived", "failed"] {
                drop(counted.files.get_or_create(&FileLabels { direction, outcome }));
            }
        }
        for code in Code::ALL {
            drop(counted.errors.get_or_create(&CodeLabels { code: code.name() }));
        }
        for reason in WebhookDrop::ALL.map(WebhookDrop::name) {
            drop(counted.webhooks_dropped.get_or_create(&DropLabels { reason }));
        }
        for origin in OriginLabel::ALL.map(OriginLabel::name) {
            for state in JobState::ALL.into_iter().filter(|state| state.is_final()).map(JobState::name) {
                drop(counted.ended.get_or_create(&EndLabels { origin, state }));
            }
        }
        counted
    }

    fn register(&self, registry: &mut Registry) {
        registry.register_with_unit(
            "farhaul",
            "Content that was moved, without content that was already there and without repairs",
            Unit::Bytes,
            self.bytes.clone(),
        );
        registry.register_with_unit(
            "farhaul_wire_sent",
            "UDP payload and stream bytes that this node has sent, with headers and repairs",
            Unit::Bytes,
            self.wire_bytes.clone(),
        );
        registry.register(
            "farhaul_files",
            "Files that are at their destination, including those that were there before, and entries that have failed",
            self.files.clone(),
        );
        registry.register(
            "farhaul_segments_retransmitted",
            "Segments that this node has sent again because they were lost",
            self.retransmitted.clone(),
        );
        registry.register(
            "farhaul_errors",
            "Why transfers have ended early and entries have failed, by the codes of docs/reference/errors.md",
            self.errors.clone(),
        );
        registry.register(
            "farhaul_transfers_ended",
            "Runs of jobs and requests of clients that have ended",
            self.ended.clone(),
        );
        registry.register_with_unit(
            "farhaul_transfer_duration",
            "How long ended transfers took",
            Unit::Seconds,
            self.seconds.clone(),
        );
        registry.register(
            "farhaul_deadlines_missed",
            "Runs of jobs that have ended after the time by which they had to be finished",
            self.late.clone(),
        );
        registry.register(
            "farhaul_webhooks_delivered",
            "Messages that the receivers of webhooks have taken",
            self.webhooks_delivered.clone(),
        );
        registry.register(
            "farhaul_webhooks_dropped",
            "Messages to webhooks that will never arrive, by the reason",
            self.webhooks_dropped.clone(),
        );
        registry.register_with_unit(
            "farhaul_cap_moved",
            "IP bytes with headers and repairs that went through a cap, both ways",
            Unit::Bytes,
            self.cap_bytes.clone(),
        );
        registry.register(
            "farhaul_api_requests",
            "Requests of the API that were answered, by route and status",
            self.requests.clone(),
        );
        registry.register_with_unit(
            "process_cpu",
            "Processor time of the process, in user and system mode",
            Unit::Seconds,
            self.cpu.clone(),
        );
    }
}

impl GaugeMetrics {
    fn register(&self, registry: &mut Registry) {
        let rate = || Unit::Other("bytes_per_second".into());
        let ratio = || Unit::Other("ratio".into());
        registry.register("farhaul_jobs", "Jobs by state, as far back as they are kept", self.jobs.clone());
        registry.register(
            "farhaul_jobs_behind_deadline",
            "Jobs that will not be finished in time, as things stand",
            self.behind.clone(),
        );
        registry.register("farhaul_watches", "Watched folders", self.watches.clone());
        registry.register(
            "farhaul_watches_failing",
            "Watched folders with files that have failed and have not arrived since",
            self.watches_failing.clone(),
        );
        registry.register(
            "farhaul_watch_files_failing",
            "Files of watched folders that have failed and have not arrived since",
            self.watch_files_failing.clone(),
        );
        registry.register(
            "farhaul_transfers",
            "Running transfers, of jobs and of clients",
            self.transfers.clone(),
        );
        registry.register_with_unit(
            "farhaul_goodput",
            "Content rate of all running transfers together, over the last seconds",
            rate(),
            self.goodput.clone(),
        );
        registry.register_with_unit(
            "farhaul_target_rate",
            "Rate that the controllers of all senders of this node allow together",
            rate(),
            self.target.clone(),
        );
        registry.register_with_unit(
            "farhaul_rtt",
            "Smoothed round trip of running transfers: mean and maximum",
            Unit::Seconds,
            self.rtt.clone(),
        );
        registry.register_with_unit(
            "farhaul_loss",
            "Packets lost of packets sent since a transfer began, of running transfers: mean and maximum",
            ratio(),
            self.loss.clone(),
        );
        registry.register_with_unit(
            "farhaul_stage_busy",
            "Share of the time that a stage of this end works, the highest of all running transfers",
            ratio(),
            self.stages.clone(),
        );
        registry.register_with_unit(
            "farhaul_cap_limit",
            "Rate that a cap allows now",
            rate(),
            self.cap_limit.clone(),
        );
        registry.register("farhaul_cap_sessions", "Sessions that share a cap", self.cap_sessions.clone());
        registry.register(
            "farhaul_store_pending_changes",
            "Changes that wait to be written to the store",
            self.store_pending.clone(),
        );
        registry.register(
            "farhaul_store_failing",
            "1 while the store cannot be written and new jobs are refused",
            self.store_failing.clone(),
        );
        registry.register(
            "farhaul_event_readers",
            "Connections that follow the events of the API",
            self.event_readers.clone(),
        );
        registry.register_with_unit(
            "process_resident_memory",
            "Memory of the process that is in RAM",
            Unit::Bytes,
            self.resident.clone(),
        );
        registry.register_with_unit(
            "process_virtual_memory",
            "Address space of the process",
            Unit::Bytes,
            self.virtual_memory.clone(),
        );
        registry.register("process_open_fds", "Open descriptors of the process", self.descriptors.clone());
        registry.register(
            "process_max_fds",
            "Descriptors that the process may open",
            self.descriptors_max.clone(),
        );
        registry.register("process_threads", "Threads of the process", self.threads.clone());
        registry.register_with_unit(
            "process_start_time",
            "When the process began, since 1970",
            Unit::Seconds,
            self.start.clone(),
        );
        let build = Info::new(BuildLabels { version: env!("CARGO_PKG_VERSION") });
        registry.register("farhaul_build", "The version of the program", build);
    }

    fn set_process(&self) {
        let process = host::process();
        let set = |gauge: &Gauge, value: Option<u64>| {
            gauge.set(value.and_then(|value| i64::try_from(value).ok()).unwrap_or(0));
        };
        set(&self.resident, process.resident_bytes);
        set(&self.virtual_memory, process.virtual_bytes);
        set(&self.descriptors, process.open_descriptors);
        set(&self.descriptors_max, process.descriptors_max);
        set(&self.threads, process.threads);
        self.start.set(process.start_s.unwrap_or(0.0));
    }
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut registry = Registry::default();
        let (counted, shown) = (CounterMetrics::new(), GaugeMetrics::default());
        counted.register(&mut registry);
        shown.register(&mut registry);
        Metrics {
            flows: Mutex::default(),
            registry: Mutex::new(registry),
            counted,
            shown,
            cap_bytes: Mutex::default(),
        }
    }

    // ---- what happens ----------------------------------------------------------------------------------------------

    /// Counts the errors of an attempt of a job, or of a request of a client, that has ended.
    pub(crate) fn attempt_ended(&self, report: Option<&Report>, error: Option<&Error>) {
        let failed = report.map(|report| report.failed.as_slice()).unwrap_or_default();
        for FailedEntry { code, .. } in failed {
            self.count_error(*code);
        }
        // The error of a transfer is often the same as that of its one failed entry, and is then counted
        // once.
        if let Some(error) = error.filter(|error| failed.iter().all(|entry| entry.code != error.code())) {
            self.count_error(error.code());
        }
    }

    fn count_error(&self, code: Code) {
        self.counted.errors.get_or_create(&CodeLabels { code: code.name() }).inc();
    }

    /// Counts a run of a job, or a request of a client, that has ended in this state.
    pub(crate) fn transfer_ended(
        &self,
        origin: OriginLabel,
        direction: DirectionLabel,
        state: JobState,
        seconds: f64,
    ) {
        let ended = EndLabels { origin: origin.name(), state: state.name() };
        self.counted.ended.get_or_create(&ended).inc();
        self.counted.seconds.get_or_create(&DirectionLabels { direction: direction.name() }).observe(seconds);
    }

    /// Counts a run that has ended too late.
    pub(crate) fn deadline_missed(&self) {
        self.counted.late.inc();
    }

    /// Counts a message that a webhook's receiver has taken.
    pub(crate) fn webhook_delivered(&self) {
        self.counted.webhooks_delivered.inc();
    }

    /// Counts messages to webhooks that will never arrive.
    pub(crate) fn webhooks_dropped(&self, reason: WebhookDrop, count: u64) {
        let labels = DropLabels { reason: reason.name() };
        self.counted.webhooks_dropped.get_or_create(&labels).inc_by(count);
    }

    /// Counts bytes that a client has read: the service `read` has no counts while it runs.
    fn read(&self, bytes: u64) {
        self.counted
            .bytes
            .get_or_create(&DirectionLabels { direction: DirectionLabel::Sent.name() })
            .inc_by(bytes);
    }

    /// Counts an answer of the API. `route` is a template of the router.
    pub(crate) fn answered(&self, method: &'static str, route: &str, status: u16) {
        self.counted.requests.get_or_create(&RequestLabels { method, route: route.into(), status }).inc();
    }

    /// Content bytes that were moved so far, including those of running transfers.
    pub(crate) fn moved(&self) -> ContentBytes {
        self.flows.lock().in_any_case().look(&self.counted);
        let bytes = |direction: DirectionLabel| {
            self.counted.bytes.get_or_create(&DirectionLabels { direction: direction.name() }).get()
        };
        ContentBytes {
            sent_bytes: bytes(DirectionLabel::Sent),
            received_bytes: bytes(DirectionLabel::Received),
            local_bytes: bytes(DirectionLabel::Local),
        }
    }

    // ---- how things are --------------------------------------------------------------------------------------------

    /// All metrics as text.
    pub(crate) fn text(&self, node: &Node, format: Format) -> Result<String, Error> {
        let registry = self.registry.lock().in_any_case();
        self.set_node(node);
        self.set_flows();
        self.shown.set_process();
        let mut text = String::with_capacity(32 << 10);
        let written = match format {
            Format::OpenMetrics => prometheus_client::encoding::text::encode(&mut text, &registry),
            Format::Prometheus => prometheus_client::encoding::prometheus_text::encode(&mut text, &registry),
        };
        written.map_err(|error| Error::bug(format!("metrics as text: {error}")))?;
        Ok(text)
    }

    fn set_node(&self, node: &Node) {
        let shown = &self.shown;
        // If the store cannot be read, the numbers of jobs are unknown; another metric says that the store
        // fails.
        match node.store.read(crate::store::jobs::counts) {
            Err(_) => shown.jobs.clear(),
            Ok(counts) => {
                for state in JobState::ALL {
                    let count = counts.iter().find(|(one, _)| *one == state).map_or(0, |(_, count)| *count);
                    let count = i64::try_from(count).unwrap_or(i64::MAX);
                    shown.jobs.get_or_create(&StateLabels { state: state.name() }).set(count);
                }
            }
        }
        shown.behind.set(i64::try_from(node.jobs_behind()).unwrap_or(i64::MAX));
        let level = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let watches = node.watches_failing();
        shown.watches.set(level(watches.len()));
        shown.watches_failing.set(level(watches.iter().flatten().count()));
        let sum = |of: fn(&FailingFiles) -> u64| {
            i64::try_from(watches.iter().flatten().map(of).sum::<u64>()).unwrap_or(i64::MAX)
        };
        let retried = sum(|failing| failing.retried);
        let set = |retryable, count| {
            shown.watch_files_failing.get_or_create(&RetryableLabels { retryable }).set(count);
        };
        set("true", retried);
        set("false", sum(|failing| failing.files).saturating_sub(retried));
        shown.store_failing.set(i64::from(node.store.is_failing()));
        shown.store_pending.set(i64::try_from(node.store.pending()).unwrap_or(i64::MAX));
        shown.event_readers.set(i64::try_from(node.hub.readers()).unwrap_or(i64::MAX));
        shown.cap_limit.clear();
        shown.cap_sessions.clear();
        let figures = node.cap_figures();
        let mut before = self.cap_bytes.lock().in_any_case();
        for gone in before.keys().filter(|name| figures.iter().all(|cap| cap.name != **name)) {
            self.counted.cap_bytes.remove(&CapLabels { cap: gone.clone() });
        }
        before.retain(|name, _| figures.iter().any(|cap| cap.name == *name));
        for CapFigures { name, limit_bps, moved_bytes, sessions } in figures {
            // The count of a cap that was changed may begin at 0 again.
            let new = running_transfers::grown(moved_bytes, before.entry(name.clone()).or_default());
            let cap = CapLabels { cap: name };
            self.counted.cap_bytes.get_or_create(&cap).inc_by(new);
            shown.cap_sessions.get_or_create(&cap).set(i64::try_from(sessions).unwrap_or(i64::MAX));
            if let Some(limit) = limit_bps {
                shown.cap_limit.get_or_create(&cap).set(limit / 8.0);
            }
        }
        let used = host::process().cpu_s.unwrap_or(0.0);
        // The kernel's own count only grows.
        self.counted.cpu.inner().store(used.to_bits(), std::sync::atomic::Ordering::Relaxed);
    }

    fn set_flows(&self) {
        let shown = &self.shown;
        let sums = self.flows.lock().in_any_case().look(&self.counted);
        for direction in DirectionLabel::ALL {
            let goodput = sums.goodput_bps.get(&direction).copied().unwrap_or(0.0);
            shown.goodput.get_or_create(&DirectionLabels { direction: direction.name() }).set(goodput / 8.0);
            for origin in OriginLabel::ALL {
                let count = sums.running.get(&(origin, direction)).copied().unwrap_or(0);
                let labels = TransferLabels { origin: origin.name(), direction: direction.name() };
                shown.transfers.get_or_create(&labels).set(count);
            }
        }
        shown.target.set(sums.target_bps / 8.0);
        // While nothing runs there is no round trip, which is not the same as a short one.
        for (family, figures) in [(&shown.rtt, &sums.rtt_s), (&shown.loss, &sums.loss)] {
            family.clear();
            if let Some((mean, max)) = figures.mean_and_max() {
                family.get_or_create(&StatisticLabels { statistic: "mean" }).set(mean);
                family.get_or_create(&StatisticLabels { statistic: "max" }).set(max);
            }
        }
        shown.stages.clear();
        for ((end, stage), busy) in sums.stages {
            shown.stages.get_or_create(&StageLabels { end, stage }).set(busy);
        }
    }

    /// The transfer counts as running as long as the returned guard lives.
    pub(crate) fn watch(self: &Arc<Metrics>, watched: running_transfers::WatchedTransfer) -> WatchGuard {
        let key = self.flows.lock().in_any_case().add(watched);
        WatchGuard::new(self.clone(), key)
    }

    fn unwatch(&self, key: u64) {
        self.flows.lock().in_any_case().remove(key, &self.counted);
    }
}

pub(crate) use running_transfers::{SessionCounters, WatchedTransfer};

#[cfg(test)]
mod tests;
