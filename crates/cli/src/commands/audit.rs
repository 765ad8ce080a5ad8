//! `farhaul audit`: the chain of an audit log.

use farhaul::{Error, ExitCode};
use farhaul_service::audit;
use serde_json::json;

use crate::args::config::{AuditCheckArgs, AuditVerb};
use crate::ui::{printer, units};

pub fn run(verb: &AuditVerb) -> ExitCode {
    let AuditVerb::Check(args) = verb;
    match check(args) {
        Ok(code) => code,
        Err(error) => {
            printer::error(&error, None);
            error.exit_code()
        }
    }
}

fn check(args: &AuditCheckArgs) -> Result<ExitCode, Error> {
    let checked = audit::check(&args.file)?;
    let is_whole = checked.faults.is_empty();
    if args.json {
        let faults: Vec<_> =
            checked.faults.iter().map(|(line, what)| json!({ "line": line, "message": what })).collect();
        printer::json(&json!({
            "schema": 1,
            "ok": is_whole,
            "lines": checked.lines,
            "chained": checked.chained,
            "faults": faults,
        }))?;
    } else {
        let file = args.file.display();
        let lines: String =
            checked.faults.iter().map(|(line, what)| format!("{file}:{line}: {what}\n")).collect();
        printer::data(lines.as_bytes())?;
        let count = units::count(checked.lines, "line");
        printer::line(&format!("{count}, {} with the digest of the one before", checked.chained));
    }
    Ok(if is_whole { ExitCode::Ok } else { ExitCode::SomeFailed })
}
