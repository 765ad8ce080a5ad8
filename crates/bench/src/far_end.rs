//! The far end as the near end sees it.

use std::net::SocketAddr;

use farhaul::Error;
use farhaul::errors::{Code, Misbehaviour};
use farhaul::target::SshTarget;
use farhaul_connect::RemoteProgram;
pub use farhaul_connect::hello::printable;

use crate::Monitor;
use crate::findings::HostFacts;
use crate::messages::{EndpointAnswer, EndpointQuestion, PROTOCOL};

/// The verb that starts the far end on its host.
const VERB: &str = "bench endpoint";

/// A far end that has answered the hello.
pub(crate) struct FarEnd<'a> {
    watch: &'a Monitor<'a>,
    program: RemoteProgram,
    addresses: Vec<SocketAddr>,
    pub(crate) facts: HostFacts,
}

impl<'a> FarEnd<'a> {
    pub(crate) fn start(target: &SshTarget, watch: &'a Monitor<'a>) -> Result<FarEnd<'a>, Error> {
        let mut program = RemoteProgram::start(target, VERB)?;
        let answer = program.ask(&EndpointQuestion::Hello { protocol: PROTOCOL }, watch)?;
        let EndpointAnswer::Hello { protocol, version, mut facts, ssh_connection } = answer else {
            return Err(FarEnd::strange(&answer));
        };
        if protocol != PROTOCOL {
            return Err(Error::new(
                Code::NoCommonVersion,
                format!(
                    "{} runs farhaul {}, this is farhaul {}: install the same version on both ends",
                    target.host,
                    printable(version.as_bytes(), 40),
                    env!("CARGO_PKG_VERSION")
                ),
            ));
        }
        facts.name = target.host.clone();
        let addresses = program.addresses(ssh_connection.as_deref(), watch)?;
        Ok(FarEnd { watch, program, addresses, facts })
    }

    pub(crate) fn ask(&mut self, question: &EndpointQuestion) -> Result<EndpointAnswer, Error> {
        match self.program.ask(question, self.watch)? {
            EndpointAnswer::Refused(refusal) => Err(refusal.into_error()),
            answer => Ok(answer),
        }
    }

    /// The addresses at which it may be reached by UDP.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub(crate) fn host(&self) -> &str {
        self.program.host()
    }

    /// The error for an answer that does not fit the question.
    pub(crate) fn strange(answer: &EndpointAnswer) -> Error {
        let text = format!("{answer:?}");
        Error::misbehaved(
            Misbehaviour::BenchAnswer,
            format!("it answered {}", printable(text.as_bytes(), 60)),
        )
    }
}
