//! The far end that ssh has started: `farhaul endpoint` on standard input and output.
//!
//! Always true: `farhaul endpoint` ends when its standard input does, whatever the session is waiting for, as
//! nobody else would end it. Everything behind the hello on standard input belongs to the stream carrier.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use farhaul_net::{Link as _, StreamLink, UdpLink, with_port};
use farhaul_session::options::PathAddresses;
use farhaul_session::setup::{CarrierFallback, FlowLink, Setup, SpareLink, StopFlag, Transport};
use farhaul_text::printable;
use farhaul_words::{Code, Error, ExitCode, Misbehaviour};
use rustix::event::{PollFd, PollFlags, poll};

use super::direct_tcp::DirectListener;
use super::flow_plan::{FlowPlan, LastId, PlannedFlow};
use super::flows::{attached_indices, random_flow_ids, reachable_from, reserved_ids};
use super::hello;
use super::hello::{Hello, HelloError, HelloReply, HelloSecret, Refusal, SessionOpening};
use super::ssh::{client_address, server_address, session_secret};
use super::{AdmissionReply, EstablishedSession, direct_tcp, discovery};

/// How long a session may take to end after its client has gone; then the process ends without it.
const END_TIME: Duration = Duration::from_secs(30);

/// Judges what the client wants, for the far end.
pub type OpeningJudge = dyn Fn(&SessionOpening) -> Result<AdmissionReply, Refusal>;

/// Answers the client's hello on standard input and output. These become the channel: from here on, what the
/// process prints goes to standard error, so that it cannot damage the channel. When standard input ends, the
/// session is stopped; half a minute later the process ends in any case. The client has already been told of
/// an error that this returns.
pub fn endpoint_stdio(admit: &OpeningJudge) -> Result<EstablishedSession, Error> {
    let (stdin, stdout) = take_stdio()?;
    ssh_endpoint(stdin, stdout, admit)
}

/// As [`endpoint_stdio`], in a program that does other things, too, and ends by itself.
pub fn endpoint_in_program(admit: &OpeningJudge) -> Result<EstablishedSession, Error> {
    let (stdin, stdout) = take_stdio()?;
    establish(stdin, stdout, ssh_connection(), None, admit)
}

fn take_stdio() -> Result<(OwnedFd, OwnedFd), Error> {
    let failed = || Error::io("cannot take over standard input and output");
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().map_err(failed())?;
    let stdout = std::io::stdout().as_fd().try_clone_to_owned().map_err(failed())?;
    let null = File::open("/dev/null").map_err(failed())?;
    rustix::stdio::dup2_stdin(&null).map_err(|error| failed()(error.into()))?;
    rustix::stdio::dup2_stdout(std::io::stderr()).map_err(|error| failed()(error.into()))?;
    Ok((stdin, stdout))
}

/// [`endpoint_stdio`] on other descriptors.
pub fn ssh_endpoint(
    stdin: OwnedFd,
    stdout: OwnedFd,
    admit: &OpeningJudge,
) -> Result<EstablishedSession, Error> {
    establish(stdin, stdout, ssh_connection(), Some(END_TIME), admit)
}

fn ssh_connection() -> Option<String> {
    std::env::var("SSH_CONNECTION").ok()
}

pub(super) fn establish(
    stdin: OwnedFd,
    stdout: OwnedFd,
    ssh_connection: Option<String>,
    end_time: Option<Duration>,
    admit: &OpeningJudge,
) -> Result<EstablishedSession, Error> {
    let (mut input, mut output) = (File::from(stdin), File::from(stdout));
    let mut hello = match read_hello(&mut input) {
        Ok(hello) => hello,
        Err(error) => return Err(refuse(&mut output, error)),
    };
    if hello.grant.is_some() {
        // Somebody whom ssh lets in may do what that user may; a grant would allow less.
        return Err(tell(&mut output, Refusal::new(Code::GrantRefused, "grants are for daemons")));
    }
    let admitted = match admit(&hello.opening).and_then(|admitted| admitted.meeting(&hello.opening.needs)) {
        Ok(admitted) => admitted,
        Err(refusal) => return Err(tell(&mut output, refusal)),
    };
    let (reply, sockets, door) = match prepare(&hello, ssh_connection, admitted) {
        Ok(prepared) => prepared,
        Err(error) => return Err(refuse(&mut output, error)),
    };
    hello::write_frame(&mut output, &reply)?;
    discovery::found(&mut hello.opening.network, &reply.paths);

    let stop = StopFlag::default();
    let watched = input.try_clone().map_err(Error::io("cannot watch standard input"))?;
    watch(watched.into(), stop.clone(), end_time)?;
    let link = StreamLink::from_fds(input.into(), output.into())
        .map_err(Error::io("cannot take over standard input and output"))?;
    join(hello, reply, sockets, door, link, stop)
}

