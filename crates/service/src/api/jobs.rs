//! Jobs: submit them, list them, look at them and steer them.

use farhaul_api::{JobDetail, JobFilePage, JobPage, LiveRatesList, LogPage};
use std::str::FromStr as _;

use axum::Json;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use farhaul_words::{Code, Error};
use jiff::Timestamp;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{
    App, JsonBody, May, PathParameters, QueryParameters, ToControl, ToRead, ToSubmit, ToTake,
};
use super::problem::HandlerFailure;
use crate::job::JobSpec;
use crate::node::{JobListPage, RetryRequest, Submission};
use crate::store::jobs::JobFilter;
use crate::store::log::{self};
use farhaul_api::LiveCurve;
use farhaul_api::{JobChange, JobView};
use farhaul_api::{JobId, JobState, LABELS_MAX};

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, submit))
        .routes(routes!(show, change))
        .routes(routes!(document))
        .routes(routes!(curve))
        .routes(routes!(curves))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(cancel))
        .routes(routes!(retry))
        .routes(routes!(take))
        .routes(routes!(lines))
        .routes(routes!(files))
}

/// How many entries a page has by default, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1000;
/// The most characters of an idempotency key.
const KEY_MAX: usize = 128;

/// How many entries a page has; an error if `limit` is out of range.
pub(super) fn page(limit: Option<usize>) -> Result<usize, HandlerFailure> {
    match limit {
        None => Ok(PAGE),
        Some(limit) if (1..=PAGE_MAX).contains(&limit) => Ok(limit),
        Some(_) => Err(bad_query(&format!("limit must be between 1 and {PAGE_MAX}"))),
    }
}

pub(super) fn bad_query(what: &str) -> HandlerFailure {
    HandlerFailure::with_status(Error::new(Code::BadOption, what), StatusCode::BAD_REQUEST)
}

/// Parses `name=value` pairs, separated by commas.
pub(super) fn labels(text: Option<&str>) -> Result<Vec<(String, String)>, HandlerFailure> {
    let pairs = text.into_iter().flat_map(|text| text.split(',')).filter(|pair| !pair.is_empty());
    // Each row is compared with all of them.
    if pairs.clone().nth(LABELS_MAX).is_some() {
        return Err(bad_query(&format!("no job has more than {LABELS_MAX} labels")));
    }
    pairs
        .map(|pair| farhaul_api::Labels::parse_one(pair).map_err(|error| bad_query(&error.to_string())))
        .collect()
}

pub(super) fn moment(text: Option<&str>) -> Result<Option<i64>, HandlerFailure> {
    let bad = |_| bad_query("write a time as 2027-01-31T06:00:00Z");
    text.map(|text| Timestamp::from_str(text).map(|moment| moment.as_millisecond()).map_err(bad)).transpose()
}

/// Which jobs to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct JobQuery {
    /// States, separated by commas; `unfinished` stands for all in which a job is not over.
    state: Option<String>,
    /// Labels that a job must have, all of them: `name=value`, separated by commas.
    label: Option<String>,
    /// The other host, as jobs show it.
    peer: Option<String>,
    /// The caller that submitted it.
    owner: Option<String>,
    /// A part of the id, a source, the destination, the peer or a label.
    text: Option<String>,
    /// Changed at or after this moment (RFC 3339).
    since: Option<String>,
    /// `newest` by default; `queue` lists the jobs that are not over, in the order in which they start.
    #[param(inline)]
    order: Order,
    /// True to count the jobs of each state, too.
    counts: bool,
    /// How many entries the page has, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// How many entries to skip before the page. Prefer a cursor: jobs may come and go between two pages, and only the
    /// newest 50,000 are looked at for the entries of a caller that does not see all jobs.
    offset: Option<usize>,
    /// Where the page before this one ended; not with the order `queue`.
    cursor: Option<String>,
}

