//! `farhaul cap`: sets, lists and removes caps.

use farhaul::Error;
use farhaul::errors::Code;
use farhaul_api::{Cap, CapList, CapView};

use super::table::TextTable;
use super::{client, quoted};
use crate::args::cap::{CapArgs, CapVerb};
use crate::ui::{printer, units};

pub fn cap(args: &CapArgs) -> Result<(), Error> {
    match &args.verb {
        CapVerb::Set {
            name,
            rate,
            parent,
            peer,
            network,
            principal,
            weight,
            schedule,
            time_zone,
            answer,
        } => {
            let client = client(&answer.api)?;
            let path = format!("/caps/{}", quoted(name));
            // The service replaces a cap as a whole, so the fields that are not given come from the present
            // one.
            let mut cap = match client.get::<CapView>(&path) {
                Ok(there) => there.cap,
                Err(error) if error.code() == Code::NoSuchThing => Cap::default(),
                Err(error) => return Err(error),
            };
            if let Some(rate) = rate {
                cap.rate_bps = rate.0;
            }
            for (field, values) in [
                (&mut cap.peers, peer),
                (&mut cap.networks, network),
                (&mut cap.principals, principal),
                (&mut cap.schedule, schedule),
            ] {
                if !values.is_empty() {
                    field.clone_from(values);
                }
            }
            for (field, value) in [(&mut cap.parent, parent), (&mut cap.time_zone, time_zone)] {
                if value.is_some() {
                    field.clone_from(value);
                }
            }
            cap.weight = weight.unwrap_or(cap.weight);
            let view: CapView = client.put(&path, &cap)?;
            match answer {
                answer if answer.json => printer::json(&view),
                answer if answer.quiet => Ok(()),
                _ => printer::data(table(&[view]).as_bytes()),
            }
        }
        CapVerb::List { answer } => {
            let CapList { caps } = client(&answer.api)?.get("/caps")?;
            if answer.json { printer::json(&caps) } else { printer::data(table(&caps).as_bytes()) }
        }
        CapVerb::Remove { name, answer } => client(&answer.api)?.delete(&format!("/caps/{}", quoted(name))),
    }
}

fn table(caps: &[CapView]) -> String {
    let mut table =
        TextTable::new(&["CAP", "IN", "NOW", "SESSIONS", "MOVED", "WEIGHT", "ABOUT", "UNTIL", "SCHEDULE"]);
    for CapView { name, cap, now_bps, sessions, moved_bytes, next_change, may: _ } in caps {
        let about = [&*cap.principals, &*cap.peers, &*cap.networks].concat().join(" ");
        let is_host = name == "host";
        table.row(vec![
            name.clone(),
            if is_host { "-".into() } else { cap.parent.clone().unwrap_or_else(|| "host".into()) },
            now_bps.map_or("no limit".into(), |bps| units::rate(bps as f64)),
            sessions.to_string(),
            units::size(*moved_bytes),
            format!("{:?}", cap.weight),
            if is_host { "everything".into() } else { about },
            next_change.map_or("-".into(), |time| time.to_string()),
            cap.schedule.join("; "),
        ]);
    }
    table.text()
}
