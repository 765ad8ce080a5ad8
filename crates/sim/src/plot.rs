//! Draws a trace as an SVG picture, by hand, because two axes and some lines need no library.

use crate::trace::Trace;
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 170.0;
const LEFT: f64 = 70.0;
const COLORS: [&str; 8] =
    ["#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f"];

/// A panel: its title, and one line for each sender.
struct Panel {
    title: &'static str,
    lines: Vec<Vec<f64>>,
}

/// Goodput, round trip time, bytes in flight and lost packets of each sender, and the queue.
pub fn svg(trace: &Trace, names: &[String]) -> String {
    let samples = &trace.samples;
    let senders = samples.first().map_or(0, |sample| sample.senders.len());
    let per_sender = |value: &dyn Fn(usize, usize) -> f64| {
        (0..senders).map(|sender| (0..samples.len()).map(|index| value(index, sender)).collect()).collect()
    };
    let panels = [
        Panel {
            title: "goodput, Mbit/s",
            lines: per_sender(&|index, sender| trace.goodput(index, sender) / 1e6),
        },
        Panel {
            title: "round trip, ms",
            lines: per_sender(&|index, sender| samples[index].senders[sender].rtt_ms),
        },
        Panel {
            title: "in flight, MB",
            lines: per_sender(&|index, sender| samples[index].senders[sender].in_flight as f64 / 1e6),
        },
        Panel {
            title: "lost packets, thousands",
            lines: per_sender(&|index, sender| samples[index].senders[sender].lost as f64 / 1e3),
        },
        Panel {
            title: "queue, kB",
            lines: vec![samples.iter().map(|sample| sample.queue_bytes / 1e3).collect()],
        },
    ];
    let times: Vec<f64> = samples.iter().map(|sample| sample.at_s).collect();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        HEIGHT * panels.len() as f64 + 40.0
    );
    for (index, name) in names.iter().enumerate() {
        let (x, color) = (LEFT + 150.0 * index as f64, COLORS[index % COLORS.len()]);
        let _ = writeln!(out, "<text x=\"{x}\" y=\"16\" fill=\"{color}\">{name}</text>");
    }
    for (index, panel) in panels.iter().enumerate() {
        draw(&mut out, panel, &times, 26.0 + HEIGHT * index as f64);
    }
    out.push_str("</svg>\n");
    out
}

fn draw(out: &mut String, panel: &Panel, times: &[f64], top: f64) {
    let (height, width) = (HEIGHT - 40.0, WIDTH - LEFT - 20.0);
    let most = panel.lines.iter().flatten().copied().fold(1e-9, f64::max);
    let end = times.last().copied().unwrap_or(1.0).max(1e-9);
    let bottom = top + 18.0 + height;
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{:.0}\">{}</text><rect x=\"{LEFT}\" y=\"{:.0}\" width=\"{width}\" height=\"{height}\" fill=\"none\" stroke=\"#999\"/>",
        top + 13.0,
        panel.title,
        top + 18.0
    );
    for tick in 0..=4 {
        let (share, right) = (f64::from(tick) / 4.0, LEFT + width * f64::from(tick) / 4.0);
        let y = bottom - height * share + 4.0;
        let _ = writeln!(out, "<text x=\"5\" y=\"{y:.0}\">{:.4}</text>", most * share);
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{:.0}\">{:.2} s</text>",
            right - 20.0,
            bottom + 14.0,
            end * share
        );
    }
    for (index, line) in panel.lines.iter().enumerate() {
        let points: Vec<String> = times
            .iter()
            .zip(line)
            .map(|(at, value)| {
                format!("{:.1},{:.1}", LEFT + width * at / end, bottom - height * value / most)
            })
            .collect();
        let color = COLORS[index % COLORS.len()];
        let _ = writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\"/>", points.join(" "));
    }
}
