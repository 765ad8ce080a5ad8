//! Bars, curves, and numbers of a bounded width: a number that changes moves nothing beside it, and is never cut.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

use crate::ui::{summary, units};

/// What a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalAbility {
    pub colours: bool,
    /// Blocks and arrows beyond ASCII.
    pub unicode: bool,
    /// A line at the bottom says which keys there are.
    pub keys: bool,
}

/// What a text is, which is more than it looks like only where there are colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Head,
    Good,
    Held,
    Bad,
    Faint,
    Bar,
}

impl TerminalAbility {
    /// By NO_COLOR (no-color.org), TERM and the locale.
    pub fn of_environment() -> TerminalAbility {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let plain = |term: &str| ["dumb", "vt100", "vt102", "vt220", "xterm-mono", "linux-m"].contains(&term);
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        TerminalAbility {
            colours: set("NO_COLOR").is_none() && set("TERM").is_some_and(|term| !plain(&term)),
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
            keys: true,
        }
    }

    pub fn style(self, tone: Tone) -> Style {
        let style = Style::new();
        let coloured = |colour| if self.colours { style.fg(colour) } else { style };
        match tone {
            Tone::Plain => style,
            Tone::Head => style.add_modifier(Modifier::BOLD),
            Tone::Good => coloured(Color::Green),
            Tone::Held => coloured(Color::Yellow),
            Tone::Bad => coloured(Color::Red).add_modifier(Modifier::BOLD),
            // Some terminals show nothing of what is dim.
            Tone::Faint => coloured(Color::DarkGray),
            Tone::Bar => coloured(Color::Cyan),
        }
    }

    /// A share of 0 to 1 as a bar of so many columns.
    pub fn bar(self, share: f64, width: usize) -> String {
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
        if !self.unicode {
            let full = (share * width as f64).floor() as usize;
            return "#".repeat(full) + &".".repeat(width - full);
        }
        let eighths = (share * width as f64 * 8.0).floor() as usize;
        let mut bar = "█".repeat(eighths / 8);
        if let Some(part) = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"].get(eighths % 8) {
            bar.push_str(part);
        }
        let there = bar.chars().count();
        bar + &"░".repeat(width.saturating_sub(there))
    }

    /// The last values as a curve of so many columns, the newest at the right; the highest of them fills the line.
    pub fn curve(self, values: impl DoubleEndedIterator<Item = f64>, width: usize) -> String {
        let steps: [char; 8] = if self.unicode {
            ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
        } else {
            ['_', '.', ':', '-', '=', '+', '*', '#']
        };
        let mut last: Vec<f64> = values.rev().take(width).collect();
        last.reverse();
        let most = last.iter().copied().fold(1.0_f64, f64::max);
        let step = |value: f64| steps[((value / most * 7.0).round().clamp(0.0, 7.0)) as usize];
        let curve: String = last.iter().map(|value| step(*value)).collect();
        format!("{curve:>width$}")
    }

    fn more(self) -> &'static str {
        if self.unicode { "…" } else { "~" }
    }

    /// As much of the text as fits, with a mark if that is not all.
    pub fn cut(self, text: &str, width: usize) -> String {
        if Span::raw(text).width() <= width {
            return text.to_string();
        }
        let mut out = String::new();
        let mut taken = 0;
        for character in text.chars() {
            let wide = Span::raw(character.to_string()).width();
            if taken + wide + 1 > width {
                break;
            }
            taken += wide;
            out.push(character);
        }
        if width > 0 {
            out.push_str(self.more());
        }
        out
    }

    /// The beginning and the end of a text: of a path the end says more.
    pub fn cut_middle(self, text: &str, width: usize) -> String {
        let wide = Span::raw(text).width();
        if wide <= width || width < 8 {
            return self.cut(text, width);
        }
        let head = self.cut(text, width / 3);
        let mut tail = String::new();
        let mut taken = Span::raw(head.as_str()).width();
        for character in text.chars().rev() {
            taken += Span::raw(character.to_string()).width();
            if taken > width {
                break;
            }
            tail.insert(0, character);
        }
        head + &tail
    }
}

/// The pieces on lines of at most so many columns, cut only where one of them is too long for a line.
pub fn wrapped(pieces: &[String], between: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces {
        match lines.last_mut() {
            Some(line) if Span::raw(format!("{line}{between}{piece}")).width() <= width => {
                line.push_str(between);
                line.push_str(piece);
            }
            _ => lines.push(piece.clone()),
        }
    }
    lines
}

