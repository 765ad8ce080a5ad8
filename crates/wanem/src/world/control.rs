//! The control socket of a running lab: to change its links, read its statistics and enter its hosts.
//!
//! One JSON object and a line end go each way. A lab listens on two sockets: an abstract one in the network
//! that it was started in, which vanishes with it, and a file that its hosts see. It answers only its own
//! user.

use std::env;
use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::fstat;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::geteuid;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::hosts::{HostId, Lab, enter};
use super::mounts::RUN_FOLDER;
use super::user::keep_rights;
use crate::{Error, settings, sys};

/// The variable that names the socket to processes on the hosts.
const VARIABLE: &str = "FARHAUL_LAB_CONTROL";
const REQUEST_MAX: u64 = 64 << 10;
/// A client that connects and then sends nothing is dropped after this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// The number of namespaces of a host: user, pid, mounts, names, network.
const SPACES: usize = 5;

/// A change of a lab's links.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LabChange {
    /// The link, counted from 1; `None` for all.
    pub link: Option<usize>,
    /// Names and values as in [`crate::LinkSettings::set`].
    pub changes: Vec<(String, String)>,
    /// How long, from now on, nothing gets through.
    pub cut: Option<String>,
}

impl LabChange {
    /// Makes the change.
    pub fn apply(&self, lab: &Lab) -> Result<(), Error> {
        let cut = self.cut_ns()?;
        lab.change(self.link, &self.changes)?;
        cut.map_or(Ok(()), |ns| lab.cut(self.link, ns))
    }

    pub(super) fn cut_ns(&self) -> Result<Option<u64>, Error> {
        let Some(text) = &self.cut else { return Ok(None) };
        settings::time(text)
            .map(Some)
            .ok_or_else(|| Error::Usage(format!("'{text}' is not a time for a cut; write 10s or 500ms")))
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case")]
enum LabRequest {
    Set(LabChange),
    Stats,
    Enter { host: String },
}

/// What a process that enters a host is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entrance {
    /// The environment variables of the host's programs.
    pub environment: Vec<(String, String)>,
}

/// The lab's side of the control socket.
pub struct LabControl {
    name: String,
}

type Environment = dyn Fn(HostId) -> Vec<(String, String)> + Send + Sync;

impl LabControl {
    /// Opens the control socket of `lab`, under the name `wanted` or the first free number.
    pub fn open(
        lab: Arc<Lab>,
        wanted: Option<&str>,
        environment: impl Fn(HostId) -> Vec<(String, String)> + Send + Sync + 'static,
    ) -> Result<LabControl, Error> {
        let failed = || Error::io("cannot open the lab's control socket");
        let (name, outside) = listen_outside(wanted)?;
        let inside = UnixListener::bind(inside_path()).map_err(failed())?;
        let environment: Arc<Environment> = Arc::new(environment);
        for listener in [outside, inside] {
            let (lab, environment) = (lab.clone(), environment.clone());
            let thread = std::thread::Builder::new().name("control".into());
            thread.spawn(move || answer_all(&listener, &lab, &*environment)).map_err(failed())?;
        }
        Ok(LabControl { name })
    }

    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The variable by which programs on the hosts find the control socket.
    pub fn variable() -> (String, String) {
        (VARIABLE.into(), inside_path().to_string_lossy().into_owned())
    }

    /// Changes the lab `name` (`None` is the one around this process, or the only one) and returns its new
    /// settings.
    pub fn change(name: Option<&str>, change: LabChange) -> Result<Value, Error> {
        ask(name, &LabRequest::Set(change)).map(|(answer, _)| answer["links"].clone())
    }

    /// The statistics of a lab since its start.
    pub fn stats(name: Option<&str>) -> Result<Value, Error> {
        ask(name, &LabRequest::Stats).map(|(answer, _)| answer["links"].clone())
    }

