//! `farhaul config`: prints the configuration that is in effect, or everything that is wrong with it.

use farhaul::Error;
use farhaul::errors::ExitCode;
use farhaul_service::config::{ConfigFaults, ConfigSources, Origins};

use crate::args::config::{ConfigCheckArgs, ConfigShowArgs, ConfigVerb};
use crate::ui::printer;

pub fn run(verb: &ConfigVerb) -> ExitCode {
    match verb {
        ConfigVerb::Show(args) => show(args),
        ConfigVerb::Check(args) => check(args),
    }
}

fn show(args: &ConfigShowArgs) -> ExitCode {
    let loaded = match ConfigSources::of_process(args.config.clone()).load() {
        Ok(loaded) => loaded,
        Err(faults) => {
            if args.json {
                return told(printer::json(&faults.json()), ExitCode::Usage);
            }
            for fault in faults.list() {
                printer::line(&format!("error: {fault}"));
            }
            return ExitCode::Usage;
        }
    };
    if args.json {
        return told(printer::json(&loaded.shown_json()), ExitCode::Ok);
    }
    let origins = if args.origin { Origins::Shown } else { Origins::Hidden };
    told(printer::data(loaded.shown(origins).as_bytes()), ExitCode::Ok)
}

fn check(args: &ConfigCheckArgs) -> ExitCode {
    let outcome = ConfigSources::of_process(args.config.clone()).load();
    let code = if outcome.is_ok() { ExitCode::Ok } else { ExitCode::Usage };
    let faults = outcome.err();
    if args.json {
        let json = faults
            .as_ref()
            .map_or_else(|| serde_json::json!({ "schema": 1, "ok": true, "faults": [] }), ConfigFaults::json);
        return told(printer::json(&json), code);
    }
    let lines: String =
        faults.iter().flat_map(|faults| faults.list()).map(|fault| format!("{fault}\n")).collect();
    told(printer::data(lines.as_bytes()), code)
}

/// Returns `code`, or the code of the error if the output could not be written.
fn told(written: Result<(), Error>, code: ExitCode) -> ExitCode {
    match written {
        Ok(()) => code,
        Err(error) => {
            printer::error(&error, None);
            error.exit_code()
        }
    }
}
