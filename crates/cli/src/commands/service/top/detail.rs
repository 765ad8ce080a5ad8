//! The lower part of the screen: the selected job, its stages at this end, its paths, and the last lines of
//! its log.

use farhaul::events::Stage;
use farhaul_api::JobState;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::job::JobLine;
use super::model::TopModel;
use super::paint::{self, TerminalAbility, Tone, put};
use super::screen::{moving, tone_of};
use crate::ui::units;

/// From this width on, stages, paths and log are side by side.
const WIDE: u16 = 120;
/// Columns of a stage: its name, and its bar.
const STAGE: (usize, usize) = (18, 10);
/// Columns of a stage with its percentage and a space after it.
const STAGE_WIDTH: u16 = 38;

pub fn draw(model: &TopModel, look: TerminalAbility, area: Rect, buffer: &mut Buffer) {
    let Some(job) = model.selected() else { return };
    let line = if look.unicode { "─" } else { "-" };
    put(buffer, (area.x, area.y), area.width, &line.repeat(area.width.into()), look.style(Tone::Faint));
    let end = model.detail.stages.first().filter(|_| model.detail.id == job.id);
    let end = end.map_or(String::new(), |stage| format!(", {} here", stage.end));
    let head = format!(" {} {} {}{end} ", job.kind, job.id, job.state_words());
    put(buffer, (area.x + 2, area.y), area.width.saturating_sub(2), &head, look.style(tone_of(job)));
    let mut y = area.y + 1;
    for (text, tone) in facts(job, look, usize::from(area.width) - 1) {
        if y >= area.bottom() {
            return;
        }
        put(buffer, (area.x + 1, y), area.width - 1, &text, look.style(tone));
        y += 1;
    }
    let rest = Rect { y, height: area.bottom().saturating_sub(y), ..area };
    if model.detail.id != job.id || rest.height == 0 {
        return;
    }
    below(model, look, rest, buffer);
}

fn facts(job: &JobLine, look: TerminalAbility, width: usize) -> Vec<(String, Tone)> {
    let mut lines = vec![(look.cut_middle(&job.what, width), Tone::Head)];
    let mut put = |pieces: &[String], between: &str, tone| {
        let cut = paint::wrapped(pieces, between, width);
        lines.extend(cut.into_iter().map(|line| (look.cut(&line, width), tone)));
    };
    if let Some(progress) = &job.progress {
        let more = if progress.totals_known { "" } else { " so far" };
        let mut far = vec![
            format!("{} of {}{more}", units::size(progress.bytes_done), units::size(progress.bytes_total)),
            format!("{} of {} files", progress.files_done, progress.files_total),
        ];
        if progress.vanished > 0 {
            far.push(format!("{} vanished", progress.vanished));
        }
        if progress.failed > 0 {
            far.push(format!("{} FAILED", progress.failed));
        }
        put(&far, ", ", if progress.failed > 0 { Tone::Bad } else { Tone::Plain });
        let target =
            progress.target_bps.map_or(String::new(), |bps| format!(" of {:>11} allowed", paint::rate(bps)));
        let fast = [
            format!("{:>11}{target}", moving(progress.goodput_bps)),
            format!("rtt {:>7}", paint::rtt(progress.rtt_ms)),
            format!("loss {:>7}", paint::loss(progress.loss)),
            progress.transport.clone(),
        ];
        put(&fast, "  ", Tone::Plain);
        if job.state == JobState::Running {
            put(&[format!("now: {}", progress.now)], "", Tone::Plain);
        }
    }
    if let Some(error) = &job.error {
        let hint = job.hint.as_ref().map_or(String::new(), |hint| format!(": {hint}"));
        put(&[format!("last error {error}{hint}")], "", Tone::Bad);
    }
    let mut about = vec![format!("{} policy", job.policy)];
    about.extend(job.rate_bps.map(|bps| format!("at most {}", paint::rate(bps))));
    about.push(format!("run {}, attempt {}", job.run, job.attempt));
    about.push(format!("owner {}", job.owner));
    if let Some(promise) = &job.promise {
        about.insert(0, promise.clone());
    }
    if !job.labels.is_empty() {
        about.push(job.labels.clone());
    }
    put(&about, ", ", if job.is_late { Tone::Bad } else { Tone::Faint });
    lines
}