/// Writes at most `width` columns; yields where it has ended.
pub fn put(buffer: &mut Buffer, (x, y): (u16, u16), width: u16, text: &str, style: Style) -> u16 {
    let area = buffer.area;
    if y >= area.bottom() || x >= area.right() {
        return x;
    }
    let width = width.min(area.right() - x);
    buffer.set_stringn(x, y, text, usize::from(width), style).0
}

/// All of it as text, without spaces at the ends of lines.
pub fn text(buffer: &Buffer) -> String {
    let area = buffer.area;
    let mut out = String::new();
    for y in area.top()..area.bottom() {
        let mut line = String::new();
        let mut skip = 0;
        for x in area.left()..area.right() {
            let symbol = buffer[(x, y)].symbol();
            if skip == 0 {
                line.push_str(symbol);
                skip = Span::raw(symbol).width().saturating_sub(1);
            } else {
                skip -= 1;
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.trim_end().to_string() + "\n"
}

/// `9.99 Gbit/s`, at most 11 columns.
pub fn rate(bps: f64) -> String {
    // Nobody knows it while the service does not answer.
    if bps.is_nan() { "-".into() } else { units::rate(bps) }
}

/// `12.3 ms`, at most 7 columns.
pub fn rtt(ms: f64) -> String {
    match ms {
        ms if !ms.is_finite() || ms <= 0.0 => "-".into(),
        ms if ms < 99.95 => format!("{ms:.1} ms"),
        ms if ms < 9999.5 => format!("{ms:.0} ms"),
        ms => format!("{:.0} s", (ms / 1e3).min(9999.0)),
    }
}

/// `0.1 %`, at most 7 columns.
pub fn loss(fraction: f64) -> String {
    summary::loss(if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 })
}

/// `45 %`, at most 5 columns; all of it only when nothing is missing.
pub fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".into(),
        whole => format!("{} %", u128::from(part.min(whole)) * 100 / u128::from(whole)),
    }
}

/// `4 min 05 s`, at most 11 columns.
pub fn left(seconds: Option<u64>) -> String {
    match seconds {
        None => "-".into(),
        Some(seconds) if seconds >= 86_400 * 1000 => "> 999 d".into(),
        Some(seconds) => units::time(Duration::from_secs(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: TerminalAbility = TerminalAbility { colours: true, unicode: true, keys: true };
    const PLAIN: TerminalAbility = TerminalAbility { colours: false, unicode: false, keys: true };

    #[test]
    fn numbers_keep_to_their_columns() {
        for exponent in 0..40 {
            let value = 1.2345 * 3_f64.powi(exponent);
            assert!(rate(value).len() <= 11 || value > 9e15, "{}", rate(value));
            assert!(rtt(value / 1e3).len() <= 7, "{}", rtt(value / 1e3));
            assert!(left(Some(value as u64)).len() <= 11, "{}", left(Some(value as u64)));
        }
        for value in [0.0, 1e-9, 0.00051, 0.5, 1.0, 7.0, f64::NAN] {
            assert!(loss(value).len() <= 7, "{}", loss(value));
        }
        assert_eq!(
            (percent(199, 200), percent(200, 200), percent(0, 0)),
            ("99 %".into(), "100 %".into(), "-".into())
        );
        assert_eq!((rtt(f64::NAN), rtt(0.04), rtt(99.96)), ("-".into(), "0.0 ms".into(), "100 ms".into()));
    }

    #[test]
    fn bars_and_curves_are_as_wide_as_they_are_asked_to_be() {
        for share in [0.0, 0.01, 0.5, 0.999, 1.0, 7.0, f64::NAN] {
            for look in [FINE, PLAIN] {
                assert_eq!(look.bar(share, 10).chars().count(), 10, "{share}");
            }
        }
        assert_eq!(PLAIN.bar(0.55, 10), "#####.....");
        assert_eq!(FINE.bar(0.55, 10), "█████▌░░░░");
        assert_eq!(FINE.curve([0.0, 4.0, 8.0].into_iter(), 5), "  ▁▅█");
        assert_eq!(PLAIN.curve([8.0, 0.0, 4.0, 8.0].into_iter(), 3), "_=#");
    }

    #[test]
    fn what_does_not_fit_says_so() {
        assert_eq!(FINE.cut("/data/run7", 10), "/data/run7");
        assert_eq!(FINE.cut("/data/run7/x", 10), "/data/run…");
        assert_eq!(PLAIN.cut("日本語テキスト", 7), "日本語~");
        assert_eq!(FINE.cut("abc", 0), "");
        let middle = FINE.cut_middle("/data/instrument/2026/run7 -> fh://hpc/incoming", 24);
        assert!(middle.ends_with("/hpc/incoming") && middle.contains('…'), "{middle}");
        assert!(Span::raw(middle).width() <= 24);
    }
}
