//! `farhaul store`.

use farhaul::{Code, Error};
use serde_json::{Value, json};

use super::client;
use crate::args::service::{StoreArgs, StoreVerb};
use crate::ui::printer;

pub fn store(args: &StoreArgs) -> Result<(), Error> {
    match &args.verb {
        StoreVerb::Backup { file, shown } => {
            let path = std::path::absolute(file)
                .map_err(|error| Error::of_host("cannot find the current directory", error))?;
            client(&shown.api)?.post_only("/store/backup", &json!({ "path": path }))
        }
        StoreVerb::Check { shown } => {
            let found: Value = client(&shown.api)?.get("/store/check")?;
            if shown.json {
                printer::json(&found)?;
            }
            let findings = found["findings"].as_array().cloned().unwrap_or_default();
            match findings.first().and_then(Value::as_str) {
                None if shown.json || shown.quiet => Ok(()),
                None => {
                    printer::line("the store is sound");
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
