//! The request of a read: the part of the hello that belongs to this service.

use farhaul_connect::features::{Features, WITHIN};
use farhaul_connect::hello::{Refusal, SessionOpening};
use farhaul_connect::{
    AdmissionReply, AllowedRequest, ContentDirection, PathPrefixes, Rights, RightsRequest, session_needs,
};
use farhaul_session::options::NetworkOptions;
use farhaul_words::{Code, Error};
use serde::{Deserialize, Serialize};

/// The name of this service in a hello.
pub const SERVICE: &str = "read";

/// The options of a read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ReadRequest {
    /// The directories that its paths may not leave, wherever links lead; `None` if the client may use
    /// everything there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) within: Option<PathPrefixes>,
}

impl ReadRequest {
    /// The opening of the client's session.
    pub(crate) fn opening(self, network: NetworkOptions) -> Result<SessionOpening, Error> {
        let network = network.checked()?;
        let needs = session_needs(&network);
        let request =
            serde_json::to_vec(&self).map_err(|error| Error::new(Code::Misuse, error.to_string()))?;
        Ok(SessionOpening {
            service: SERVICE.into(),
            needs: if self.within.is_some() { needs.and(&[WITHIN]) } else { needs },
            request,
            many: false,
            network,
        })
    }

    /// The request in a client's opening.
    pub(crate) fn of(opening: &SessionOpening) -> Result<ReadRequest, Refusal> {
        opening.request_for(SERVICE)
    }
}

/// Answers a client whose rights nobody judges, such as one over ssh.
pub fn admit(opening: &SessionOpening) -> Result<AdmissionReply, Refusal> {
    ReadRequest::of(opening).map(|_| admitted())
}

/// Answers a client of a daemon, within its rights.
pub fn admit_within(
    rights: &Rights,
    opening: &SessionOpening,
) -> Result<(AdmissionReply, AllowedRequest), Refusal> {
    ReadRequest::of(opening)?;
    let allowed = rights.judge(RightsRequest {
        way: ContentDirection::Read,
        cipher: opening.network.cipher,
        copy: None,
    })?;
    Ok((admitted(), allowed))
}

fn admitted() -> AdmissionReply {
    AdmissionReply { features: own_features(), terms: Vec::new() }
}

/// The features of this end in a read.
pub(crate) fn own_features() -> Features {
    Features::of(&[WITHIN])
}