/// The order in which jobs are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    /// The newest first.
    #[default]
    Newest,
    /// The jobs that are not over, in the order in which they start.
    Queue,
}

/// The jobs that the caller may see.
#[utoipa::path(get, path = "/jobs", tag = "jobs", params(JobQuery),
    responses((status = 200, description = "A page of jobs", body = JobPage)))]
async fn list(
    may: May<ToRead>,
    QueryParameters(which): QueryParameters<JobQuery>,
) -> Result<Json<JobPage>, HandlerFailure> {
    let limit = page(which.limit)?;
    let state = |name: &str| {
        // People may write the words of a table: "partly failed".
        JobState::of_name(&name.replace(' ', "_"))
            .ok_or_else(|| bad_query(&format!("no state is called '{name}'")))
    };
    let mut states = Vec::new();
    for name in which.state.iter().flat_map(|text| text.split(',')).filter(|name| !name.is_empty()) {
        match name {
            "unfinished" => states.extend(JobState::ALL.into_iter().filter(|state| !state.is_final())),
            name => states.push(state(name)?),
        }
    }
    let before =
        which.cursor.map(|text| JobId::from_str(&text).map_err(|_| bad_query("the cursor is not valid")));
    let wanted = JobFilter {
        states,
        labels: labels(which.label.as_deref())?,
        peer: which.peer,
        owner: which.owner,
        text: which.text,
        since_ms: moment(which.since.as_deref())?,
        now: None,
        before: before.transpose()?,
        offset: which.offset.unwrap_or(0),
    };
    let (order, with_counts) = (which.order, which.counts);
    if order == Order::Queue && wanted.before.is_some() {
        return Err(bad_query("with the order 'queue' give an offset and no cursor"));
    }
    let listed = may.act("list jobs", "", move |node, caller| {
        let jobs = match order {
            Order::Newest => node.list(caller, &wanted, limit)?,
            Order::Queue => JobListPage { jobs: node.queue(caller, &wanted, limit)?, last: None },
        };
        let counts = with_counts.then(|| node.counts(caller, &wanted)).transpose()?;
        Ok((jobs, counts))
    });
    let (JobListPage { jobs, last }, counts) = listed.await?;
    let next_cursor = last.map(|job| job.to_string());
    let counts_are_cut = counts.as_ref().is_some_and(|counts| counts.is_cut);
    Ok(Json(JobPage { jobs, next_cursor, counts: counts.map(|counts| counts.of_state), counts_are_cut }))
}

/// Submits a job. The answer comes when the job is on the disk; the job begins when there is room for it.
#[utoipa::path(post, path = "/jobs", tag = "jobs", request_body = JobSpec,
    params(("Idempotency-Key" = Option<String>, Header,
        description = "Requests with the same key and the same body within 24 hours make one job only")),
    responses((status = 201, description = "The job", body = JobView, headers(("Location" = String)))))]
async fn submit(may: May<ToSubmit>, headers: HeaderMap, body: JsonBody) -> Result<Response, HandlerFailure> {
    let spec = JobSpec::read(&body.bytes).map_err(|error| {
        match serde_json::from_slice::<serde::de::IgnoredAny>(&body.bytes) {
            Ok(_) => HandlerFailure::from(error),
            Err(_) => HandlerFailure::with_status(error, StatusCode::BAD_REQUEST),
        }
    })?;
    let idempotency = match headers.get("idempotency-key") {
        None => None,
        Some(key) => {
            let key = key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= KEY_MAX);
            let key = key.ok_or_else(|| bad_query("an Idempotency-Key must have 1 to 128 characters"))?;
            Some((key.to_string(), blake3::hash(&body.bytes).as_bytes().to_vec()))
        }
    };
    let target = format!("{} -> {}", spec.sources.join(" "), spec.destination);
    let submission = Submission { spec, idempotency };
    let job = may.act("submit", target, move |node, caller| node.submit(caller, submission)).await?;
    let location = format!("/api/v1/jobs/{}", job.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(job)).into_response())
}

