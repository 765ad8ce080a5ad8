//! The history: records of jobs that have ended, their curves and receipts, and sums of what was used by
//! whom.

use farhaul_api::{HistoryPage, RecordDetail, RunCurve, UsageSums};
use std::fs::File;
use std::io::{ErrorKind, Read as _};

use axum::Json;
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use farhaul_words::{Code, Error};
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{App, May, PathParameters, QueryParameters, ToRead, ToSumUp, Worker};
use super::jobs::{bad_query, labels, moment, page};
use super::problem::HandlerFailure;
use crate::access::{Caller, CallerDeed};
use crate::node::{COUNTED_MAX, Node};
use crate::store::history::{self, RecordFilter, RecordKey, RecordPage, RecordPapers, UsageKey};
use farhaul_api::HistoryRecord;
use farhaul_api::JobId;
use farhaul_api::Scope;

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(curve))
        .routes(routes!(receipt))
        .routes(routes!(manifest))
        .routes(routes!(usage))
}

/// How many bytes of a manifest are read at a time.
const PIECE: u64 = 256 << 10;
/// The most records that are looked at for a page: a caller who sees few of them goes on with the cursor.
const LOOKS_MAX: usize = 10_000;
/// The most sums in one answer.
const SUMS_MAX: usize = 1000;

/// Which records to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RecordQuery {
    /// Records of this job.
    job: Option<String>,
    /// The other host, as records show it.
    peer: Option<String>,
    /// The caller that submitted the job.
    owner: Option<String>,
    /// States, separated by commas.
    state: Option<String>,
    /// Labels of the job: `name=value`, separated by commas.
    label: Option<String>,
    /// A part of the source, the destination, the peer, the error, the job's id or one of its labels
    /// (`name=value`).
    text: Option<String>,
    /// Ended at or after this moment (RFC 3339).
    since: Option<String>,
    /// Ended before this moment.
    until: Option<String>,
    /// True to count all matching records, too.
    count: bool,
    /// How many entries the page has, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// How many entries to skip before the page.
    offset: Option<usize>,
    /// Where the page before this one ended.
    cursor: Option<i64>,
}

impl RecordQuery {
    fn wanted(self) -> Result<RecordFilter, HandlerFailure> {
        let job = self.job.map(|text| text.parse::<JobId>().map_err(|error| bad_query(&error.to_string())));
        let states = self.state.iter().flat_map(|text| text.split(',')).filter(|name| !name.is_empty());
        Ok(RecordFilter {
            job: job.transpose()?,
            peer: self.peer,
            owner: self.owner,
            states: states.map(ToString::to_string).collect(),
            labels: labels(self.label.as_deref())?,
            text: self.text,
            since_ms: moment(self.since.as_deref())?,
            until_ms: moment(self.until.as_deref())?,
            now: None,
            before: self.cursor,
            offset: self.offset.unwrap_or(0),
        })
    }
}

/// True if the caller may see a record: it must be allowed to see the job, or everything.
fn sees(caller: &Caller, key: &RecordKey<'_>) -> bool {
    caller.has(Scope::Admin) || key.places.is_some() && crate::node::sees(caller, key.places)
}

/// The same for a record that was read.
fn is_seen(node: &Node, caller: &Caller, record: &HistoryRecord) -> bool {
    let job = record.job.as_deref().and_then(|job| job.parse::<JobId>().ok());
    caller.has(Scope::Admin) || job.is_some_and(|job| node.row(caller, job).is_ok())
}

/// The records of jobs that have ended.
#[utoipa::path(get, path = "/history", tag = "history", params(RecordQuery),
    responses((status = 200, description = "A page of records", body = HistoryPage)))]
