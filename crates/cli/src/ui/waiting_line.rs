//! One line on a terminal that says what is being done, for work that has no end to draw a bar towards.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget};

/// The line; gone when this is dropped.
pub struct WaitingLine {
    bar: ProgressBar,
}

impl WaitingLine {
    /// Draws only on a terminal, and only if `wanted`.
    pub fn start(wanted: bool) -> WaitingLine {
        let target = if wanted && std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr_with_hz(5)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.enable_steady_tick(Duration::from_millis(200));
        WaitingLine { bar }
    }

    pub fn tell(&self, what: &str) {
        self.bar.set_message(super::printer::harmless(what));
    }
}

impl Drop for WaitingLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
