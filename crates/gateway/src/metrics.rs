//! Counts of what the gateway does, for Prometheus. They are at `/metrics` of a listener of their own.

use std::sync::atomic::AtomicU64;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::Arc;

/// Where a chunk has come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum ChunkSource {
    Disk,
    Sibling,
    FarEnd,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    method: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source: ChunkSource,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PutLabels {
    kept: &'static str,
}

pub(crate) struct Metrics {
    registry: Registry,
    answers: Family<AnswerLabels, Counter>,
    body_bytes: Counter,
    under_way: Gauge,
    chunks: Family<SourceLabels, Counter>,
    chunk_bytes: Family<SourceLabels, Counter>,
    joined: Counter,
    puts: Family<PutLabels, Counter>,
    log_lost: Counter<u64, AtomicU64>,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::with_prefix("farhaul_gateway"),
            answers: Family::default(),
            body_bytes: Counter::default(),
            under_way: Gauge::default(),
            chunks: Family::default(),
            chunk_bytes: Family::default(),
            joined: Counter::default(),
            puts: Family::default(),
            log_lost: Counter::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("answers", "Answers, by method and status", metrics.answers.clone());
        let help = "Bytes of bodies that connections have taken";
        registry.register_with_unit("body", help, Unit::Bytes, metrics.body_bytes.clone());
        registry.register("answers_under_way", "Answers that are not over", metrics.under_way.clone());
        let help = "Chunks or parts of chunks that were taken from the disk, a sibling or the far end";
        registry.register("chunks", help, metrics.chunks.clone());
        registry.register_with_unit("chunk", "Their bytes", Unit::Bytes, metrics.chunk_bytes.clone());
        let help = "Waits for a chunk that was on its way for somebody else";
        registry.register("chunks_joined", help, metrics.joined.clone());
        let help = "Chunks that were fetched, and whether the disk has kept them";
        registry.register("chunks_put", help, metrics.puts.clone());
        let help = "Lines that the access log has lost because the disk was too slow";
        registry.register("access_log_lost", help, metrics.log_lost.clone());
        metrics
    }

    pub(crate) fn chunk(&self, source: ChunkSource, bytes: u64) {
        let labels = SourceLabels { source };
        self.chunks.get_or_create(&labels).inc();
        self.chunk_bytes.get_or_create(&labels).inc_by(bytes);
    }

    pub(crate) fn joined(&self) {
        self.joined.inc();
    }

    pub(crate) fn put(&self, is_kept: bool) {
        self.puts.get_or_create(&PutLabels { kept: if is_kept { "yes" } else { "no" } }).inc();
    }

    pub(crate) fn answer_begins(&self) {
        self.under_way.inc();
    }

    /// An answer is over, after so many bytes of its body.
    pub(crate) fn answer_ends(&self, method: &'static str, status: u16, bytes: u64) {
        self.under_way.dec();
        self.body_bytes.inc_by(bytes);
        self.answers.get_or_create(&AnswerLabels { method, status }).inc();
    }

    pub(crate) fn log_lost(&self) {
        self.log_lost.inc();
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // A string takes everything.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

pub(crate) fn router(metrics: Arc<Metrics>) -> Router {
    Router::new().route("/metrics", get(answer)).with_state(metrics)
}

async fn answer(State(metrics): State<Arc<Metrics>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")], metrics.text())
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_is_counted() {
        let metrics = Metrics::new();
        metrics.chunk(ChunkSource::FarEnd, 77);
        metrics.put(true);
        metrics.answer_begins();
        metrics.answer_ends("GET", 206, 5);
        let text = metrics.text();
        for line in [
            "farhaul_gateway_answers_total{method=\"GET\",status=\"206\"} 1",
            "farhaul_gateway_chunk_bytes_total{source=\"FarEnd\"} 77",
            "farhaul_gateway_chunks_put_total{kept=\"yes\"} 1",
            "farhaul_gateway_answers_under_way 0",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} in {text}");
        }
    }
}
