//! The model: what is known of the service, what the user has chosen, and how both change. It takes inputs
//! and returns inquiries.
//!
//! Always true: everything that is kept is bounded; the selected job stays selected wherever it moves to.

use std::collections::{BTreeMap, VecDeque};

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use farhaul::events::{PathFigures, Snapshot, StageFigures};
use farhaul_api::{CapView, JobDeed, JobState, JobView, LogLine, NodeEvent, PRIORITY_MAX};

use super::job::{CURVE, JobLine, JobOrder, LineProgress};
use crate::ui::{printer, units};

/// The most jobs that are kept. Beyond it, only running jobs are added.
const JOBS_MAX: usize = 5000;
/// The most jobs that have ended and are still shown.
const ENDED_MAX: usize = 50;
/// The most lines of the selected job's log.
const LOG_MAX: usize = 200;
/// The number of ticks over which the rate of a cap is measured.
const CAP_TICKS: u64 = 3;
/// The number of ticks for which a notice is shown.
const NOTICE_TICKS: u8 = 6;
/// The number of jobs by which page up and page down move.
const PAGE: isize = 10;

/// Something that happens.
#[derive(Debug)]
pub enum Input {
    Key(KeyEvent),
    /// The screen has another size.
    Resized,
    /// A second has gone by.
    Tick,
    Loaded(JobList),
    Looked(Box<JobInquiry>),
    /// Jobs by state.
    Counted(BTreeMap<String, u64>),
    /// The caps.
    Capped(Vec<CapView>),
    Told(NodeEvent),
    /// The connection for events is up.
    Up,
    /// It is down, for this reason.
    Down(String),
    /// The outcome of something that the user asked for.
    Notice(String),
    /// A signal such as SIGTERM, or the terminal is gone.
    End,
    /// The program is to be suspended (SIGTSTP).
    Stop,
    /// The program goes on after it was suspended (SIGCONT).
    Continued,
}

/// What the model wants from the loop or the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inquiry {
    Quit,
    Interrupt,
    Suspend,
    Redraw,
    /// Load all jobs again.
    Load,
    /// Look at one job in detail.
    Look(String),
    /// Jobs by state.
    Count,
    /// The caps.
    Caps,
    Act {
        id: String,
        deed: &'static str,
    },
    Prefer {
        id: String,
        priority: u8,
    },
}

/// All jobs that are not over, with counts and caps.
#[derive(Debug, Default)]
pub struct JobList {
    pub jobs: Vec<JobView>,
    pub counts: BTreeMap<String, u64>,
    pub caps: Vec<CapView>,
}

/// The details of one job.
#[derive(Debug)]
pub struct JobInquiry {
    pub id: String,
    pub transfer: Option<Snapshot>,
    /// New lines of its log, or all lines if `is_anew`.
    pub lines: Vec<LogLine>,
    pub is_anew: bool,
}

/// The lower part of the screen.
#[derive(Debug, Default)]
pub struct Detail {
    pub id: String,
    pub stages: Vec<StageLine>,
    pub paths: Vec<String>,
    pub log: VecDeque<String>,
}

#[derive(Debug)]
pub struct StageLine {
    pub end: String,
    pub name: String,
    pub busy: f64,
}

#[derive(Debug)]
pub struct CapLine {
    pub name: String,
    pub limit_bps: Option<f64>,
    /// At the last ticks: the tick, and the bytes that had gone through the cap by then.
    moved: VecDeque<(u64, u64)>,
}

impl CapLine {
    /// The rate of what goes through the cap, over the last ticks. A tick is a second.
    pub fn rate_bps(&self) -> f64 {
        match (self.moved.front(), self.moved.back()) {
            (Some((from, before)), Some((to, now))) if to > from => {
                now.saturating_sub(*before) as f64 * 8.0 / (to - from) as f64
            }
            _ => f64::NAN,
        }
    }
}

/// What keys mean now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    List,
    Help,
    /// A filter is being written.
    Filter,
    /// The user is asked whether to cancel this job.
    Cancel(String),
}

/// The state of the connection for events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventLink {
    Connecting,
    Up,
    Down(String),
}

/// All that the screen shows.
#[derive(Debug)]
pub struct TopModel {
    pub place: String,
    pub link: EventLink,
    pub mode: Mode,
    pub filter: String,
    pub detail: Detail,
    pub caps: Vec<CapLine>,
    pub counts: BTreeMap<String, u64>,
    /// Content bits a second of all jobs together, once a second.
    pub curve: VecDeque<f64>,
    pub notice: Option<(String, u8)>,
    jobs: BTreeMap<String, JobLine>,
    selected: Option<String>,
    ends: u64,
    ticks: u64,
    /// Whether to ask for the counts at the next tick.
    is_count_old: bool,
}

