//! `farhaul endpoint`: the far end of a transfer over SSH. stdin and stdout belong to the session.

use farhaul::errors::ExitCode;

use crate::test_hooks;
use crate::ui::log;

pub fn run() -> ExitCode {
    log::to_stderr("off");
    farhaul::sisters::serve_endpoint(test_hooks::of_sessions())
}