    /// Moves this process, which must have one thread, to a host of a lab. Its children begin there.
    pub fn enter(name: Option<&str>, host: HostId) -> Result<Entrance, Error> {
        let failed = || Error::io(format!("cannot enter host {host}"));
        let (answer, spaces) = ask(name, &LabRequest::Enter { host: host.to_string() })?;
        let entrance = serde_json::from_value(answer).map_err(|error| failed()(error.into()))?;
        let spaces: [OwnedFd; SPACES] =
            spaces.try_into().map_err(|_| failed()(io::ErrorKind::InvalidData.into()))?;
        move_in(spaces).map_err(failed())?;
        Ok(entrance)
    }
}

fn move_in([user, pid, mounts, names, net]: [OwnedFd; SPACES]) -> io::Result<()> {
    let is_own = |kind: &str, space: &OwnedFd| -> io::Result<bool> {
        let own = fs::File::open(format!("/proc/self/ns/{kind}"))?;
        Ok(fstat(&own)?.st_ino == fstat(space)?.st_ino)
    };
    let (same_user, same_pid) = (is_own("user", &user)?, is_own("pid", &pid)?);
    if !same_user {
        move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
    }
    if !same_pid {
        move_into_link_name_space(pid.as_fd(), Some(LinkNameSpaceType::ProcessID))?;
    }
    enter(&mounts, &names, &net)?;
    if same_user { Ok(()) } else { keep_rights() }
}

fn inside_path() -> PathBuf {
    PathBuf::from(RUN_FOLDER).join("control")
}

fn prefix() -> String {
    format!("farhaul-lab.{}.", geteuid().as_raw())
}

/// The names of this user's running labs.
pub fn list_labs() -> Vec<String> {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let mut names = names_in(&text, &format!("@{}", prefix()));
    names.sort();
    names.dedup();
    names
}

fn names_in(text: &str, prefix: &str) -> Vec<String> {
    let sockets = text.lines().filter_map(|line| line.split_whitespace().nth(7));
    sockets.filter_map(|socket| socket.strip_prefix(prefix)).map(str::to_string).collect()
}

fn outside_address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{}{name}", prefix()))
}

fn listen_outside(wanted: Option<&str>) -> Result<(String, UnixListener), Error> {
    let numbers = (1..).map(|number: u32| number.to_string());
    let names: Box<dyn Iterator<Item = String>> = match wanted {
        Some(name) => Box::new(std::iter::once(name.to_string())),
        None => Box::new(numbers.take(1000)),
    };
    for name in names {
        match outside_address(&name).and_then(|address| UnixListener::bind_addr(&address)) {
            Ok(listener) => return Ok((name, listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(Error::io("cannot open the lab's control socket")(error)),
        }
    }
    Err(Error::Usage(format!("there is a lab '{}' already", wanted.unwrap_or("1000"))))
}

fn answer_all(listener: &UnixListener, lab: &Lab, environment: &Environment) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        // A bad request gets no answer, and the next client is served.
        let _ = answer(&stream, lab, environment);
    }
}

