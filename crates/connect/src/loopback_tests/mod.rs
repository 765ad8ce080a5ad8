//! Client and daemon in one process, over real sockets of the loopback interface.

mod admission;
mod carriers;
mod grants;
mod passed_sockets;
mod race;
mod relay;
mod trust;

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use farhaul_net::{Link, RecvBatch, SendBatch, SendStatus};
use farhaul_session::budget::{Budget, MemoryLimits};
use farhaul_session::handle::Handle;
use farhaul_session::hello_reply::{ReplyAction, ReplyResult, SessionAgreement, SessionRefusal};
use farhaul_session::options::NetworkOptions;
use farhaul_session::rate_cap::CapMembership;
use farhaul_session::setup::{CarrierFallback, Transport};
use farhaul_words::{Code, ExitCode};

use super::dial::connect_asking;
use super::half_open::{PER_ADDRESS_MAX, UNVALIDATED_MAX};
use super::hello::{Attach, GENERATIONS, Hello, HelloReply, Refusal};
use super::trust::Consent;
use super::*;

/// Answers no question.
fn nobody(_: &str) -> Consent {
    Consent::NobodyAsked
}

/// Bounds that allow any files.
fn served() -> KeyBounds {
    KeyBounds { root: vec!["/srv".into()], ..KeyBounds::default() }
}

/// Allows whatever the client asks for.
fn all_of(client: &AuthenticatedPeer) -> Result<(AdmissionReply, AllowedRequest), Refusal> {
    let admitted = AdmissionReply { features: Features::of(&["juggling"]), terms: b"agreed".to_vec() };
    Ok((
        admitted,
        client.rights.judge(RightsRequest {
            way: ContentDirection::Read,
            cipher: Cipher::default(),
            copy: None,
        })?,
    ))
}

/// A daemon that hands its sessions to the test.
struct Fixture {
    folder: tempfile::TempDir,
    address: SocketAddr,
    sessions: Receiver<EstablishedSession>,
    stop: DaemonStop,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What the daemon of a [`Fixture`] is to be.
struct FixtureSetup {
    held: HeldSockets,
    caps: Option<Arc<CapAssigner>>,
    admit: Arc<Admitter>,
}

impl Default for FixtureSetup {
    fn default() -> FixtureSetup {
        let admit = |opening: &SessionOpening, client: &AuthenticatedPeer| {
            if opening.request.starts_with(b"/forbidden") {
                return Err(Refusal::new(Code::Forbidden, "not for you"));
            }
            all_of(client)
        };
        FixtureSetup { held: HeldSockets::default(), caps: None, admit: Arc::new(admit) }
    }
}

impl Fixture {
    fn start() -> Fixture {
        Fixture::start_as(FixtureSetup::default())
    }

    fn start_as(FixtureSetup { held, caps, admit }: FixtureSetup) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        keygen(&path("client"), "client").unwrap();
        std::fs::copy(path("client.pub"), path("authorized")).unwrap();
        let daemon = Daemon::bind(ListenConfig {
            held,
            memory: MemoryLimits::default(),
            within: Budget::of_process(),
            rate_max_bps: None,
            caps,
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            identity: Identity::load_or_generate(&path("host"), "").unwrap(),
            authenticator: Arc::new(AuthorizedKeys::load(&path("authorized"), served()).unwrap()),
            admit,
        })
        .unwrap();
        let address = daemon.local_addrs()[0];
        let stop = daemon.stop_handle();
        let (sender, sessions) = crossbeam_channel::unbounded();
        let run = move || daemon.run(Arc::new(move |established| sender.send(established).unwrap())).unwrap();
        let thread = Some(std::thread::spawn(run));
        Fixture { folder, address, sessions, stop, thread }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn key(&self) -> String {
        Identity::load(&self.path("host")).unwrap().fingerprint()
    }

    fn target(&self) -> DaemonTarget {
        DaemonTarget {
            host: "127.0.0.1".into(),
            port: self.address.port(),
            identity_file: Some(self.path("client")),
            known_hosts_file: Some(self.path("known_hosts")),
            fingerprint: None,
            accept_new: true,
            ..DaemonTarget::default()
        }
    }

    fn connect(&self, udp: bool) -> (EstablishedSession, EstablishedSession) {
        let near = connect_asking(&self.target(), params(udp, 2), &nobody, &Handle::new()).unwrap();
        let far = self.sessions.recv_timeout(Duration::from_secs(10)).unwrap();
        (near, far)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

fn params(udp: bool, flows: u16) -> HelloParams {
    let opening = test_opening(NetworkOptions { flows, ..NetworkOptions::default() });
    HelloParams { opening, features: Features::of(&["juggling"]), udp, early: false }
}

/// Sends one packet for flow `id`, and waits until it has arrived at the other link.
fn carry(from: &mut dyn Link, to: &mut dyn Link, id: u16, destination: Option<SocketAddr>) {
    let header = farhaul_proto::PacketHeader { flow_id: id, number: 77 }.encode();
    let packet = [&header[..], &[9; 40]].concat();
    let mut out = SendBatch::new(4096);
    out.to(destination);
    out.datagram(packet.len()).unwrap().copy_from_slice(&packet);
    assert_eq!(from.send(&mut out).unwrap(), SendStatus::All);
    let mut batch = RecvBatch::new();
    for _ in 0..1000 {
        if to.recv(&mut batch).unwrap() > 0 {
            assert_eq!(batch.datagrams().next().unwrap().bytes, packet);
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("nothing arrived");
}

/// Another daemon, which lets the client of `fixture` in.
fn another_for(fixture: &Fixture) -> Fixture {
    let other = Fixture::start();
    std::fs::copy(fixture.path("client.pub"), other.path("authorized")).unwrap();
    other
}