/// One job.
#[utoipa::path(get, path = "/jobs/{id}", tag = "jobs", params(("id" = String, Path, description = "The job's id")),
    responses((status = 200, description = "The job", body = JobDetail)))]
async fn show(
    may: May<ToRead>,
    PathParameters(id): PathParameters<JobId>,
) -> Result<Json<JobDetail>, HandlerFailure> {
    let detail = may.act("show job", id.to_string(), move |node, caller| {
        let job = node.job(caller, id)?;
        Ok(JobDetail { job, transfer: node.snapshot(id) })
    });
    detail.await.map(Json)
}

/// The document that a job was submitted with.
#[utoipa::path(get, path = "/jobs/{id}/document", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, description = "The document, with defaults filled in", body = JobSpec)))]
async fn document(
    may: May<ToRead>,
    PathParameters(id): PathParameters<JobId>,
) -> Result<Json<JobSpec>, HandlerFailure> {
    may.act("show job", id.to_string(), move |node, caller| node.document(caller, id)).await.map(Json)
}

/// How the transfer of a running job goes: its last five minutes, one point a second, with its paths.
/// `progress` events continue it; the curve of a whole run is in its record.
#[utoipa::path(get, path = "/jobs/{id}/curve", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, description = "The lists; empty while there is no transfer", body = LiveCurve)))]
async fn curve(
    may: May<ToRead>,
    PathParameters(id): PathParameters<JobId>,
) -> Result<Json<LiveCurve>, HandlerFailure> {
    may.act("show curve", id.to_string(), move |node, caller| node.live_curve(caller, id)).await.map(Json)
}

/// How fast each running transfer was over its last five minutes.
#[utoipa::path(get, path = "/curves", tag = "jobs",
    responses((status = 200, description = "One list for each transfer that the caller may see", body = LiveRatesList)))]
async fn curves(may: May<ToRead>) -> Result<Json<LiveRatesList>, HandlerFailure> {
    let curves = may.act("show curves", "", |node, caller| node.live_rates(caller)).await?;
    Ok(Json(LiveRatesList { curves }))
}

/// Changes a job, also while it runs.
#[utoipa::path(patch, path = "/jobs/{id}", tag = "jobs", params(("id" = String, Path)), request_body = JobChange,
    responses((status = 200, description = "The job as it is now", body = JobView)))]
async fn change(
    may: May<ToControl>,
    PathParameters(id): PathParameters<JobId>,
    body: JsonBody,
) -> Result<Json<JobView>, HandlerFailure> {
    let change: JobChange = body.read()?;
    may.act("change job", id.to_string(), move |node, caller| node.change(caller, id, &change))
        .await
        .map(Json)
}

/// Pauses a job: it sends nothing new until it is resumed.
#[utoipa::path(post, path = "/jobs/{id}/pause", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, description = "The job as it is now", body = JobView)))]
async fn pause(
    may: May<ToControl>,
    PathParameters(id): PathParameters<JobId>,
) -> Result<Json<JobView>, HandlerFailure> {
    may.act("pause job", id.to_string(), move |node, caller| node.pause(caller, id)).await.map(Json)
}

/// Resumes a paused job.
#[utoipa::path(post, path = "/jobs/{id}/resume", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, description = "The job as it is now", body = JobView)))]
async fn resume(
    may: May<ToControl>,
    PathParameters(id): PathParameters<JobId>,
) -> Result<Json<JobView>, HandlerFailure> {
    may.act("resume job", id.to_string(), move |node, caller| node.resume(caller, id)).await.map(Json)
}

/// Cancels a job. Files that have arrived stay.
#[utoipa::path(post, path = "/jobs/{id}/cancel", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, description = "The job as it is now; a running job is cancelled a moment later", body = JobView)))]
async fn cancel(
    may: May<ToControl>,
    PathParameters(id): PathParameters<JobId>,
) -> Result<Json<JobView>, HandlerFailure> {
    may.act("cancel job", id.to_string(), move |node, caller| node.cancel(caller, id)).await.map(Json)
}

