//! The request of a session that changes names: the part of the hello that belongs to this service.

use farhaul_connect::features::{Features, WITHIN};
use farhaul_connect::hello::{Refusal, SessionOpening};
use farhaul_connect::{
    AdmissionReply, AllowedRequest, ContentDirection, PathPrefixes, Rights, RightsRequest, session_needs,
};
use farhaul_session::options::{MEMORY_MIN, NetworkOptions};
use farhaul_words::{Code, Error};
use serde::{Deserialize, Serialize};

/// The name of this service in a hello.
pub const SERVICE: &str = "names";

/// The options of such a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct NamesRequest {
    /// The directories that its paths may not leave, wherever links lead; `None` if the client may use everything
    /// there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) within: Option<PathPrefixes>,
}

impl NamesRequest {
    /// The opening of the client's session.
    pub(crate) fn opening(self, network: NetworkOptions) -> Result<SessionOpening, Error> {
        // No content passes through this session.
        let network = NetworkOptions { memory_bytes: MEMORY_MIN, ..network }.checked()?;
        let needs = session_needs(&network);
        let request =
            serde_json::to_vec(&self).map_err(|error| Error::new(Code::Misuse, error.to_string()))?;
        let needs = if self.within.is_some() { needs.and(&[WITHIN]) } else { needs };
        Ok(SessionOpening { service: SERVICE.into(), needs, request, many: false, network })
    }

    /// The request in a client's opening.
    pub(crate) fn of(opening: &SessionOpening) -> Result<NamesRequest, Refusal> {
        opening.request_for(SERVICE)
    }
}

/// Answers a client whose rights nobody judges, such as one over ssh.
pub fn admit(opening: &SessionOpening) -> Result<AdmissionReply, Refusal> {
    NamesRequest::of(opening).map(|_| admitted())
}

/// Answers a client of a daemon, within its rights. A change of names is writing, and no grant is for one.
pub fn admit_within(
    rights: &Rights,
    opening: &SessionOpening,
) -> Result<(AdmissionReply, AllowedRequest), Refusal> {
    NamesRequest::of(opening)?;
    let asked = RightsRequest { way: ContentDirection::Write, cipher: opening.network.cipher, copy: None };
    Ok((admitted(), rights.judge(asked)?))
}

fn admitted() -> AdmissionReply {
    AdmissionReply { features: own_features(), terms: Vec::new() }
}

/// The features of this end.
pub(crate) fn own_features() -> Features {
    Features::of(&[WITHIN])
}

#[cfg(test)]
mod tests {
    use farhaul_connect::Access;

    use super::*;

    #[test]
    fn only_who_may_write_changes_names() {
        let opening = NamesRequest::default().opening(NetworkOptions::default()).unwrap();
        for (access, is_allowed) in
            [(Access::ReadWrite, true), (Access::WriteOnly, true), (Access::ReadOnly, false)]
        {
            let rights = Rights { access, ..Rights::default() };
            let judged = admit_within(&rights, &opening);
            assert_eq!(judged.is_ok(), is_allowed, "{access:?}");
            assert!(judged.is_ok() || judged.is_err_and(|refusal| refusal.is(Code::Forbidden)));
        }
        let narrow = Rights { overwrites: false, deletes: false, ..Rights::default() };
        let allowed = admit_within(&narrow, &opening).unwrap().1;
        assert!(!allowed.overwrites() && !allowed.deletes(), "each change is judged by itself");
        assert!(admit(&opening).is_ok());
        let other = SessionOpening { request: b"[".to_vec(), ..opening };
        assert!(admit(&other).is_err() && admit_within(&Rights::default(), &other).is_err());
    }
}