async fn list(
    may: May<ToRead>,
    QueryParameters(which): QueryParameters<RecordQuery>,
) -> Result<Json<HistoryPage>, HandlerFailure> {
    let (limit, with_count) = (page(which.limit)?, which.count);
    let mut wanted = which.wanted()?;
    let listed = may.act("list history", "", move |node, caller| {
        // A caller that was told of a job's end must find its record.
        node.store.settle();
        wanted.now = Some(node.moment());
        if caller.has(Scope::Admin) {
            return node.store.read(|connection| {
                let count = with_count.then(|| history::count(connection, &wanted)).transpose()?;
                let page = history::list(connection, &wanted, (limit, usize::MAX), |_| true)?;
                Ok((page, count.map(|count| (count, false))))
            });
        }
        let mut left_out = std::mem::take(&mut wanted.offset);
        let looks = if left_out > 0 { COUNTED_MAX } else { LOOKS_MAX };
        let is_shown = |key: &RecordKey<'_>| {
            let is_seen = sees(caller, key);
            let is_before = is_seen && left_out > 0;
            left_out -= usize::from(is_before);
            is_seen && !is_before
        };
        let records =
            node.store.read(|connection| history::list(connection, &wanted, (limit, looks), is_shown))?;
        let all = RecordFilter { before: None, ..wanted.clone() };
        let count = || -> Result<(u64, bool), Error> {
            let mut count = 0;
            let counted = |key: &RecordKey<'_>| count += u64::from(sees(caller, key));
            let is_cut =
                node.store.read(|connection| history::keys(connection, &all, COUNTED_MAX, counted))?;
            Ok((count, is_cut))
        };
        Ok((records, with_count.then(count).transpose()?))
    });
    let (RecordPage { records, last: next_cursor }, counted) = listed.await?;
    let (count, count_is_cut) = (counted.map(|(count, _)| count), counted.is_some_and(|(_, is_cut)| is_cut));
    Ok(Json(HistoryPage { records, next_cursor, count, count_is_cut }))
}

fn find(node: &Node, caller: &Caller, id: i64) -> Result<(HistoryRecord, RecordPapers), Error> {
    caller.may(CallerDeed::Any(Scope::Read))?;
    let no_such = || Error::new(Code::NoSuchThing, format!("there is no record {id}"));
    let record = node.store.read(|connection| history::get(connection, id))?.ok_or_else(no_such)?;
    if !is_seen(node, caller, &record) {
        return Err(no_such());
    }
    let papers = node.store.read(|connection| history::papers(connection, id))?.ok_or_else(no_such)?;
    Ok((record, papers))
}

/// One record.
#[utoipa::path(get, path = "/history/{id}", tag = "history", params(("id" = i64, Path)),
    responses((status = 200, description = "The record", body = RecordDetail)))]
async fn show(
    may: May<ToRead>,
    PathParameters(id): PathParameters<i64>,
) -> Result<Json<RecordDetail>, HandlerFailure> {
    let (record, papers) =
        may.act("show record", id.to_string(), move |node, caller| find(node, caller, id)).await?;
    let report = papers.report.and_then(|text| serde_json::value::RawValue::from_string(text).ok());
    Ok(Json(RecordDetail { record, report }))
}

/// The curve of a run: at most 600 points.
#[utoipa::path(get, path = "/history/{id}/curve", tag = "history", params(("id" = i64, Path)),
    responses((status = 200, description = "The points", body = RunCurve)))]
async fn curve(
    may: May<ToRead>,
    PathParameters(id): PathParameters<i64>,
) -> Result<Json<RunCurve>, HandlerFailure> {
    let (_, papers) =
        may.act("show record", id.to_string(), move |node, caller| find(node, caller, id)).await?;
    let points = papers.curve.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    Ok(Json(RunCurve { points }))
}

/// The receipt that both ends have signed for a run.
#[utoipa::path(get, path = "/history/{id}/receipt", tag = "history", params(("id" = i64, Path)),
    responses((status = 200, description = "The receipt (docs/guide/receipts.md)", body = Object)))]
async fn receipt(
    may: May<ToRead>,
    PathParameters(id): PathParameters<i64>,
) -> Result<Response, HandlerFailure> {
    let (record, papers) =
        may.act("show record", id.to_string(), move |node, caller| find(node, caller, id)).await?;
    let none = || {
        let what = format!("record {id} has no receipt");
        Error::new(Code::NoSuchThing, what)
            .with_hint("ask for one when a job is submitted; transfers over SSH have no receipt")
    };
    let text = papers.receipt.ok_or_else(none)?;
    let kind = (header::CONTENT_TYPE, "application/json".to_string());
    Ok(([kind, saved_as(&record, "receipt.json")], text).into_response())
}