/// Begins another run of a job that has ended, or begins the next attempt of a waiting job now.
#[utoipa::path(post, path = "/jobs/{id}/retry", tag = "jobs", params(("id" = String, Path), RetryRequest),
    responses((status = 200, description = "The job as it is now", body = JobView)))]
async fn retry(
    may: May<ToControl>,
    PathParameters(id): PathParameters<JobId>,
    QueryParameters(how): QueryParameters<RetryRequest>,
) -> Result<Json<JobView>, HandlerFailure> {
    may.act("retry job", id.to_string(), move |node, caller| node.retry(caller, id, how)).await.map(Json)
}

/// Takes over a job that was stopped because the token of its owner is not valid any more. It goes on as the
/// caller's job, or waits for its next time.
#[utoipa::path(post, path = "/jobs/{id}/take", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, description = "The job as it is now", body = JobView)))]
async fn take(
    may: May<ToTake>,
    PathParameters(id): PathParameters<JobId>,
) -> Result<Json<JobView>, HandlerFailure> {
    may.act("take job", id.to_string(), move |node, caller| node.take(caller, id)).await.map(Json)
}

/// Which lines of the log to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LogQuery {
    /// Only lines after this number.
    after: Option<u64>,
    /// How many lines the page has, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// The log of a job, oldest line first.
#[utoipa::path(get, path = "/jobs/{id}/log", tag = "jobs", params(("id" = String, Path), LogQuery),
    responses((status = 200, description = "A page of lines", body = LogPage)))]
async fn lines(
    may: May<ToRead>,
    PathParameters(id): PathParameters<JobId>,
    QueryParameters(asked): QueryParameters<LogQuery>,
) -> Result<Json<LogPage>, HandlerFailure> {
    let limit = page(asked.limit)?;
    let after = asked.after.unwrap_or(0);
    let lines = may.act("show log", id.to_string(), move |node, caller| {
        node.row(caller, id)?;
        node.store.read(|connection| log::list(connection, id, after, limit))
    });
    Ok(Json(LogPage { lines: lines.await? }))
}

/// Which entries to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct FileQuery {
    /// Results of the entries: `sent`, `unchanged`, `failed` and so on (docs/guide/verify.md), separated
    /// by commas.
    result: Option<String>,
    /// The run; the last one by default.
    run: Option<u32>,
    /// How many entries the page has, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Where the page before this one ended.
    cursor: Option<u64>,
}

/// Lists what became of each entry of a job.
#[utoipa::path(get, path = "/jobs/{id}/files", tag = "jobs", params(("id" = String, Path), FileQuery),
    responses((status = 200, description = "A page of entries", body = JobFilePage)))]
async fn files(
    may: May<ToRead>,
    PathParameters(id): PathParameters<JobId>,
    QueryParameters(asked): QueryParameters<FileQuery>,
) -> Result<Json<JobFilePage>, HandlerFailure> {
    let limit = page(asked.limit)?;
    let results: Vec<String> =
        asked.result.iter().flat_map(|text| text.split(',')).map(ToString::to_string).collect();
    if let Some(unknown) = results.iter().find(|name| !farhaul::sisters::is_manifest_result(name)) {
        let name = farhaul_text::printable(unknown.as_bytes(), 40);
        return Err(bad_query(&format!("no result is called '{name}'")));
    }
    let page = may.act("show files", id.to_string(), move |node, caller| {
        let row = node.row(caller, id)?;
        let run = asked.run.unwrap_or(row.run);
        node.manifest_page(id, run, &results, asked.cursor.unwrap_or(0), limit)
    });
    let (files, next_cursor) = page.await?;
    Ok(Json(JobFilePage { files, next_cursor }))
}