fn read_hello(input: &mut File) -> Result<Hello, Error> {
    let body = hello::read_frame(input)?;
    Ok(hello::decode_hello(&body)?)
}

/// Tells the client the reason, as far as it can still be told.
fn refuse(output: &mut File, error: Error) -> Error {
    tell(output, Refusal::from_error(&error));
    error
}

fn tell(output: &mut File, refusal: Refusal) -> Error {
    let _: Result<(), HelloError> = hello::write_frame(output, &HelloReply::refuse(refusal.clone()));
    refusal.into_error()
}

/// The reply, the sockets of the flows, and the listening socket for direct connections.
type PreparedReply = (HelloReply, Vec<UdpLink>, Option<TcpListener>);

fn prepare(
    hello: &Hello,
    ssh_connection: Option<String>,
    AdmissionReply { features, terms }: AdmissionReply,
) -> Result<PreparedReply, Error> {
    let flows = hello.opening.network.flow_count();
    let ids = flows + reserved_ids(&hello.opening.network);
    if hello.udp && (hello.flow_ids.len() <= ids || hello.client_udp_ports.len() != flows) {
        return Err(Error::from(Misbehaviour::PortCount));
    }
    let mut reply = HelloReply::accept(random_flow_ids(hello.flow_ids.len(), |_| false)?);
    reply.secret_half = Some(HelloSecret::random()?);
    (reply.features, reply.terms) = (features, terms);
    let mut sockets = Vec::new();
    if hello.udp {
        let ends = ssh_connection.as_deref().and_then(|text| client_address(text).zip(server_address(text)));
        if let Some((client, server)) = ends.filter(|_| hello.opening.network.auto_paths) {
            reply.paths = discovery::paths(hello, client.ip(), server.ip());
        }
        reply.ssh_connection = ssh_connection;
        let flows = flows * reply.paths.len().max(1);
        // Without a free port the channel carries everything; the client tells its user.
        sockets = bind_all(flows, hello.opening.network.udp_ports).unwrap_or_default();
        reply.udp_ports =
            sockets.iter().filter_map(|socket| socket.local_addr()).map(|local| local.port()).collect();
        if sockets.is_empty() && hello.opening.network.udp_only {
            let (first, last) = hello.opening.network.udp_ports;
            return Err(Error::new(
                Code::NoPort,
                format!("the far end has no free UDP port between {first} and {last}"),
            )
            .with_hint("choose others with `udp-ports`"));
        }
    }
    let mut door = None;
    if hello.udp && !hello.opening.network.udp_only {
        // If a UDP port is open in the firewall, the same TCP port may be. Without one, the channel has to
        // do.
        let ports = hello.opening.network.udp_ports;
        door = direct_tcp::bind(reply.udp_ports.first().copied().unwrap_or(ports.0), ports).ok();
        reply.tcp_port = door.as_ref().and_then(|door| door.local_addr().ok()).map(|local| local.port());
    }
    Ok((reply, sockets, door))
}

fn bind_all(count: usize, (first, last): (u16, u16)) -> std::io::Result<Vec<UdpLink>> {
    let mut sockets = Vec::new();
    for _ in 0..count {
        let six = UdpLink::bind_in_range(IpAddr::V6(Ipv6Addr::UNSPECIFIED), first..=last);
        sockets
            .push(six.or_else(|_| UdpLink::bind_in_range(IpAddr::V4(Ipv4Addr::UNSPECIFIED), first..=last))?);
    }
    Ok(sockets)
}