fn below(model: &TopModel, look: TerminalAbility, area: Rect, buffer: &mut Buffer) {
    let stages = stages(model, look);
    let paths = &model.detail.paths;
    let log = |width: u16, count: u16| -> Vec<String> {
        let from = model.detail.log.len().saturating_sub(count.into());
        model.detail.log.iter().skip(from).map(|line| look.cut(line, width.into())).collect()
    };
    let mut write = |x: u16, y: u16, width: u16, text: &str, tone: Tone| {
        put(buffer, (x, y), width, text, look.style(tone));
    };
    if area.width >= WIDE {
        // Stages are on the left, paths and log on the right.
        let left = if stages.is_empty() { 0 } else { STAGE_WIDTH };
        for (y, text) in (area.y..area.bottom()).zip(&stages) {
            write(area.x + 1, y, STAGE_WIDTH, text, Tone::Bar);
        }
        let (x, width) = (area.x + 1 + left, area.width.saturating_sub(left + 1));
        let mut y = area.y;
        for path in paths.iter().take(4) {
            if y < area.bottom() {
                write(x, y, width, &look.cut(&format!("path {path}"), width.into()), Tone::Plain);
                y += 1;
            }
        }
        for (y, line) in (y..area.bottom()).zip(log(width, area.bottom().saturating_sub(y))) {
            write(x, y, width, &line, Tone::Faint);
        }
        return;
    }
    // Stages come first, in as many columns as there is room for and in at most half of the lines; then
    // paths, then the log.
    let columns = usize::from((area.width / STAGE_WIDTH).max(1));
    let rows = stages.len().div_ceil(columns).min(usize::from(area.height.div_ceil(2)));
    for (index, text) in stages.iter().take(rows * columns).enumerate() {
        let x = area.x + 1 + (index % columns) as u16 * STAGE_WIDTH;
        write(x, area.y + (index / columns) as u16, area.right().saturating_sub(x), text, Tone::Bar);
    }
    let mut y = area.y + rows as u16;
    let width = area.width - 1;
    for path in paths.iter().take(2) {
        if y + 1 < area.bottom() {
            write(area.x + 1, y, width, &look.cut(&format!("path {path}"), width.into()), Tone::Plain);
            y += 1;
        }
    }
    for (y, line) in (y..area.bottom()).zip(log(width, area.bottom().saturating_sub(y))) {
        write(area.x + 1, y, width, &line, Tone::Faint);
    }
}

/// The stages, in the order in which content passes through them, then what a sender waits for. Sorted by how
/// busy they are, they would jump about.
fn stages(model: &TopModel, look: TerminalAbility) -> Vec<String> {
    let mut all: Vec<_> = model.detail.stages.iter().collect();
    // Waits keep the order in which they come, and so does what this version does not know.
    let place = |name: &str| Stage::of_name(name).filter(|stage| !stage.is_wait());
    all.sort_by_key(|stage| (place(&stage.name).is_none(), place(&stage.name)));
    all.iter()
        .map(|stage| {
            let name = match Stage::of_name(&stage.name).filter(|stage| stage.is_wait()) {
                Some(wait) => wait.words(),
                None => &stage.name,
            };
            let (width, bar) = STAGE;
            let busy = if stage.busy.is_finite() { stage.busy.clamp(0.0, 1.0) } else { 0.0 };
            format!("{:<width$.width$} {} {:>3.0} %", name, look.bar(busy, bar), (busy * 100.0).floor())
        })
        .collect()
}
