//! What has ended: records, their curves and receipts, and what was used by whom.

use axum::Json;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use farhaul_session::{Code, Error};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{App, Ask, At, May, ToRead};
use super::jobs::{bad_query, labels, moment, page};
use super::problem::Failure;
use crate::access::{Caller, Deed, Scope};
use crate::history::curve::Point;
use crate::job::JobId;
use crate::node::Node;
use crate::store::history::{self, By, Papers, Record, Usage, Wanted};

pub(super) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(curve))
        .routes(routes!(receipt))
        .routes(routes!(usage))
}

/// Sums of one answer.
const SUMS_MAX: usize = 1000;

/// Which records are wanted.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Which {
    /// Runs of this job.
    job: Option<String>,
    /// The other host, as records show it.
    peer: Option<String>,
    /// Who wanted it.
    owner: Option<String>,
    /// States, separated by commas.
    state: Option<String>,
    /// Labels of the job: `name=value`, separated by commas.
    label: Option<String>,
    /// A part of the source or the destination.
    text: Option<String>,
    /// Ended at or after this moment (RFC 3339).
    since: Option<String>,
    /// Ended before this moment.
    until: Option<String>,
    /// Entries of a page, 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Where the page before this one has ended.
    cursor: Option<i64>,
}

impl Which {
    fn wanted(self) -> Result<Wanted, Failure> {
        let job = self.job.map(|text| text.parse::<JobId>().map_err(|error| bad_query(&error.to_string())));
        let states = self.state.iter().flat_map(|text| text.split(',')).filter(|name| !name.is_empty());
        Ok(Wanted {
            job: job.transpose()?,
            peer: self.peer,
            owner: self.owner,
            states: states.map(ToString::to_string).collect(),
            labels: labels(self.label.as_deref())?,
            text: self.text,
            since_ms: moment(self.since.as_deref())?,
            until_ms: moment(self.until.as_deref())?,
            before: self.cursor,
        })
    }
}

/// A page of records, the newest first.
#[derive(Debug, Serialize, ToSchema)]
struct Records {
    records: Vec<Record>,
    /// For the next page, if there is one.
    next_cursor: Option<i64>,
}

/// Whether the caller may see a record: as it may see the job, or everything.
fn is_seen(node: &Node, caller: &Caller, record: &Record) -> bool {
    let job = record.job.as_deref().and_then(|job| job.parse::<JobId>().ok());
    match job {
        Some(job) => node.row(caller, job).is_ok(),
        None => caller.has(Scope::Admin),
    }
}

/// What has ended.
#[utoipa::path(get, path = "/history", tag = "history", params(Which),
    responses((status = 200, description = "A page of records", body = Records)))]
async fn list(may: May<ToRead>, Ask(which): Ask<Which>) -> Result<Json<Records>, Failure> {
    let limit = page(which.limit)?;
    let wanted = which.wanted()?;
    let records = may.act("list history", "", move |node, caller| {
        let sees_all = caller.has(Scope::Admin);
        let is_seen = |record: &Record| sees_all || is_seen(node, caller, record);
        node.store.read(|connection| history::list(connection, &wanted, limit, is_seen))
    });
    let records = records.await?;
    let next_cursor = records.last().filter(|_| records.len() == limit).map(|record| record.id);
    Ok(Json(Records { records, next_cursor }))
}

/// A record, with the report of its last attempt.
#[derive(Debug, Serialize, ToSchema)]
struct RecordDetail {
    #[serde(flatten)]
    record: Record,
    /// As `farhaul cp --json` has it (docs/report.md).
    #[schema(value_type = Option<Object>)]
    report: Option<Box<serde_json::value::RawValue>>,
}

fn find(node: &Node, caller: &Caller, id: i64) -> Result<(Record, Papers), Error> {
    caller.may(Deed::Any(Scope::Read))?;
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
async fn show(may: May<ToRead>, At(id): At<i64>) -> Result<Json<RecordDetail>, Failure> {
    let (record, papers) =
        may.act("show record", id.to_string(), move |node, caller| find(node, caller, id)).await?;
    let report = papers.report.and_then(|text| serde_json::value::RawValue::from_string(text).ok());
    Ok(Json(RecordDetail { record, report }))
}

/// How a run went.
#[derive(Debug, Serialize, ToSchema)]
struct Curve {
    points: Vec<Point>,
}

/// The curve of a run: at most 600 points.
#[utoipa::path(get, path = "/history/{id}/curve", tag = "history", params(("id" = i64, Path)),
    responses((status = 200, description = "The points", body = Curve)))]
async fn curve(may: May<ToRead>, At(id): At<i64>) -> Result<Json<Curve>, Failure> {
    let (_, papers) =
        may.act("show record", id.to_string(), move |node, caller| find(node, caller, id)).await?;
    let points = papers.curve.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    Ok(Json(Curve { points }))
}

/// What both ends have signed about a run.
#[utoipa::path(get, path = "/history/{id}/receipt", tag = "history", params(("id" = i64, Path)),
    responses((status = 200, description = "The receipt (docs/receipts.md)", body = Object)))]
async fn receipt(may: May<ToRead>, At(id): At<i64>) -> Result<Response, Failure> {
    let (_, papers) =
        may.act("show record", id.to_string(), move |node, caller| find(node, caller, id)).await?;
    let none = || {
        let what = format!("record {id} has no receipt");
        Error::new(Code::NoSuchThing, what)
            .with_hint("ask for one when a job is submitted; over SSH there is none")
    };
    let text = papers.receipt.ok_or_else(none)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// What is summed up, and how.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Sums {
    /// `peer`, `user`, `day`, or `label:NAME`.
    by: String,
    /// Ended at or after this moment (RFC 3339).
    #[serde(default)]
    since: Option<String>,
    /// Ended before this moment.
    #[serde(default)]
    until: Option<String>,
}

/// Sums, the largest first.
#[derive(Debug, Serialize, ToSchema)]
struct Used {
    usage: Vec<Usage>,
}

/// What was moved, summed up by peer, user, day or label. It is about all transfers, and so needs the scope admin.
#[utoipa::path(get, path = "/usage", tag = "history", params(Sums),
    responses((status = 200, description = "The sums", body = Used)))]
async fn usage(may: May<ToRead>, Ask(asked): Ask<Sums>) -> Result<Json<Used>, Failure> {
    let by = match asked.by.as_str() {
        "peer" => By::Peer,
        "user" => By::Owner,
        "day" => By::Day,
        other => match other.strip_prefix("label:").filter(|name| !name.is_empty()) {
            Some(name) => By::Label(name.to_string()),
            None => return Err(bad_query("by is peer, user, day or label:NAME")),
        },
    };
    let wanted = Wanted {
        since_ms: moment(asked.since.as_deref())?,
        until_ms: moment(asked.until.as_deref())?,
        ..Wanted::default()
    };
    let usage = may.act("show usage", "", move |node, caller| {
        caller.may(Deed::Any(Scope::Admin))?;
        node.store.read(|connection| history::usage(connection, &by, &wanted, SUMS_MAX))
    });
    Ok(Json(Used { usage: usage.await? }))
}