impl TopModel {
    pub fn new(place: &str) -> TopModel {
        TopModel {
            place: printer::harmless(place),
            link: EventLink::Connecting,
            mode: Mode::List,
            filter: String::new(),
            detail: Detail::default(),
            caps: Vec::new(),
            counts: BTreeMap::new(),
            curve: VecDeque::new(),
            notice: None,
            jobs: BTreeMap::new(),
            selected: None,
            ends: 0,
            ticks: 0,
            is_count_old: false,
        }
    }

    // ---- look ------------------------------------------------------------------------------------------------------

    /// The jobs that the filter lets through, in the order of the screen.
    pub fn visible(&self) -> Vec<&JobLine> {
        let mut all: Vec<&JobLine> = self.jobs.values().filter(|job| self.is_visible(job)).collect();
        all.sort_by_cached_key(|job| job.order());
        all
    }

    fn is_visible(&self, job: &JobLine) -> bool {
        self.filter.is_empty() || job.has(&self.filter)
    }

    pub fn selected(&self) -> Option<&JobLine> {
        self.jobs.get(self.selected.as_ref()?)
    }

    /// Content bits a second of all running jobs.
    pub fn rate(&self) -> f64 {
        let rates = self.jobs.values().filter_map(|job| job.progress.as_ref()).map(|job| job.goodput_bps);
        rates.filter(|rate| rate.is_finite()).sum()
    }

    pub fn count(&self, state: JobState) -> u64 {
        self.counts.get(state.name()).copied().unwrap_or(0)
    }

    // ---- what happens ----------------------------------------------------------------------------------------------

    /// Takes one input; returns the inquiries that follow from it.
    pub fn take(&mut self, input: Input) -> Vec<Inquiry> {
        let before = self.selected.clone();
        let place = self.selected().map(JobLine::order);
        let mut wishes = match input {
            Input::Key(key) => self.key(key),
            // The loop draws the screen after every input.
            Input::Resized => Vec::new(),
            Input::Continued => vec![Inquiry::Redraw],
            Input::Tick => self.tick(),
            Input::Loaded(loaded) => {
                self.load(loaded);
                Vec::new()
            }
            Input::Looked(looked) => {
                self.look_at(*looked);
                Vec::new()
            }
            Input::Counted(counts) => {
                self.counts = counts;
                Vec::new()
            }
            Input::Capped(caps) => {
                self.cap(caps);
                Vec::new()
            }
            Input::Told(told) => self.hear(told),
            Input::Up => {
                let was_down = matches!(self.link, EventLink::Down(_));
                self.link = EventLink::Up;
                if was_down {
                    self.tell("the service answers again".into());
                }
                // There were no events while the connection was down, so load everything again.
                vec![Inquiry::Load]
            }
            Input::Down(why) => {
                self.link = EventLink::Down(printer::harmless(&why));
                // The rates of now are not known.
                for job in self.jobs.values_mut() {
                    job.curve.clear();
                    if let Some(progress) = &mut job.progress {
                        progress.goodput_bps = f64::NAN;
                        progress.seconds_left = None;
                    }
                }
                Vec::new()
            }
            Input::Notice(text) => {
                self.tell(printer::harmless(&text));
                Vec::new()
            }
            Input::End => vec![Inquiry::Interrupt],
            Input::Stop => vec![Inquiry::Suspend],
        };
        self.keep_selected(place);
        if self.selected != before
            && let Some(id) = &self.selected
        {
            wishes.push(Inquiry::Look(id.clone()));
        }
        wishes
    }

    fn tell(&mut self, text: String) {
        self.notice = Some((text, NOTICE_TICKS));
    }

    /// Makes sure that the selected job is visible: the same job, or the one that has come into its place.
    fn keep_selected(&mut self, place: Option<JobOrder>) {
        if self.selected().is_some_and(|job| self.is_visible(job)) {
            return;
        }
        let visible = self.visible();
        let next = place.and_then(|place| visible.iter().find(|job| job.order() >= place).or(visible.last()));
        self.selected = next.or(visible.first()).map(|job| job.id.clone());
        if self.selected.is_none() {
            self.detail = Detail::default();
        }
    }