/// The header with the file name that a browser saves the answer under.
fn saved_as(record: &HistoryRecord, ending: &str) -> (header::HeaderName, String) {
    let name = match (&record.job, record.run) {
        (Some(job), Some(run)) => format!("{job}-{run}"),
        _ => format!("record-{}", record.id),
    };
    (header::CONTENT_DISPOSITION, format!("attachment; filename=\"farhaul-{name}.{ending}\""))
}

/// The manifest of a run: what became of each entry, one line each (docs/guide/verify.md).
#[utoipa::path(get, path = "/history/{id}/manifest", tag = "history", params(("id" = i64, Path)),
    responses((status = 200, description = "The manifest", body = String, content_type = "application/x-ndjson")))]
async fn manifest(
    may: May<ToRead>,
    PathParameters(id): PathParameters<i64>,
) -> Result<Response, HandlerFailure> {
    let worker = may.worker();
    let opened = may.act("show record", id.to_string(), move |node, caller| {
        let (record, _) = find(node, caller, id)?;
        let none = || Error::new(Code::NoSuchThing, format!("record {id} has no manifest"));
        let job = record.job.as_deref().and_then(|job| job.parse::<JobId>().ok());
        let path = job.zip(record.run).map(|(job, run)| node.manifest_of_run(job, run)).ok_or_else(none)?;
        match std::fs::File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file))) {
            Ok((len, file)) => Ok((record, file, len)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(none()),
            Err(error) => Err(Error::of_host(format!("cannot read {}", path.display()), error)),
        }
    });
    let (record, file, len) = opened.await?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson".to_string()),
        (header::CONTENT_LENGTH, len.to_string()),
        saved_as(&record, "manifest.jsonl"),
    ];
    Ok((headers, Body::from_stream(pieces(worker, file, len))).into_response())
}

/// The content of a file, read only as fast as the client takes it.
fn pieces(worker: Worker, file: File, len: u64) -> impl Stream<Item = std::io::Result<Vec<u8>>> {
    unfold((worker, file, len), |(worker, mut file, left)| async move {
        if left == 0 {
            return None;
        }
        let read = move || {
            let mut piece = Vec::new();
            let most = left.min(PIECE);
            let read = std::io::Read::by_ref(&mut file).take(most).read_to_end(&mut piece);
            let read =
                read.and_then(|len| if len == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(piece) });
            Ok((file, read))
        };
        match worker.work(read).await {
            Ok((file, Ok(piece))) => {
                let left = left.saturating_sub(piece.len() as u64);
                Some((Ok(piece), (worker, file, left)))
            }
            Ok((file, Err(error))) => Some((Err(error), (worker, file, 0))),
            Err(_) => None,
        }
    })
}

/// The sums to compute.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct UsageQuery {
    /// The key to sum by: `peer`, `user`, `day`, or `label:NAME`.
    by: String,
    /// Ended at or after this moment (RFC 3339).
    #[serde(default)]
    since: Option<String>,
    /// Ended before this moment.
    #[serde(default)]
    until: Option<String>,
}

/// How much was moved, summed up by peer, user, day or label. As the sums cover all transfers, this needs the
/// scope `admin`.
#[utoipa::path(get, path = "/usage", tag = "history", params(UsageQuery),
    responses((status = 200, description = "The sums", body = UsageSums)))]
async fn usage(
    may: May<ToSumUp>,
    QueryParameters(asked): QueryParameters<UsageQuery>,
) -> Result<Json<UsageSums>, HandlerFailure> {
    let by = match asked.by.as_str() {
        "peer" => UsageKey::Peer,
        "user" => UsageKey::Owner,
        "day" => UsageKey::Day,
        other => match other.strip_prefix("label:").filter(|name| !name.is_empty()) {
            Some(name) => UsageKey::Label(name.to_string()),
            None => return Err(bad_query("by must be peer, user, day or label:NAME")),
        },
    };
    let mut wanted = RecordFilter {
        since_ms: moment(asked.since.as_deref())?,
        until_ms: moment(asked.until.as_deref())?,
        ..RecordFilter::default()
    };
    let usage = may.act("show usage", "", move |node, _| {
        node.store.settle();
        wanted.now = Some(node.moment());
        node.store.read(|connection| history::usage(connection, &by, &wanted, SUMS_MAX))
    });
    Ok(Json(UsageSums { usage: usage.await? }))
}
