//! `farhaul audit`: checks the chain of digests in an audit log.

use farhaul::Error;
use farhaul::errors::ExitCode;
use farhaul_service::audit;
use serde_json::json;

use crate::args::config::{AuditCheckArgs, AuditVerb};
use crate::ui::{printer, units};

pub fn run(verb: &AuditVerb) -> Result<ExitCode, Error> {
    let AuditVerb::Check(args) = verb;
    check(args)
}

fn check(args: &AuditCheckArgs) -> Result<ExitCode, Error> {
    let checked = audit::check(&args.file)?;
    let is_whole = checked.faults.is_empty();
    if args.json {
        let faults: Vec<_> = checked
            .faults
            .iter()
            .map(|(line, message)| json!({ "line": line, "message": message }))
            .collect();
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
            checked.faults.iter().map(|(line, message)| format!("{file}:{line}: {message}\n")).collect();
        printer::data(lines.as_bytes())?;
        let count = units::count(checked.lines, "line");
        printer::line(&format!("{count}, {} with the digest of the line before", checked.chained));
    }
    Ok(if is_whole { ExitCode::Ok } else { ExitCode::SomeFailed })
}
