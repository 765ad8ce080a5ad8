//! The screen: totals, the list of jobs, and below it the selected job.
//!
//! Always true: a column is as wide as its widest number, so nothing moves but the numbers themselves. No
//! number is cut: a column for which there is no room is left out. Colours say only what words say, too.

use farhaul_api::{JobDeed, JobState};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::detail;
use super::job::{JobLine, LineProgress};
use super::model::{EventLink, Mode, TopModel};
use super::paint::{self, TerminalAbility, Tone, put};
use crate::ui::units;

/// On a narrower screen, only the most important columns are shown.
const NARROW: u16 = 60;
/// From this width on, there is room for columns about the network.
const WIDE: u16 = 120;
/// From this height on, the selected job has its own part of the screen.
const TALL: u16 = 16;
/// The most caps that are shown.
const CAPS_MAX: usize = 4;

/// Draws the whole screen.
pub fn draw(model: &TopModel, look: TerminalAbility, buffer: &mut Buffer) {
    let area = buffer.area;
    if area.width < 10 || area.height < 3 {
        return;
    }
    let keys = u16::from(look.keys);
    if model.mode == Mode::Help {
        help(look, area, buffer);
        return;
    }
    title(model, look, area, buffer);
    totals(model, look, Rect { y: area.y + 1, height: 1, ..area }, buffer);
    let mut top = area.y + 2;
    if area.height >= TALL + 4 {
        for cap in model.caps.iter().take(CAPS_MAX) {
            let limit = cap.limit_bps.map_or("no limit".to_string(), paint::rate);
            let used = cap.rate_bps();
            let share = cap.limit_bps.map_or(0.0, |limit| used / limit.max(1.0));
            let rates = format!("{:>11} of {limit:<11}", paint::rate(used));
            let text = if area.width < NARROW {
                format!("cap {:<8} {rates}", look.cut(&cap.name, 8))
            } else {
                format!("cap {:<16} {} {rates}", look.cut(&cap.name, 16), look.bar(share, 10))
            };
            put(buffer, (area.x + 1, top), area.width - 1, &text, look.style(Tone::Plain));
            top += 1;
        }
    }
    let bottom = area.bottom() - keys;
    let room = bottom.saturating_sub(top);
    let list = if area.height >= TALL { (room * 2 / 5).max(4) } else { room };
    jobs(model, look, Rect { y: top, height: list, ..area }, buffer);
    if list < room {
        detail::draw(model, look, Rect { y: top + list, height: room - list, ..area }, buffer);
    }
    if look.keys {
        last_line(model, look, Rect { y: bottom, height: 1, ..area }, buffer);
    }
}

fn title(model: &TopModel, look: TerminalAbility, area: Rect, buffer: &mut Buffer) {
    let (text, tone) = match &model.link {
        EventLink::Connecting => ("connecting".to_string(), Tone::Held),
        EventLink::Up => ("live".to_string(), Tone::Good),
        EventLink::Down(_) => ("NO ANSWER, trying again".to_string(), Tone::Bad),
    };
    let width = text.chars().count() as u16;
    put(buffer, (area.x, area.y), area.width, "farhaul top", look.style(Tone::Head));
    let room = area.width.saturating_sub(width + 14);
    let place = look.cut_middle(&model.place, usize::from(room));
    if room > 8 {
        put(buffer, (area.x + 12, area.y), room, &place, look.style(Tone::Faint));
    }
    put(buffer, (area.right().saturating_sub(width), area.y), width, &text, look.style(tone));
}

/// Jobs by state, and the rate of all.
fn totals(model: &TopModel, look: TerminalAbility, area: Rect, buffer: &mut Buffer) {
    let is_narrow = area.width < NARROW;
    let live = [JobState::Running, JobState::Paused, JobState::Queued, JobState::Waiting, JobState::Retrying];
    let over =
        [JobState::Done, JobState::PartlyFailed, JobState::Failed, JobState::Cancelled, JobState::Stopped];
    let waits: u64 = [JobState::Queued, JobState::Waiting, JobState::Retrying]
        .map(|state| model.count(state))
        .iter()
        .sum();
    let text = if is_narrow {
        format!("{:>3} run {:>5} wait", short(model.count(JobState::Running)), short(waits))
    } else {
        let all = if area.width >= WIDE { [&live[..], &over[..]].concat() } else { live.to_vec() };
        let count = |state: JobState| match state {
            // These two differ for a second, and the screen has little room.
            JobState::Paused => model.count(JobState::Paused) + model.count(JobState::Pausing),
            state => model.count(state),
        };
        let part = |state: &JobState| format!("{:>3} {}", short(count(*state)), state.words());
        all.iter().map(part).collect::<Vec<_>>().join(" ")
    };
    let is_down = matches!(model.link, EventLink::Down(_));
    let rate = format!("{:>11}", paint::rate(if is_down { f64::NAN } else { model.rate() }));
    let curve = if is_narrow { 6 } else { 8 };
    let rates = format!("{} {rate}", look.curve(model.curve.iter().copied(), curve));
    let width = rates.chars().count() as u16;
    let begin = area.right().saturating_sub(width);
    put(buffer, (area.x, area.y), begin.saturating_sub(area.x + 1), &text, look.style(Tone::Plain));
    put(buffer, (begin, area.y), width, &rates, look.style(Tone::Head));
}

