//! `farhaul token`: makes, lists and revokes tokens.

use std::collections::BTreeMap;

use farhaul::Error;
use farhaul::errors::Code;
use farhaul_api::{CallerReach, NewToken, Scope, TokenPage, TokenView, TokenWish};
use farhaul_service::ServiceClient;

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
                true => CallerReach::everything(),
                false => CallerReach {
                    everything: false,
                    local: root.clone(),
                    peers: peers(peer)?,
                    identities: identity.clone(),
                },
            };
            let wish = TokenWish { name: name.clone(), scopes: scope.clone(), reach, expires_in: *expires };
            let made: NewToken = client(&answer.api)?.post("/tokens", &wish)?;
            if answer.json {
                return printer::json(&made);
            }
            if !answer.quiet {
                printer::line(&format!("token {}; its secret is shown only this once", made.about.id));
                if *everything {
                    printer::line(WHOLE);
                } else if root.is_empty() && peer.is_empty() {
                    printer::line(NOTHING);
                }
            }
            printer::data(format!("{}\n", made.token).as_bytes())
        }
        TokenVerb::List { answer } => list(&client(&answer.api)?, answer.json),
        TokenVerb::Revoke { id, answer } => client(&answer.api)?.delete(&format!("/tokens/{}", quoted(id))),
    }
}

/// Reads the values of `--peer`, such as `hpc:/incoming/a`: for each peer its directories.
fn peers(texts: &[String]) -> Result<BTreeMap<String, Vec<String>>, Error> {
    let mut peers = BTreeMap::<String, Vec<String>>::new();
    for text in texts {
        // The directory begins at the first slash that follows a colon.
        let host = text.strip_prefix("ssh://").unwrap_or(text);
        let scheme_len = text.len() - host.len();
        let at = host.find(":/").map(|at| scheme_len + at).ok_or_else(|| {
            Error::new(Code::BadOption, format!("--peer {text}: write PEER:/DIR, such as hpc:/incoming"))
        })?;
        let (peer, directory) = (&text[..at], &text[at + 1..]);
        peers.entry(peer.into()).or_default().push(directory.into());
    }
    Ok(peers)
}

fn list(client: &ServiceClient, json: bool) -> Result<(), Error> {
    let mut all: Vec<TokenView> = Vec::new();
    let mut cursor = String::new();
    loop {
        let page: TokenPage = client.get(&format!("/tokens?limit=1000&cursor={cursor}"))?;
        all.extend(page.tokens);
        match page.next_cursor {
            Some(next) => cursor = quoted(&next),
            None => break,
        }
    }
    if json {
        return printer::json(&all);
    }
    let mut table = TextTable::new(&["ID", "NAME", "SCOPES", "EXPIRES", "REACHES"]);
    for token in &all {
        let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.text_or(Scope::name)).collect();
        let expires = match (token.revoked, token.expires) {
            (Some(_), _) => "revoked".into(),
            (None, Some(time)) => time.to_string(),
            (None, None) => "never".into(),
        };
        table.row(vec![
            token.id.clone(),
            token.name.clone(),
            scopes.join(","),
            expires,
            reaches(&token.reach),
        ]);
    }
    printer::data(table.text().as_bytes())?;
    for token in all.iter().filter(|token| token.revoked.is_none()) {
        if let Some(warning) = &token.warning {
            printer::warning(&format!("token {}: {warning}", token.id));
        }
    }
    Ok(())
}

fn reaches(reach: &CallerReach) -> String {
    let CallerReach { everything, local, peers, identities } = reach;
    if *everything {
        return "everything".into();
    }
    let near = local.iter().map(|directory| directory.display().to_string());
    let far = peers
        .iter()
        .flat_map(|(peer, prefixes)| prefixes.iter().map(move |prefix| format!("{peer}:{prefix}")));
    let all: Vec<String> =
        near.chain(far).chain(identities.iter().map(|name| format!("as {name}"))).collect();
    if all.is_empty() { "nothing".into() } else { all.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reach_is_shown_in_words() {
        assert_eq!(reaches(&CallerReach::everything()), "everything");
        assert_eq!(reaches(&CallerReach::default()), "nothing");
        let named = CallerReach {
            local: vec!["/a".into()],
            peers: [("hpc".into(), vec!["/b".into()])].into(),
            identities: vec!["beam".into()],
            ..CallerReach::default()
        };
        assert_eq!(reaches(&named), "/a hpc:/b as beam");
    }

    #[test]
    fn peers_are_read_with_their_ports() {
        let read =
            peers(&["hpc:/a", "hpc:/b", "h:4000:/c", "ssh://u@h:/d", "[fd00::1]:/e"].map(String::from))
                .unwrap();
        let all = [
            ("hpc", vec!["/a", "/b"]),
            ("h:4000", vec!["/c"]),
            ("ssh://u@h", vec!["/d"]),
            ("[fd00::1]", vec!["/e"]),
        ];
        let expected =
            all.map(|(peer, list)| (peer.to_string(), list.into_iter().map(String::from).collect()));
        assert_eq!(read, expected.into());
        assert!(peers(&["hpc".into()]).is_err());
    }
}
