//! `farhaul store`: backs up or checks the service's store.

use farhaul::{Code, Error};
use serde_json::{Value, json};

use super::client;
use crate::args::service::{StoreArgs, StoreVerb};
use crate::ui::printer;

pub fn store(args: &StoreArgs) -> Result<(), Error> {
    match &args.verb {
        StoreVerb::Backup { file, answer } => {
            let path = std::path::absolute(file)
                .map_err(|error| Error::of_host("cannot find the current directory", error))?;
            client(&answer.api)?.post_only("/store/backup", &json!({ "path": path }))
        }
        StoreVerb::Check { answer } => {
            let found: Value = client(&answer.api)?.get("/store/check")?;
            if answer.json {
                printer::json(&found)?;
            }
            let findings = found["findings"].as_array().cloned().unwrap_or_default();
            match findings.first().and_then(Value::as_str) {
                None if answer.json || answer.quiet => Ok(()),
                None => {
                    printer::line("the store has no faults");
                    Ok(())
                }
                Some(first) => {
                    let what = format!("the store has {} faults, such as: {first}", findings.len());
                    Err(Error::new(Code::StoreBroken, what))
                }
            }
        }
    }
}
