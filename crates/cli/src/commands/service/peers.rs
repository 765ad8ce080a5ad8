//! `farhaul peers`: lists the other hosts of jobs, or shows one.

use farhaul::Error;
use farhaul_api::{PeerList, PeerView};

use super::table::TextTable;
use super::{client, quoted};
use crate::args::service::PeersArgs;
use crate::ui::{printer, units};

pub fn peers(args: &PeersArgs) -> Result<(), Error> {
    let client = client(&args.answer.api)?;
    if let Some(name) = &args.name {
        let peer: PeerView = client.get(&format!("/peers/{}", quoted(name)))?;
        return if args.answer.json { printer::json(&peer) } else { printer::data(one(&peer).as_bytes()) };
    }
    let PeerList { peers } = client.get("/peers")?;
    if args.answer.json {
        return printer::json(&peers);
    }
    let mut table = TextTable::new(&[
        "PEER", "RUNNING", "WAITING", "ENDED", "FAILED", "BYTES", "REACHED", "CAP", "IDENTITY",
    ]);
    for peer in &peers {
        table.row(vec![
            peer.name.clone(),
            format!("{} of {}", peer.running, peer.running_max),
            peer.unfinished.saturating_sub(peer.running).to_string(),
            peer.transfers.to_string(),
            peer.failed.to_string(),
            units::size(peer.bytes),
            peer.last_reached.map_or("-".into(), |time| time.to_string()),
            peer.cap.clone(),
            peer.identity.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    let shown = if peers.is_empty() { "no peer is known\n".into() } else { table.text() };
    printer::data(shown.as_bytes())
}

/// A line for each field that has a value, by its name.
fn one(peer: &PeerView) -> String {
    let PeerView {
        name,
        configured,
        identity,
        fingerprint,
        known_keys,
        cap,
        running_max,
        running,
        unfinished,
        last_ended,
        last_reached,
        transfers,
        failed,
        bytes,
    } = peer;
    let keys = known_keys.join(" ");
    let fields: [(&str, Option<String>); 14] = [
        ("bytes", Some(bytes.to_string())),
        ("cap", Some(cap.clone())),
        ("configured", configured.clone()),
        ("failed", Some(failed.to_string())),
        ("fingerprint", fingerprint.clone()),
        ("identity", identity.clone()),
        ("known keys", Some(keys).filter(|keys| !keys.is_empty())),
        ("last ended", last_ended.map(|time| time.to_string())),
        ("last reached", last_reached.map(|time| time.to_string())),
        ("name", Some(name.clone())),
        ("running", Some(running.to_string())),
        ("running max", Some(running_max.to_string())),
        ("transfers", Some(transfers.to_string())),
        ("unfinished", Some(unfinished.to_string())),
    ];
    let mut table = TextTable::new(&[]);
    for (name, value) in fields {
        if let Some(value) = value {
            table.row(vec![name.into(), value]);
        }
    }
    table.text().trim_start().to_string()
}
