//! The request for a stream, which is this service's part of the hello.

use farhaul_connect::features::Features;
use farhaul_connect::hello::{Refusal, SessionOpening};
use farhaul_connect::session_needs;
use farhaul_session::options::NetworkOptions;
use farhaul_words::{Code, Error};
use serde::{Deserialize, Serialize};

/// The name of this service in a hello.
const SERVICE: &str = "stream";
/// Feature: blocks may have deadlines.
const DEADLINES: &str = "deadlines";
/// Longest name of a stream, in bytes.
const NAME_MAX: usize = 255;

/// The terms that both ends of a stream keep to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StreamRequest {
    pub(super) name: String,
    /// Whether the client sends; otherwise it receives.
    pub(super) client_sends: bool,
    /// Blocks are handed out in the order in which they were put.
    pub(super) in_order: bool,
    /// Each block has a digest.
    pub(super) digests: bool,
    /// Blocks may have deadlines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) deadlines: bool,
}

impl StreamRequest {
    /// The opening with which the client begins the session.
    pub(super) fn opening(&self, network: NetworkOptions) -> Result<SessionOpening, Error> {
        let network = network.checked()?;
        self.judged(&network)?;
        let request =
            serde_json::to_vec(self).map_err(|error| Error::new(Code::Misuse, error.to_string()))?;
        Ok(SessionOpening {
            service: SERVICE.into(),
            needs: session_needs(&network).and(if self.deadlines { &[DEADLINES] } else { &[] }),
            request,
            many: false,
            network,
        })
    }

    /// The request in a client's opening.
    pub(super) fn of(opening: &SessionOpening) -> Result<StreamRequest, Refusal> {
        let request: StreamRequest = opening.request_for(SERVICE)?;
        request.judged(&opening.network).map_err(|error| Refusal::from_error(&error))?;
        Ok(request)
    }

    fn judged(&self, network: &NetworkOptions) -> Result<(), Error> {
        if self.name.is_empty() || self.name.len() > NAME_MAX {
            return Err(Error::new(Code::Misuse, "a stream's name has 1 to 255 bytes"));
        }
        let is_split = network.flow_count() + network.further_flows() > 1 || network.auto_paths;
        if self.in_order && is_split {
            return Err(Error::new(
                Code::Misuse,
                "a stream in order has one flow: ask for no more flows or paths",
            ));
        }
        Ok(())
    }
}

/// The features that this end has in a stream.
pub(super) fn own_features() -> Features {
    Features::of(&[DEADLINES])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_judged_at_both_ends() {
        let asked = |name: &str, in_order| StreamRequest {
            name: name.into(),
            client_sends: true,
            in_order,
            digests: false,
            deadlines: false,
        };
        let network = |flows| NetworkOptions { flows, ..NetworkOptions::default() };
        let opening = asked("frames", true).opening(network(1)).unwrap();
        assert_eq!(StreamRequest::of(&opening).unwrap(), asked("frames", true));
        assert!(asked("frames", true).opening(network(2)).is_err());
        assert!(asked("", false).opening(network(1)).is_err());
        assert!(asked(&"x".repeat(256), false).opening(network(1)).is_err());
        let split = SessionOpening { network: network(2), ..opening.clone() };
        assert!(StreamRequest::of(&split).unwrap_err().is(Code::Misuse));
        let timed = StreamRequest { deadlines: true, ..asked("frames", false) }.opening(network(2)).unwrap();
        assert!(timed.needs.has(DEADLINES) && StreamRequest::of(&timed).unwrap().deadlines);
        let other = SessionOpening { service: "copy".into(), ..opening };
        assert!(StreamRequest::of(&other).unwrap_err().is(Code::FeatureMissing));
    }
}
