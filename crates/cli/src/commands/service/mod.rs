//! The verbs that ask a service. Each takes its arguments, asks, and prints the answer.

mod cap;
mod history;
mod job_control;
mod jobs;
mod open;
mod peers;
mod store;
mod submit;
mod table;
mod token;
mod top;
mod wait;
mod watch;

use std::path::{Path, PathBuf};

use farhaul::Error;
use farhaul::errors::Code;
use farhaul::sisters::plain;
use farhaul::target::default_identity_path;
use farhaul_service::{ServiceAddress, ServiceClient, own_sockets};

use crate::args::service::ApiArgs;

pub use cap::cap;
pub use history::{history, receipt, usage};
pub use job_control::{act, set};
pub use jobs::{job, jobs, logs};
pub use open::open;
pub use peers::peers;
pub use store::store;
pub use submit::submit;
pub use token::token;
pub use top::top;
pub use wait::wait;
pub use watch::watch;

/// The most bytes of a token file that are read.
const TOKEN_MAX: u64 = 4096;

/// Returns a client for the service that the options name.
fn client(api: &ApiArgs) -> Result<ServiceClient, Error> {
    let address = match &api.api {
        Some(text) => ServiceAddress::parse(text, api.ca.as_deref())?,
        None => ServiceAddress::Unix(own_socket()),
    };
    let token = match &address {
        ServiceAddress::Unix(_) => None,
        ServiceAddress::Tcp { .. } => Some(token_of(api.token_file.as_deref())?),
    };
    ServiceClient::new(address, token)
}

/// Returns the socket of this user's service: the first one that exists.
fn own_socket() -> PathBuf {
    let mut all = own_sockets();
    match all.iter().position(|path| path.exists()) {
        Some(index) => all.swap_remove(index),
        None => all.into_iter().next().unwrap_or_default(),
    }
}

fn token_of(file: Option<&Path>) -> Result<String, Error> {
    use std::io::Read as _;
    let file = file.map_or_else(|| default_identity_path().with_file_name("token"), Path::to_path_buf);
    let mut text = String::new();
    let read = std::fs::File::open(&file).and_then(|opened| opened.take(TOKEN_MAX).read_to_string(&mut text));
    read.map_err(|error| {
        Error::new(Code::NoToken, format!("cannot read the token in {}: {}", file.display(), plain(&error))).with_hint(
            "write a token to this file (farhaul token create makes one on the service's host), or name another file with --token-file",
        )
    })?;
    Ok(text.trim().to_string())
}

/// Returns the text quoted for a part of a URL.
fn quoted(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let quote = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(quote).collect()
}

/// `?a=b&c=d` of the parts that have a value.
fn query(parts: &[(&str, Option<String>)]) -> String {
    let given = parts.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let pairs: Vec<String> = given.map(|(name, value)| format!("{name}={}", quoted(value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// Joins words with commas, as the service takes lists. Returns `None` if there are none.
fn joined(words: &[String]) -> Option<String> {
    (!words.is_empty()).then(|| words.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_quoted() {
        let text = query(&[("a", Some("x y&=/ü".into())), ("b", None), ("c", Some("1".into()))]);
        assert_eq!(text, "?a=x%20y%26%3D%2F%C3%BC&c=1");
        assert_eq!(query(&[("a", None)]), "");
    }
}