fn answer(stream: &UnixStream, lab: &Lab, environment: &Environment) -> io::Result<()> {
    if ![geteuid().as_raw(), 0].contains(&sys::peer_uid(stream.as_fd())?) {
        return Ok(());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    stream.take(REQUEST_MAX).read_to_string(&mut text)?;
    let (spaces, reply) = match serve(&text, lab, environment) {
        Ok(done) => done,
        Err(error) => (Vec::new(), json!({"ok": false, "error": error.to_string()})),
    };
    let fds: Vec<BorrowedFd<'_>> = spaces.iter().map(|space| space.as_fd()).collect();
    send(stream, format!("{reply}\n").as_bytes(), &fds)
}

fn serve(text: &str, lab: &Lab, environment: &Environment) -> Result<(Vec<OwnedFd>, Value), Error> {
    let request = serde_json::from_str(text).map_err(|error| Error::Usage(error.to_string()))?;
    match request {
        LabRequest::Set(change) => {
            change.apply(lab)?;
            Ok((Vec::new(), json!({"ok": true, "links": lab.settings()})))
        }
        LabRequest::Stats => Ok((Vec::new(), json!({"ok": true, "links": lab.total()}))),
        LabRequest::Enter { host } => {
            let id: HostId = host.parse()?;
            let spaces =
                lab.entrance(id).ok_or_else(|| Error::Usage(format!("this lab has no host {id}")))?;
            let failed = || Error::io("cannot open the host's namespaces");
            let own = |kind: &str| fs::File::open(format!("/proc/self/ns/{kind}")).map(OwnedFd::from);
            let mut fds = vec![own("user").map_err(failed())?, own("pid").map_err(failed())?];
            for space in spaces {
                fds.push(space.try_clone().map_err(failed())?);
            }
            Ok((fds, json!({"ok": true, "environment": environment(id)})))
        }
    }
}

fn send(stream: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SPACES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    io::Write::write_all(&mut &*stream, &bytes[sent..])
}

/// Sends a request to a lab; returns its answer and the descriptors that came with it.
fn ask(name: Option<&str>, request: &LabRequest) -> Result<(Value, Vec<OwnedFd>), Error> {
    let stream = connect(name)?;
    let failed = || Error::io("the lab does not answer");
    let text = serde_json::to_string(request).map_err(|error| failed()(error.into()))?;
    let asked = io::Write::write_all(&mut &stream, text.as_bytes())
        .and_then(|()| stream.shutdown(std::net::Shutdown::Write))
        .and_then(|()| receive(&stream));
    let (text, fds) = asked.map_err(failed())?;
    let answer: Value = serde_json::from_slice(&text).map_err(|error| failed()(error.into()))?;
    match answer["error"].as_str() {
        Some(error) => Err(Error::Usage(error.to_string())),
        None => Ok((answer, fds)),
    }
}

fn connect(name: Option<&str>) -> Result<UnixStream, Error> {
    let inside = env::var_os(VARIABLE).filter(|_| name.is_none());
    if let Some(path) = inside {
        return UnixStream::connect(path).map_err(Error::io("cannot reach the lab around this program"));
    }
    let labs = list_labs();
    let name = match (name, &labs[..]) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, []) => {
            return Err(Error::NoLab("no lab of yours is running; start one with farhaul lab up".into()));
        }
        (None, several) => {
            return Err(Error::NoLab(format!(
                "say which lab with --lab: {} are running",
                several.join(", ")
            )));
        }
    };
    let connected = outside_address(name).and_then(|address| UnixStream::connect_addr(&address));
    connected.map_err(|_| Error::NoLab(format!("there is no lab '{name}' of yours here")))
}

fn receive(stream: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    stream.set_read_timeout(Some(2 * PATIENCE))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SPACES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = vec![0; 4096];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut text)], &mut control, flags)?;
    text.truncate(received.bytes);
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    (&*stream).read_to_end(&mut text)?;
    Ok((text, fds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labs_are_found_by_their_sockets() {
        let text = "Num RefCount Protocol Flags Type St Inode Path\n\
                    0: 00000002 00000000 00010000 0001 01 11 @farhaul-lab.0.1\n\
                    0: 00000002 00000000 00010000 0001 01 12 @farhaul-lab.1000.2\n\
                    0: 00000002 00000000 00010000 0001 01 13 /run/x\n\
                    0: 00000002 00000000 00010000 0001 01 14\n";
        assert_eq!(names_in(text, "@farhaul-lab.0."), ["1"]);
    }

    #[test]
    fn descriptors_travel_with_an_answer() {
        let (near, far) = UnixStream::pair().unwrap();
        let null = fs::File::open("/dev/null").unwrap();
        send(&near, b"{}\n", &[null.as_fd(), null.as_fd()]).unwrap();
        drop(near);
        let (text, fds) = receive(&far).unwrap();
        assert_eq!((&text[..], fds.len()), (&b"{}\n"[..], 2));
    }
}
