//! A file a verb. Each takes its arguments and ends with an exit code; only these call the engine or the daemon.

mod completions;
mod cp;
mod endpoint;
mod keygen;
mod man;
mod serve;

use farhaul_engine::ExitCode;

use crate::args::Verb;
use crate::ui::printer;

/// Runs one verb; errors that it did not report itself are reported here.
pub fn run(verb: Verb) -> ExitCode {
    let outcome = match verb {
        Verb::Cp(args) => return cp::run(&args),
        Verb::Serve(args) => return serve::run(args),
        Verb::Endpoint => return endpoint::run(),
        Verb::Keygen(args) => keygen::run(&args),
        Verb::Completions { shell } => completions::run(shell),
        Verb::Man { verb } => man::run(verb.as_deref()),
    };
    match outcome {
        Ok(()) => ExitCode::Ok,
        Err(error) => {
            printer::error(&error, None);
            error.exit_code()
        }
    }
}