/// A count in three columns if possible. Some sites have had a million jobs.
fn short(count: u64) -> String {
    match count {
        0..1000 => count.to_string(),
        1000..10_000 => format!("{}k", count / 1000),
        10_000..1_000_000 => format!("{}k", count / 1000),
        _ => format!("{}M", count / 1_000_000),
    }
}

// ---- the list ---------------------------------------------------------------------------------------------------------

/// One column of the list. With `right`, its cells are aligned to the right.
struct Column {
    name: &'static str,
    width: u16,
    right: bool,
    cell: fn(&JobLine, &LineProgress, TerminalAbility) -> (String, Tone),
}

/// Returns the columns for which there is room.
fn columns(width: u16) -> Vec<Column> {
    let column = |name, width, right, cell| Column { name, width, right, cell };
    let rate = column("RATE", 11, true, |_, progress, _| (moving(progress.goodput_bps), Tone::Head));
    let done = column("DONE", 5, true, |_, progress, _| (share(progress), Tone::Plain));
    if width < NARROW {
        return vec![done, rate];
    }
    let mut all = vec![
        column("", 8, false, |_, progress, look| {
            if !progress.totals_known {
                // While the total is not known, there is no share to show.
                return (format!("{:>8}", units::size(progress.bytes_done)), Tone::Plain);
            }
            (look.bar(progress.bytes_done as f64 / progress.bytes_total.max(1) as f64, 8), Tone::Bar)
        }),
        done,
        rate,
        column("", 8, false, |job, _, look| (look.curve(job.curve.iter().copied(), 8), Tone::Bar)),
        column("LEFT", 11, true, |_, progress, _| (paint::left(progress.seconds_left), Tone::Plain)),
    ];
    if width >= WIDE {
        all.push(column("TARGET", 11, true, |_, progress, _| {
            (progress.target_bps.map_or("-".into(), paint::rate), Tone::Plain)
        }));
        all.push(column("RTT", 7, true, |_, progress, _| (paint::rtt(progress.rtt_ms), Tone::Plain)));
        all.push(column("LOSS", 7, true, |_, progress, _| {
            let tone = if progress.loss > 0.05 { Tone::Held } else { Tone::Plain };
            (paint::loss(progress.loss), tone)
        }));
    }
    all
}

fn share(progress: &LineProgress) -> String {
    if progress.totals_known { paint::percent(progress.bytes_done, progress.bytes_total) } else { "-".into() }
}

/// The width before the columns that a job has only while it runs.
fn head_width(width: u16) -> u16 {
    // Mark, id and space take 18; priority and space 2; state and space 9.
    if width < NARROW { 18 } else { 18 + 2 + 9 }
}

fn jobs(model: &TopModel, look: TerminalAbility, area: Rect, buffer: &mut Buffer) {
    let columns = columns(area.width);
    let head = if area.width < NARROW { " ID" } else { " ID               P STATE" };
    put(buffer, (area.x, area.y), area.width, head, look.style(Tone::Faint));
    let mut x = area.x + head_width(area.width);
    for column in &columns {
        put(buffer, (x, area.y), column.width, &fitted(column.name, column), look.style(Tone::Faint));
        x += column.width + 1;
    }
    let limit_width = area.right().saturating_sub(x);
    if area.width >= WIDE {
        let (limit, what) = tail_widths(limit_width);
        put(buffer, (x, area.y), limit, "NOW", look.style(Tone::Faint));
        if what > 0 {
            put(buffer, (x + limit + 1, area.y), what, "WHAT", look.style(Tone::Faint));
        }
    }
    let all = model.visible();
    let rows = usize::from(area.height.saturating_sub(1));
    let selected = model.selected().map(|job| job.id.as_str());
    let place = all.iter().position(|job| Some(job.id.as_str()) == selected).unwrap_or(0);
    // The list scrolls only as far as the selected job needs to be on the screen.
    let first = (place + 1).saturating_sub(rows);
    for (index, job) in all.iter().skip(first).take(rows).enumerate() {
        let y = area.y + 1 + index as u16;
        let is_selected = Some(job.id.as_str()) == selected;
        row(job, look, &columns, Rect { y, height: 1, ..area }, buffer);
        if is_selected {
            put(buffer, (area.x, y), 1, ">", look.style(Tone::Head));
            buffer.set_style(Rect { y, height: 1, ..area }, Style::new().add_modifier(Modifier::REVERSED));
        }
    }
    if all.is_empty() {
        let text = if model.filter.is_empty() {
            "no jobs: farhaul submit makes one".to_string()
        } else {
            format!("no job has '{}' in it", model.filter)
        };
        put(buffer, (area.x + 1, area.y + 1), area.width - 1, &text, look.style(Tone::Faint));
    }
}