fn join(
    hello: Hello,
    reply: HelloReply,
    sockets: Vec<UdpLink>,
    door: Option<TcpListener>,
    link: StreamLink,
    stop: StopFlag,
) -> Result<EstablishedSession, Error> {
    let master = session_secret(hello.secret_half.as_ref(), reply.secret_half.as_ref())?;
    let indices = attached_indices(hello.flow_ids.len());
    let direct = door.map_or(CarrierFallback::None, |door| {
        CarrierFallback::Listen(Box::new(DirectListener::new(door, master.clone(), indices)))
    });
    let client = reply.ssh_connection.as_deref().and_then(client_address);
    let shown = client.map(|client| client.ip());
    let (flows, spares, reserved, fallback, transport) = if sockets.is_empty() {
        let channel = PlannedFlow { index: 0, send_id: hello.flow_ids[0], recv_id: reply.flow_ids[0] };
        let flows = vec![channel.over(FlowLink::Stream(link))];
        (flows, Vec::new(), Vec::new(), CarrierFallback::None, Transport::Channel)
    } else {
        let options = &hello.opening.network;
        let ids = (&hello.flow_ids[..], &reply.flow_ids[..]);
        let plan = FlowPlan::new(ids, sockets.len(), reserved_ids(options), LastId::Stream);
        let ports: Vec<Option<SocketAddr>> = sockets.iter().map(UdpLink::local_addr).collect();
        let begin = |(flow, socket): (&PlannedFlow, UdpLink)| {
            let candidates = client_candidates(&hello, &reply.paths, client, plan.place_of(*flow), &socket);
            flow.over(FlowLink::Udp { socket, candidates })
        };
        let flows = plan.begun.iter().zip(sockets).map(begin).collect();
        let replace = |flow: &PlannedFlow| {
            let local = ports[plan.place_of(*flow)]?;
            Some(flow.spare(SpareLink::Listen { local }))
        };
        let spares = plan.spares.iter().filter_map(replace).collect();
        let fallback = plan.stream.map_or(CarrierFallback::None, |flow| {
            CarrierFallback::Ready(Box::new(flow.over(FlowLink::Stream(link))))
        });
        (flows, spares, plan.reserved_here(), fallback, Transport::Udp)
    };
    let peer = shown.map_or_else(|| "the client".to_string(), |ip| ip.to_string());
    let session = Setup::new(master, false, flows, transport, peer);
    Ok(EstablishedSession {
        session: Setup {
            spares,
            reserved,
            fallback,
            direct,
            shown,
            udp_ports: hello.client_udp_ports,
            stop,
            ..session
        },
        features: reply.features.common(&hello.features),
        terms: reply.terms,
        opening: hello.opening,
        peer_key: None,
        keys: None,
        guest: None,
        peer_version: printable(hello.version.as_bytes(), 40),
    })
}

/// Where the client's flow `flow` may be, for a socket of this end; `found` are the paths that were found here.
fn client_candidates(
    hello: &Hello,
    found: &[PathAddresses],
    client: Option<SocketAddr>,
    flow: usize,
    socket: &UdpLink,
) -> Vec<SocketAddr> {
    let options = &hello.opening.network;
    let path = options.paths.get(options.path_of(flow));
    let client = path.map(PathAddresses::seen_from_far_end).or(client);
    let port = match found.is_empty() {
        true => hello.client_udp_ports.get(flow),
        // On paths that were found here the client begins, from ports that are not known yet.
        false if options.path_of(flow) > 0 => None,
        false => hello.client_udp_ports.get(flow / options.path_count()),
    };
    let candidates: Vec<_> =
        client.zip(port).into_iter().map(|(client, &port)| with_port(client, port)).collect();
    reachable_from(socket.local_addr(), &candidates)
}

/// Waits for the end of standard input without reading it. sshd gives a socket or a pipe.
fn watch(input: OwnedFd, stop: StopFlag, end_time: Option<Duration>) -> Result<(), Error> {
    let wait = move || {
        let mut fds = [PollFd::new(&input, PollFlags::RDHUP)];
        loop {
            match poll(&mut fds, None) {
                Ok(_) if fds[0].revents().is_empty() => {}
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
        stop.stop();
        if let Some(end_time) = end_time {
            std::thread::sleep(end_time);
            std::process::exit(ExitCode::Lost as i32);
        }
    };
    std::thread::Builder::new().name("watch-stdin".into()).spawn(wait).map_err(Error::no_thread)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::features::Features;
    use super::super::test_opening;
    use super::*;

    #[test]
    fn a_hello_whose_flows_and_ports_do_not_fit_is_refused() {
        let opening = test_opening(farhaul_session::NetworkOptions { flows: 2, ..Default::default() });
        let mut hello = Hello::new(opening, Features::default(), vec![1; 40], true);
        let admitted = || AdmissionReply { features: Features::default(), terms: Vec::new() };
        for ports in [vec![1], vec![1, 2, 3]] {
            hello.client_udp_ports = ports;
            let prepared = prepare(&hello, None, admitted());
            assert_eq!(Misbehaviour::of(&prepared), Some(Misbehaviour::PortCount));
        }
        hello.client_udp_ports = vec![1, 2];
        assert!(prepare(&hello, None, admitted()).is_ok());
    }
}
