//! `farhaul endpoint`: the far end of a transfer over SSH. stdin and stdout belong to the engine.

use farhaul::ExitCode;

use crate::args::TestingArgs;
use crate::ui::log;

pub fn run(args: &TestingArgs) -> ExitCode {
    log::to_stderr("off");
    farhaul::serve_endpoint(args.of_engine())
}
