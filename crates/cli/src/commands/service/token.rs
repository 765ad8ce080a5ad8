//! `farhaul token`: makes, lists and revokes tokens.

use farhaul::{Code, Error};
use farhaul_service::ServiceClient;
use serde_json::{Value, json};

use super::table::TextTable;
use super::{client, quoted};
use crate::args::service::{TokenArgs, TokenVerb};
use crate::ui::printer;

/// The lines about a token that reaches everything, and about one that reaches nothing.
const WHOLE: &str = "it is the whole account of the service's user: whoever has it uses all files, keys and peers of that user as far as its scopes go";
const NOTHING: &str = "it reaches no file and no peer: name them with --root and --peer";

pub fn token(args: &TokenArgs) -> Result<(), Error> {
    match &args.verb {
        TokenVerb::Create { scope, root, peer, identity, everything, expires, name, answer } => {
            let reach = match everything {
                true => json!({"everything": true}),
                false => json!({"local": root, "peers": peers(peer)?, "identities": identity}),
            };
            let wish = json!({"name": name, "scopes": scope, "reach": reach, "expires_in": expires});
            let made: Value = client(&answer.api)?.post("/tokens", &wish)?;
            if answer.json {
                return printer::json(&made);
            }
            if !answer.quiet {
                printer::line(&format!(
                    "token {}; its secret is shown only this once",
                    made["id"].as_str().unwrap_or_default()
                ));
                if *everything {
                    printer::line(WHOLE);
                } else if root.is_empty() && peer.is_empty() {
                    printer::line(NOTHING);
                }
            }
            printer::data(format!("{}\n", made["token"].as_str().unwrap_or_default()).as_bytes())
        }
        TokenVerb::List { answer } => list(&client(&answer.api)?, answer.json),
        TokenVerb::Revoke { id, answer } => client(&answer.api)?.delete(&format!("/tokens/{}", quoted(id))),
    }
}

/// Reads the values of `--peer`, such as `hpc:/incoming/a`: for each peer its directories.
fn peers(texts: &[String]) -> Result<Value, Error> {
    let mut peers = json!({});
    for text in texts {
        // The directory begins at the first slash that follows a colon.
        let host = text.strip_prefix("ssh://").unwrap_or(text);
        let scheme_len = text.len() - host.len();
        let at = host.find(":/").map(|at| scheme_len + at).ok_or_else(|| {
            Error::new(Code::BadOption, format!("--peer {text}: write PEER:/DIR, such as hpc:/incoming"))
        })?;
        let (peer, directory) = (&text[..at], &text[at + 1..]);
        match peers[peer].as_array_mut() {
            Some(there) => there.push(json!(directory)),
            None => peers[peer] = json!([directory]),
        }
    }
    Ok(peers)
}

fn list(client: &ServiceClient, json: bool) -> Result<(), Error> {
    let mut all: Vec<Value> = Vec::new();
    let mut cursor = String::new();
    loop {
        let page: Value = client.get(&format!("/tokens?limit=1000&cursor={cursor}"))?;
        all.extend(page["tokens"].as_array().cloned().unwrap_or_default());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = quoted(next),
            None => break,
        }
    }
    if json {
        return printer::json(&all);
    }
    let mut table = TextTable::new(&["ID", "NAME", "SCOPES", "EXPIRES", "REACHES"]);
    for token in &all {
        let scopes = token["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let expires = match (token["revoked"].as_str(), token["expires"].as_str()) {
            (Some(_), _) => "revoked",
            (None, Some(time)) => time,
            (None, None) => "never",
        };
        table.row(vec![
            token["id"].as_str().unwrap_or_default().into(),
            token["name"].as_str().unwrap_or_default().into(),
            scopes.collect::<Vec<_>>().join(","),
            expires.into(),
            reaches(&token["reach"]),
        ]);
    }
    printer::data(table.text().as_bytes())?;
    for token in all.iter().filter(|token| token["revoked"].is_null()) {
        if let Some(warning) = token["warning"].as_str() {
            printer::warning(&format!("token {}: {warning}", token["id"].as_str().unwrap_or_default()));
        }
    }
    Ok(())
}

fn reaches(reach: &Value) -> String {
    if reach["everything"] == true {
        return "everything".into();
    }
    let local =
        reach["local"].as_array().into_iter().flatten().filter_map(Value::as_str).map(ToString::to_string);
    let far = reach["peers"].as_object().into_iter().flatten().flat_map(|(peer, prefixes)| {
        let prefixes = prefixes.as_array().into_iter().flatten().filter_map(Value::as_str);
        prefixes.map(move |prefix| format!("{peer}:{prefix}"))
    });
    let names = reach["identities"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let all: Vec<String> = local.chain(far).chain(names.map(|name| format!("as {name}"))).collect();
    if all.is_empty() { "nothing".into() } else { all.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reach_is_shown_in_words() {
        assert_eq!(reaches(&json!({"everything": true, "local": [], "peers": {}})), "everything");
        assert_eq!(reaches(&json!({"everything": false, "local": [], "peers": {}})), "nothing");
        let named =
            json!({"everything": false, "local": ["/a"], "peers": {"hpc": ["/b"]}, "identities": ["beam"]});
        assert_eq!(reaches(&named), "/a hpc:/b as beam");
    }

    #[test]
    fn peers_are_read_with_their_ports() {
        let read =
            peers(&["hpc:/a", "hpc:/b", "h:4000:/c", "ssh://u@h:/d", "[fd00::1]:/e"].map(String::from))
                .unwrap();
        assert_eq!(
            read,
            json!({"hpc": ["/a", "/b"], "h:4000": ["/c"], "ssh://u@h": ["/d"], "[fd00::1]": ["/e"]})
        );
        assert!(peers(&["hpc".into()]).is_err());
    }
}