/// Divides the rest of a line between what a job does now and the job's locations.
fn tail_widths(room: u16) -> (u16, u16) {
    match room {
        0..53 => (room, 0),
        room => (30, room - 31),
    }
}

/// The rate of a job at which something moves; the words beside it say why nothing does.
pub fn moving(bps: f64) -> String {
    if bps >= 1.0 { paint::rate(bps) } else { "-".into() }
}

fn fitted(text: &str, column: &Column) -> String {
    let width = usize::from(column.width);
    if column.right { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

fn row(job: &JobLine, look: TerminalAbility, columns: &[Column], area: Rect, buffer: &mut Buffer) {
    let is_narrow = area.width < NARROW;
    let tone = tone_of(job);
    put(buffer, (area.x + 1, area.y), 16, &job.id, look.style(Tone::Plain));
    let begin = area.x + head_width(area.width);
    if !is_narrow {
        put(buffer, (area.x + 18, area.y), 1, &job.priority.to_string(), look.style(Tone::Plain));
        put(buffer, (area.x + 20, area.y), 13, job.state_words(), look.style(tone));
    }
    let Some(progress) = job.progress.as_ref().filter(|_| job.state == JobState::Running) else {
        still(job, look, (begin, tone), area, buffer);
        return;
    };
    let mut x = begin;
    for column in columns {
        let (text, tone) = (column.cell)(job, progress, look);
        put(buffer, (x, area.y), column.width, &fitted(&text, column), look.style(tone));
        x += column.width + 1;
    }
    if area.width >= WIDE {
        let (limit, what) = tail_widths(area.right().saturating_sub(x));
        let words = look.cut(&progress.now, usize::from(limit));
        put(buffer, (x, area.y), limit, &words, look.style(Tone::Plain));
        if what > 0 {
            let text = look.cut_middle(&job.what, usize::from(what));
            put(buffer, (x + limit + 1, area.y), what, &text, look.style(Tone::Faint));
        }
    }
}

/// Draws a job that does not run: why, or until when.
fn still(job: &JobLine, look: TerminalAbility, (begin, tone): (u16, Tone), area: Rect, buffer: &mut Buffer) {
    let mut text = why(job);
    let mut x = begin;
    if area.width < NARROW {
        // There is no room for the time zone, which a wider screen shows.
        let due = job.due.as_deref().filter(|_| matches!(job.state, JobState::Waiting | JobState::Retrying));
        let short = due.map_or(text, |due| moment(due).trim_end_matches(" UTC").to_string());
        text = format!("{} {short}", job.state_words());
    } else if job.state == JobState::PartlyFailed {
        // Its state takes more columns than the others.
        x += 5;
    }
    let mut room = area.right().saturating_sub(x);
    if area.width >= WIDE && room > 60 {
        // The job's locations go into the column in which running jobs have them.
        let others = columns(area.width).iter().map(|column| column.width + 1).sum::<u16>();
        let (limit, what) = tail_widths(area.right().saturating_sub(begin + others));
        if what > 0 {
            let at = begin + others + limit + 1;
            put(
                buffer,
                (at, area.y),
                what,
                &look.cut_middle(&job.what, usize::from(what)),
                look.style(Tone::Faint),
            );
            room = at.saturating_sub(x + 1);
        }
    } else if area.width >= NARROW && text.is_empty() {
        text = look.cut_middle(&job.what, usize::from(room));
    }
    let style = if area.width < NARROW { look.style(tone) } else { look.style(Tone::Plain) };
    put(buffer, (x, area.y), room, &look.cut(&text, usize::from(room)), style);
}

fn why(job: &JobLine) -> String {
    let due = job.due.as_deref().map(moment).unwrap_or_default();
    let error = job.error.clone().unwrap_or_default();
    match job.state {
        JobState::Waiting if !due.is_empty() => format!("until {due}"),
        JobState::Retrying => format!("at {due}: {error}"),
        JobState::Pausing | JobState::Paused => match &job.progress {
            Some(progress) => format!("at {}", share(progress)),
            None => String::new(),
        },
        JobState::PartlyFailed | JobState::Failed | JobState::Stopped => error,
        JobState::Running => "starting".into(),
        JobState::Queued | JobState::Waiting | JobState::Done | JobState::Cancelled => String::new(),
    }
}

/// `11-28 06:00 UTC`, from a time as the API writes it.
pub fn moment(text: &str) -> String {
    match (text.get(5..10), text.get(11..16)) {
        (Some(day), Some(time)) => format!("{day} {time} UTC"),
        _ => text.to_string(),
    }
}

pub fn tone_of(job: &JobLine) -> Tone {
    match job.state {
        JobState::Running if job.is_stopping => Tone::Held,
        JobState::Running | JobState::Done => Tone::Good,
        JobState::Pausing | JobState::Paused | JobState::Retrying => Tone::Held,
        JobState::PartlyFailed | JobState::Failed | JobState::Stopped => Tone::Bad,
        JobState::Queued | JobState::Waiting | JobState::Cancelled => Tone::Plain,
    }
}

// ---- the last line, and help ------------------------------------------------------------------------------------------

fn last_line(model: &TopModel, look: TerminalAbility, area: Rect, buffer: &mut Buffer) {
    let (text, tone) = match (&model.mode, &model.notice, &model.link) {
        (Mode::Cancel(id), ..) => (format!("cancel {id}? y cancels, any other key does not"), Tone::Bad),
        (Mode::Filter, ..) => (format!("/{}_  enter keeps it, esc clears it", model.filter), Tone::Head),
        (_, Some((notice, _)), _) => (notice.clone(), Tone::Head),
        (_, None, EventLink::Down(why)) => (why.clone(), Tone::Bad),
        _ => (keys(model, look, area.width), Tone::Faint),
    };
    put(buffer, (area.x, area.y), area.width, &look.cut(&text, usize::from(area.width)), look.style(tone));
}

fn keys(model: &TopModel, look: TerminalAbility, width: u16) -> String {
    let filter = if model.filter.is_empty() { "/ filter".into() } else { format!("/{}", model.filter) };
    let arrows = if look.unicode { "↑↓" } else { "up/down" };
    match width {
        0..NARROW => format!("q quit  ? help  {filter}"),
        _ => {
            let may = model.selected().map_or(&[][..], |job| &job.may);
            let steer = STEERING.iter().filter(|(deed, _)| may.contains(deed));
            let steer: String = steer.map(|(_, words)| format!("  {words}")).collect();
            format!("{arrows} select{steer}  {filter}  ? help  q quit")
        }
    }
}

/// The keys for what can be done with the selected job.
const STEERING: [(JobDeed, &str); 4] = [
    (JobDeed::Pause, "p pause"),
    (JobDeed::Resume, "r resume"),
    (JobDeed::Cancel, "c cancel"),
    (JobDeed::Change, "+ - priority"),
];

const KEYS: [(&str, &str); 10] = [
    ("up, down, k, j", "select a job (also page up, page down, home, end)"),
    ("p", "pause it: nothing new is sent"),
    ("r", "resume it"),
    ("c", "cancel it, after a question; what has arrived stays"),
    ("+, -", "raise or lower its priority"),
    ("/", "show only jobs with a text in id, locations, labels, owner, state"),
    ("esc", "show all jobs again"),
    ("ctrl-l", "redraw the screen"),
    ("ctrl-z", "suspend; fg comes back"),
    ("q", "quit; jobs go on"),
];

fn help(look: TerminalAbility, area: Rect, buffer: &mut Buffer) {
    put(buffer, (area.x, area.y), area.width, "farhaul top: keys", look.style(Tone::Head));
    let width = usize::from(area.width);
    for (index, (key, what)) in KEYS.iter().enumerate() {
        let y = area.y + 1 + index as u16;
        if y + 1 >= area.bottom() {
            break;
        }
        let column = if area.width < NARROW { 9 } else { 16 };
        let key = look.cut(key, column);
        let text = look.cut(&format!("{key:<column$}{what}"), width);
        put(buffer, (area.x, y), area.width, &text, look.style(Tone::Plain));
    }
    let last = area.bottom() - 1;
    put(buffer, (area.x, last), area.width, "any key goes back", look.style(Tone::Faint));
}