    fn tick(&mut self) -> Vec<Inquiry> {
        self.ticks += 1;
        self.curve.push_back(self.rate());
        while self.curve.len() > CURVE {
            self.curve.pop_front();
        }
        if let Some((_, ticks)) = &mut self.notice {
            *ticks = ticks.saturating_sub(1);
        }
        self.notice.take_if(|(_, ticks)| *ticks == 0);
        let mut wishes = Vec::new();
        if self.link != EventLink::Up {
            return wishes;
        }
        if std::mem::take(&mut self.is_count_old) {
            wishes.push(Inquiry::Count);
        }
        // There are no events for the bytes that go through a cap.
        if !self.caps.is_empty() {
            wishes.push(Inquiry::Caps);
        }
        if let Some(job) = self.selected().filter(|job| job.progress.is_some()) {
            wishes.push(Inquiry::Look(job.id.clone()));
        }
        wishes
    }

    fn load(&mut self, loaded: JobList) {
        let jobs: Vec<JobLine> = loaded.jobs.into_iter().filter_map(JobLine::of).collect();
        // A job that was not over and is not in the list is over now. How it has ended is not known, so it
        // goes.
        self.jobs.retain(|id, job| job.state.is_final() || jobs.iter().any(|new| new.id == *id));
        for job in jobs {
            self.put(job);
        }
        // A service whose store fails gives no counts.
        if !loaded.counts.is_empty() {
            self.counts = loaded.counts;
        }
        self.cap(loaded.caps);
    }

    fn cap(&mut self, caps: Vec<CapView>) {
        let mut before: BTreeMap<String, CapLine> =
            self.caps.drain(..).map(|cap| (cap.name.clone(), cap)).collect();
        let ticks = self.ticks;
        let cap = |cap: CapView| {
            let name = printer::harmless(&cap.name);
            let mut moved = before.remove(&name).map(|cap| cap.moved).unwrap_or_default();
            let bytes = cap.moved_bytes;
            // A cap that was made again counts from 0 again. Two counts within one tick give no rate.
            if moved.back().is_some_and(|(_, last)| *last > bytes) {
                moved.clear();
            }
            if moved.back().is_none_or(|(tick, _)| *tick < ticks) {
                moved.push_back((ticks, bytes));
            }
            while moved.front().is_some_and(|(tick, _)| tick + CAP_TICKS < ticks) && moved.len() > 2 {
                moved.pop_front();
            }
            CapLine { name, limit_bps: cap.now_bps.map(|bps| bps as f64), moved }
        };
        // A cap without a limit at present is not shown.
        self.caps = caps.into_iter().map(cap).filter(|cap| cap.limit_bps.is_some()).collect();
    }

    fn put(&mut self, mut job: JobLine) {
        if self.jobs.len() >= JOBS_MAX && job.state != JobState::Running && !self.jobs.contains_key(&job.id) {
            return;
        }
        if let Some(before) = self.jobs.remove(&job.id) {
            job.curve = before.curve;
            job.ended = before.ended;
        }
        let is_over = job.state.is_final();
        if is_over {
            self.ends += 1;
            job.ended = self.ends;
            job.progress = None;
            job.curve.clear();
        } else {
            job.ended = 0;
        }
        self.jobs.insert(job.id.clone(), job);
        while is_over && self.jobs.values().filter(|job| job.state.is_final()).count() > ENDED_MAX {
            let oldest = self.jobs.values().filter(|job| job.state.is_final()).min_by_key(|job| job.ended);
            let Some(id) = oldest.map(|job| job.id.clone()) else { break };
            self.jobs.remove(&id);
        }
    }

    fn look_at(&mut self, JobInquiry { id, transfer, lines, is_anew }: JobInquiry) {
        if self.selected.as_ref() != Some(&id) {
            return;
        }
        if self.detail.id != id || is_anew {
            self.detail = Detail { id, ..Detail::default() };
        }
        let facts = transfer.map(|transfer| transfer.facts).unwrap_or_default();
        let stage = |stage: StageFigures| StageLine {
            end: printer::harmless(&stage.end),
            name: printer::harmless(&stage.name),
            busy: stage.busy,
        };
        self.detail.stages = facts.stages.into_iter().map(stage).collect();
        let path = |path: PathFigures| {
            let answers = if path.answered { "answers" } else { "silent" };
            format!("{} -> {}  {answers}", path.local, path.remote)
        };
        self.detail.paths = facts.paths.into_iter().map(path).collect();
        for line in lines {
            let at = units::date(line.at_ms.div_euclid(1000));
            // The time of day is enough: the day is seldom another one.
            let time = at.get(11..19).unwrap_or_default().to_string();
            let level = if line.level == "warning" { "warning: " } else { "" };
            self.detail.log.push_back(format!("{time} {level}{}", printer::harmless(&line.text)));
        }
        while self.detail.log.len() > LOG_MAX {
            self.detail.log.pop_front();
        }
    }

