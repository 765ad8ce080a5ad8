//! The threads that talk to the service. One hears events, and connects again when the service has restarted.
//! The other one asks what the model wants to know and does what the user wants.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use farhaul::Error;
use farhaul_api::{CapList, CapView, Health, JobChange, JobDetail, JobPage, JobView, LogPage, NodeEvent};
use farhaul_service::ServiceClient;

use super::super::{client, quoted};
use super::model::{Input, Inquiry, JobInquiry, JobList};
use crate::args::service::ApiArgs;

/// The most unfinished jobs that are loaded. If there are more, only those that run or come next matter.
const JOBS_MAX: usize = 2000;
/// The most jobs or lines that the service gives in one answer.
const PAGE: usize = 1000;
/// The pause before the service is tried again. It doubles up to `AGAIN_MAX`.
const AGAIN: Duration = Duration::from_millis(500);
const AGAIN_MAX: Duration = Duration::from_secs(5);

/// Loads everything that is shown at the beginning.
pub fn load(client: &ServiceClient) -> Result<JobList, Error> {
    let mut jobs: Vec<JobView> = Vec::new();
    // Running jobs come first, so that they are loaded however many jobs wait.
    for states in ["running", "unfinished"] {
        let mut cursor = String::new();
        while jobs.len() < JOBS_MAX {
            let page: JobPage = client.get(&format!("/jobs?state={states}&limit={PAGE}{cursor}"))?;
            jobs.extend(page.jobs);
            match page.next_cursor {
                Some(next) => cursor = format!("&cursor={}", quoted(&next)),
                None => break,
            }
        }
    }
    Ok(JobList { jobs, counts: counts(client).unwrap_or_default(), caps: caps(client) })
}

/// Returns the caps; an empty list if the service does not know them.
fn caps(client: &ServiceClient) -> Vec<CapView> {
    client.get::<CapList>("/caps").map(|list| list.caps).unwrap_or_default()
}

fn counts(client: &ServiceClient) -> Result<BTreeMap<String, u64>, Error> {
    Ok(client.get::<Health>("/health/ready")?.jobs)
}

/// Starts both threads. Inquiries go to the channel that this returns.
pub fn start(
    client_of_worker: ServiceClient,
    api: &ApiArgs,
    inputs: Sender<Input>,
) -> Result<Sender<Inquiry>, Error> {
    let client_of_events = client(api)?;
    let told = inputs.clone();
    let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new().name(name.into()).spawn(work).map_err(Error::no_thread)
    };
    spawn("events", Box::new(move || hear(&client_of_events, &told)))?;
    let (wishes, wished) = mpsc::channel();
    let work = move || {
        let mut looking = LogPosition::default();
        for wish in wished {
            if let Some(input) = grant(&client_of_worker, &mut looking, wish)
                && inputs.send(input).is_err()
            {
                return;
            }
        }
    };
    spawn("asking", Box::new(work))?;
    Ok(wishes)
}

/// Passes events on until the receiver is gone.
fn hear(client: &ServiceClient, inputs: &Sender<Input>) {
    let mut last = None;
    let mut pause = AGAIN;
    loop {
        let mut is_heard = true;
        let mut was_up = false;
        let opened = || {
            was_up = true;
            let _ = inputs.send(Input::Up);
        };
        let ended = client.follow("/events", last, opened, |told| {
            last = told.id.or(last);
            is_heard = inputs.send(Input::Told(NodeEvent::read(&told.kind, &told.data))).is_ok();
            if is_heard { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let why = match ended {
            Ok(_) => "the service has hung up".to_string(),
            Err(error) => error.to_string(),
        };
        if !is_heard || inputs.send(Input::Down(why)).is_err() {
            return;
        }
        pause = if was_up { AGAIN } else { (pause * 2).min(AGAIN_MAX) };
        std::thread::sleep(pause);
    }
}

/// Up to which line the log of the selected job is known.
#[derive(Debug, Default)]
pub struct LogPosition {
    id: String,
    after: u64,
}

impl LogPosition {
    pub fn look(&mut self, client: &ServiceClient, id: &str) -> Option<JobInquiry> {
        let is_anew = self.id != id;
        if is_anew {
            *self = LogPosition { id: id.into(), after: 0 };
        }
        let quoted = quoted(id);
        let transfer = client.get::<JobDetail>(&format!("/jobs/{quoted}")).ok()?.transfer;
        let mut lines = Vec::new();
        loop {
            let path = format!("/jobs/{quoted}/log?after={}&limit={PAGE}", self.after);
            let page: LogPage = client.get(&path).ok()?;
            let is_last = page.lines.len() < PAGE;
            self.after = page.lines.last().map_or(self.after, |line| line.seq);
            lines.extend(page.lines);
            if is_last {
                return Some(JobInquiry { id: id.into(), transfer, lines, is_anew });
            }
        }
    }
}

fn grant(client: &ServiceClient, looking: &mut LogPosition, wish: Inquiry) -> Option<Input> {
    let told = |done: Result<JobView, Error>, what: String| match done {
        Ok(_) => Input::Notice(what),
        Err(error) => Input::Notice(format!("not done: {error}")),
    };
    match wish {
        // The other thread reports that the service does not answer.
        Inquiry::Load => load(client).ok().map(Input::Loaded),
        Inquiry::Count => Some(match counts(client) {
            Ok(counts) => Input::Counted(counts),
            // The service may answer with an error, such as a store that cannot be written.
            Err(error) => Input::Notice(error.to_string()),
        }),
        Inquiry::Caps => Some(Input::Capped(caps(client))),
        Inquiry::Look(id) => looking.look(client, &id).map(Box::new).map(Input::Looked),
        Inquiry::Act { id, deed } => {
            let done = client.act(&format!("/jobs/{}/{deed}", quoted(&id)));
            let word = match deed {
                "pause" => "paused",
                "resume" => "resumed",
                _ => "cancelled",
            };
            Some(told(done, format!("{id} is {word}")))
        }
        Inquiry::Prefer { id, priority } => {
            let change = JobChange { priority: Some(priority), ..JobChange::default() };
            let done = client.patch(&format!("/jobs/{}", quoted(&id)), &change);
            Some(told(done, format!("{id} has priority {priority}")))
        }
        Inquiry::Quit | Inquiry::Interrupt | Inquiry::Suspend | Inquiry::Redraw => None,
    }
}
