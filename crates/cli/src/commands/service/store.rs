//! `farhaul store`: backs up or checks the service's store.

use farhaul::Error;
use farhaul::errors::Code;
use farhaul_api::{BackupRequest, Findings};

use super::client;
use crate::args::service::{StoreArgs, StoreVerb};
use crate::ui::printer;

pub fn store(args: &StoreArgs) -> Result<(), Error> {
    match &args.verb {
        StoreVerb::Backup { file, answer } => {
            let path = std::path::absolute(file)
                .map_err(|error| Error::of_host("cannot find the current directory", error))?;
            client(&answer.api)?.post_only("/store/backup", &BackupRequest { path })
        }
        StoreVerb::Check { answer } => {
            let found: Findings = client(&answer.api)?.get("/store/check")?;
            if answer.json {
                printer::json(&found)?;
            }
            match found.findings.first() {
                None if answer.json || answer.quiet => Ok(()),
                None => {
                    printer::line("the store has no faults");
                    Ok(())
                }
                Some(first) => {
                    let what = format!("the store has {} faults, such as: {first}", found.findings.len());
                    Err(Error::new(Code::StoreBroken, what))
                }
            }
        }
    }
}