    fn hear(&mut self, told: NodeEvent) -> Vec<Inquiry> {
        match told {
            NodeEvent::Job(job) => {
                let Some(mut job) = JobLine::of(*job) else { return Vec::new() };
                let before = self.jobs.get(&job.id);
                let is_other = before.is_none_or(|before| before.state != job.state);
                self.is_count_old |= is_other;
                // The event of a change may have no progress yet.
                if job.state == JobState::Running && job.progress.is_none() {
                    job.progress = before.and_then(|before| before.progress.clone());
                }
                let id = job.id.clone();
                self.put(job);
                let is_shown = self.selected.as_ref() == Some(&id);
                if is_other && is_shown { vec![Inquiry::Look(id)] } else { Vec::new() }
            }
            NodeEvent::Progress(all) => {
                for one in all {
                    if let Some(job) = self.jobs.get_mut(one.job.as_str()) {
                        job.goes_on(LineProgress::from(one));
                    }
                }
                Vec::new()
            }
            NodeEvent::Gap | NodeEvent::Cap(_) => vec![Inquiry::Load],
            NodeEvent::Begin | NodeEvent::Log(_) | NodeEvent::Watch(_) | NodeEvent::Other => Vec::new(),
        }
    }

    // ---- keys ------------------------------------------------------------------------------------------------------

    fn key(&mut self, key: KeyEvent) -> Vec<Inquiry> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => vec![Inquiry::Interrupt],
                KeyCode::Char('z') => vec![Inquiry::Suspend],
                KeyCode::Char('l') => vec![Inquiry::Redraw],
                _ => Vec::new(),
            };
        }
        match std::mem::replace(&mut self.mode, Mode::List) {
            Mode::List => self.list_key(key.code),
            Mode::Help => Vec::new(),
            Mode::Filter => {
                self.filter_key(key.code);
                Vec::new()
            }
            Mode::Cancel(id) => match key.code {
                KeyCode::Char('y' | 'Y') => vec![Inquiry::Act { id, deed: "cancel" }],
                _ => {
                    self.tell(format!("{id} goes on"));
                    Vec::new()
                }
            },
        }
    }

    fn filter_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => return,
            KeyCode::Esc => {
                self.filter.clear();
                return;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(character) if self.filter.chars().count() < 40 => {
                self.filter.push_str(&printer::harmless(&character.to_string()));
            }
            _ => {}
        }
        self.mode = Mode::Filter;
    }

    fn list_key(&mut self, code: KeyCode) -> Vec<Inquiry> {
        match code {
            KeyCode::Char('q') => return vec![Inquiry::Quit],
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up | KeyCode::Char('k') => self.walk(-1),
            KeyCode::Down | KeyCode::Char('j') => self.walk(1),
            KeyCode::PageUp => self.walk(-PAGE),
            KeyCode::PageDown => self.walk(PAGE),
            KeyCode::Home => self.walk(isize::MIN / 2),
            KeyCode::End => self.walk(isize::MAX / 2),
            KeyCode::Char('p') => return self.act("pause"),
            KeyCode::Char('r') => return self.act("resume"),
            KeyCode::Char('c') => match self.selected() {
                Some(job) if job.may.contains(&JobDeed::Cancel) => self.mode = Mode::Cancel(job.id.clone()),
                Some(_) => self.tell("you cannot cancel this job now".into()),
                None => {}
            },
            KeyCode::Char('+' | '=') => return self.prefer(1),
            KeyCode::Char('-') => return self.prefer(-1),
            _ => {}
        }
        Vec::new()
    }

    fn walk(&mut self, by: isize) {
        let visible = self.visible();
        let now = self.selected.as_ref().and_then(|id| visible.iter().position(|job| job.id == *id));
        let last = isize::try_from(visible.len()).unwrap_or(isize::MAX) - 1;
        let next = isize::try_from(now.unwrap_or(0)).unwrap_or(0).saturating_add(by).clamp(0, last.max(0));
        let next = visible.get(next.unsigned_abs()).map(|job| job.id.clone());
        self.selected = next;
    }

    fn act(&self, deed: &'static str) -> Vec<Inquiry> {
        self.selected().map(|job| Inquiry::Act { id: job.id.clone(), deed }).into_iter().collect()
    }

    fn prefer(&mut self, by: i8) -> Vec<Inquiry> {
        let Some(job) = self.selected() else { return Vec::new() };
        let (id, now) = (job.id.clone(), job.priority);
        match now.checked_add_signed(by) {
            Some(priority) if priority <= PRIORITY_MAX => vec![Inquiry::Prefer { id, priority }],
            _ => {
                self.tell(format!("{now} is the {} priority", if now == 0 { "lowest" } else { "highest" }));
                Vec::new()
            }
        }
    }
}
