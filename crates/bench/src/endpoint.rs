//! The far end, `farhaul bench endpoint`: ssh starts it, and it does what the near end asks for.
//!
//! Always true: it ends when its standard input does; it then sends nothing more, and its folder is removed;
//! it sends datagrams only to addresses that have shown the token, which came through ssh.

use std::io::{stdin, stdout};
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;

use farhaul::Error;
use farhaul::errors::{Code, ExitCode, Misbehaviour};
use farhaul::sisters::PeerDiagnosis;
use farhaul_connect::hello::{self, HelloError, Refusal};
use farhaul_doctor::target::Role;

use crate::findings::HostFacts;
use crate::folder::BenchFolder;
use crate::link::{self, CaseRun};
use crate::messages::{CaseOpening, EndpointAnswer, EndpointQuestion, PROTOCOL};

/// Answers questions on standard input and output until there are no more.
pub fn serve() -> ExitCode {
    let is_input_closed = Arc::new(AtomicBool::new(false));
    let questions = read_questions(is_input_closed.clone());
    let ssh_connection = std::env::var("SSH_CONNECTION").ok();
    let mut state = EndpointState { ssh_connection, folder: None, running: None, is_input_closed };
    for body in questions {
        let answer = match serde_json::from_slice(&body) {
            Ok(question) => state
                .answer(question)
                .unwrap_or_else(|error| EndpointAnswer::Refused(Refusal::from_error(&error))),
            Err(error) => EndpointAnswer::Refused(Refusal::from_error(&Error::misbehaved(
                Misbehaviour::BenchAnswer,
                error.to_string(),
            ))),
        };
        let written: Result<(), HelloError> = hello::write_frame(&mut stdout().lock(), &answer);
        if written.is_err() {
            return ExitCode::Lost;
        }
    }
    ExitCode::Ok
}

/// Reads in a thread of its own, so that a near end that goes away is noticed during a measurement.
fn read_questions(is_input_closed: Arc<AtomicBool>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok(body) = hello::read_frame(&mut stdin().lock()) {
            if sender.send(body.to_vec()).is_err() {
                break;
            }
        }
        is_input_closed.store(true, Relaxed);
    });
    receiver
}

struct EndpointState {
    ssh_connection: Option<String>,
    folder: Option<BenchFolder>,
    running: Option<CaseRun>,
    /// Set when the near end has closed the standard input; it ends the measurement that is running.
    is_input_closed: Arc<AtomicBool>,
}

impl EndpointState {
    fn answer(&mut self, question: EndpointQuestion) -> Result<EndpointAnswer, Error> {
        match question {
            EndpointQuestion::Hello { .. } => Ok(EndpointAnswer::Hello {
                protocol: PROTOCOL,
                version: env!("CARGO_PKG_VERSION").into(),
                facts: HostFacts::of_this_host(),
                ssh_connection: self.ssh_connection.clone(),
            }),
            EndpointQuestion::Open(opening) => self.open(*opening),
            EndpointQuestion::Close => match self.running.take() {
                Some(running) => Ok(EndpointAnswer::Closed(running.finish())),
                None => Err(Error::from(Misbehaviour::BenchOrder)),
            },
            // Further files would go to another folder than the ones that are there.
            EndpointQuestion::Folder { .. } if self.folder.is_some() => {
                Err(Error::from(Misbehaviour::BenchOrder))
            }
            EndpointQuestion::Folder { path, room } => {
                let path = PathBuf::from(std::ffi::OsString::from_vec(path));
                let folder = self.folder.insert(BenchFolder::make(&path, room)?);
                Ok(EndpointAnswer::Folder { path: folder.path().as_os_str().as_bytes().to_vec() })
            }
            EndpointQuestion::Settle { name } => self.folder()?.settle(&name).map(|()| EndpointAnswer::Done),
            EndpointQuestion::Forget { name } => self.folder()?.forget(&name).map(|()| EndpointAnswer::Done),
            EndpointQuestion::Diagnose { rate_bps, role } => {
                let role = role.as_deref().and_then(Role::of_name);
                Ok(EndpointAnswer::Diagnosed(PeerDiagnosis::of_this_host(rate_bps, role)))
            }
        }
    }

    fn folder(&self) -> Result<&BenchFolder, Error> {
        self.folder.as_ref().ok_or_else(|| Error::from(Misbehaviour::BenchOrder))
    }

    fn open(&mut self, opening: CaseOpening) -> Result<EndpointAnswer, Error> {
        let case = opening.case.checked()?;
        if opening.ports.len() != case.flows {
            return Err(Error::from(Misbehaviour::PortCount));
        }
        if self.running.is_some() {
            return Err(Error::from(Misbehaviour::BenchOrder));
        }
        let (first, last) = opening.udp_ports;
        let sockets =
            (0..case.flows).map(|_| link::bind(Some(first..=last))).collect::<std::io::Result<Vec<_>>>();
        let sockets = sockets.map_err(|_| {
            Error::new(
                Code::NoPort,
                format!("the far end has too few free UDP ports between {first} and {last}"),
            )
            .with_hint("choose others with --udp-ports")
        })?;
        let client = self
            .ssh_connection
            .as_deref()
            .and_then(|text| farhaul_net::scoped(text.split_whitespace().next()?));
        let ports = link::ports(&sockets);
        let recv_buffer_bytes = link::recv_buffer_bytes(&sockets);
        let addresses: Vec<SocketAddr> = client.into_iter().collect();
        let keys = link::CaseKeys { token: opening.token, secret: opening.secret };
        let ends = link::ends(sockets, &addresses, &opening.ports);
        self.running =
            Some(CaseRun::start(&case, link::LinkSide::Far, ends, &keys, self.is_input_closed.clone())?);
        Ok(EndpointAnswer::Opened { ports, recv_buffer_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::far_end::FarEnd;

    #[test]
    fn questions_out_of_turn_are_refused() {
        let mut state = EndpointState {
            ssh_connection: None,
            folder: None,
            running: None,
            is_input_closed: Arc::default(),
        };
        let mut misbehaviour = |question| Misbehaviour::of(&state.answer(question));
        assert_eq!(misbehaviour(EndpointQuestion::Close), Some(Misbehaviour::BenchOrder));
        assert_eq!(
            misbehaviour(EndpointQuestion::Settle { name: "x".into() }),
            Some(Misbehaviour::BenchOrder)
        );
        let parent = tempfile::tempdir().unwrap();
        let folder =
            || EndpointQuestion::Folder { path: parent.path().as_os_str().as_bytes().to_vec(), room: 1 };
        assert_eq!(misbehaviour(folder()), None);
        assert_eq!(misbehaviour(folder()), Some(Misbehaviour::BenchOrder), "there is only one folder");
        assert_eq!(misbehaviour(EndpointQuestion::Hello { protocol: PROTOCOL }), None);
        assert_eq!(FarEnd::strange(&EndpointAnswer::Done).misbehaviour(), Some(Misbehaviour::BenchAnswer));
    }
}
