//! The client's way over ssh: the user's own `ssh` starts the far end. Its pipes carry the hello and, if UDP
//! does not get through, everything.
//!
//! Always true: authentication, host keys, agents, jump hosts and shared connections are left to ssh and its
//! configuration. Nothing of the session is in ssh's arguments; only the reply is read from its pipe.
#![deny(missing_docs)]

pub(super) mod answer;
pub mod bring;
pub(super) mod messages;

use std::ffi::OsString;
use std::io::{self, BufRead as _, Read as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::hkdf;
use farhaul_net::{Link as _, StreamLink, with_port};
use farhaul_session::secret::Secret;
use farhaul_session::setup::{CarrierFallback, ControlProcess, FlowLink, Setup, Transport};
use farhaul_session::udp_blocks::UdpBlockNotes;
use farhaul_text::{plain, printable};
use farhaul_words::{Code, Error, Misbehaviour};
use rustix::io::Errno;
use zeroize::Zeroizing;

use self::answer::{Answer, Ending, Wait};
use self::bring::Bringing;
use self::messages::MessageTail;
pub use self::messages::SshMessages;
use super::dial::Dialer;
use super::dial_requester::{DialRequester, LOOK_EVERY, ThreadTask, pause};
use super::flow_plan::{FlowPlan, LastId, PlannedFlow};
use super::flows::{bind_flows, bind_further_flows, dialled_flows, random_flow_ids, reserved_ids};
use super::hello;
use super::hello::{GENERATIONS, Hello, HelloError, HelloReply, HelloSecret};
use super::prompts::Prompts;
use super::this_host::ThisHost;
use super::{EstablishedSession, HelloParams, direct_tcp, discovery, with_session};

/// How long ssh may take to end after the far end has ended.
const SSH_END_TIME: Duration = Duration::from_secs(5);
/// If a signal has ended ssh and was meant for this process, too, it arrives here within this time.
const SIGNAL_TIME: Duration = Duration::from_millis(250);
/// How long `ssh -G` may take, how often that is looked at, and the most bytes that it prints.
const QUERY_TIME: Duration = Duration::from_secs(10);
const QUERY_LOOK: Duration = Duration::from_millis(5);
const QUERY_BYTES: u64 = 64 << 10;
/// How long a far end may take to answer by default.
const ANSWER_WAIT: Duration = Duration::from_secs(300);

/// A far end that ssh starts. `Default` has everything but the host.
#[derive(Debug, Clone)]
pub struct SshTarget {
    /// The user, as after ssh's `-l`.
    pub user: Option<String>,
    /// A name, an alias or an address; IPv6 without brackets.
    pub host: String,
    /// The port; scp's `-P`.
    pub port: Option<u16>,
    /// Files of keys; ssh's `-i`.
    pub identity: Vec<PathBuf>,
    /// ssh's `-F`.
    pub config_file: Option<PathBuf>,
    /// Jump hosts; ssh's `-J`.
    pub jump: Option<String>,
    /// Options as they were given; ssh's `-o`.
    pub options: Vec<String>,
    /// The program that runs instead of `ssh`; scp's `-S`.
    pub program: PathBuf,
    /// The far end's program, for its shell: a name in its PATH, or a path; the shell expands `~`.
    pub remote_program: String,
    /// How long the far end may take to answer, without the time in which ssh asks its user for something. By
    /// default 5 minutes.
    pub answer_wait: Duration,
    /// Who hears what ssh says on its standard error.
    pub messages: SshMessages,
    /// Whether ssh may ask its user for something.
    pub prompts: Prompts,
    /// What becomes of a far end without a farhaul, or with one too old to talk.
    pub bring: Bringing,
    /// Whether it may be this host, by the addresses of its name and by the one at which its sshd was reached.
    pub this_host: ThisHost,
}

impl Default for SshTarget {
    fn default() -> Self {
        SshTarget {
            user: None,
            host: String::new(),
            port: None,
            identity: Vec::new(),
            config_file: None,
            jump: None,
            options: Vec::new(),
            program: "ssh".into(),
            remote_program: "farhaul".into(),
            answer_wait: ANSWER_WAIT,
            messages: SshMessages::default(),
            prompts: Prompts::default(),
            bring: Bringing::Never,
            this_host: ThisHost::Allowed,
        }
    }
}

/// Signs by which a name could become a command where a configuration of ssh hands it to a shell (`ProxyCommand`,
/// `Match exec`). From: valid_hostname and valid_ruser of OpenSSH 9.6; earlier ones do not look.
pub const NOT_IN_HOSTS: &str = "'`\"$\\;&<>|(){}";
/// The same for the name of a user, who may have a domain (`DOMAIN\user`).
pub const NOT_IN_USERS: &str = "'`\";&<>|(){}";

impl SshTarget {
    /// Refuses a host or user that ssh or a shell would take for something else.
    pub(super) fn checked(&self) -> Result<(), Error> {
        let unfit = |text: &str, signs: &str| {
            text.is_empty()
                || text.starts_with('-')
                || text.chars().any(|c| c.is_whitespace() || c.is_control() || signs.contains(c))
        };
        let users = self.user.iter().map(|user| (user, NOT_IN_USERS));
        for (text, signs) in std::iter::once((&self.host, NOT_IN_HOSTS)).chain(users) {
            if unfit(text, signs) {
                return Err(Error::new(
                    Code::BadLocation,
                    format!("{:?} is no name of a host or user", printable(text.as_bytes(), 80)),
                ));
            }
        }
        Ok(())
    }

    /// Whether ssh prints no messages, as -q asks of it.
    fn is_quiet(&self) -> bool {
        self.options.iter().any(|option| option == "LogLevel=QUIET")
    }

    /// The options that scp passes to ssh, and then the user's. ssh takes the first value of an option.
    fn options(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = ["-x", "-oPermitLocalCommand=no", "-oClearAllForwardings=yes"]
            .into_iter()
            .chain(["-oRemoteCommand=none", "-oRequestTTY=no", "-oForwardAgent=no"])
            .chain(self.prompts.ssh_option())
            .map(OsString::from)
            .collect();
        let mut pair = |flag: &str, value: OsString| args.extend([OsString::from(flag), value]);
        if let Some(file) = &self.config_file {
            pair("-F", file.into());
        }
        if let Some(port) = self.port {
            pair("-p", port.to_string().into());
        }
        for file in &self.identity {
            pair("-i", file.into());
        }
        if let Some(jump) = &self.jump {
            pair("-J", jump.into());
        }
        for option in &self.options {
            pair("-o", option.into());
        }
        if let Some(user) = &self.user {
            pair("-l", user.into());
        }
        args
    }

    /// The arguments that start a verb of the far end's program.
    fn start_args(&self, verb: &str) -> Vec<OsString> {
        let mut args = self.options();
        let command = match &self.bring {
            Bringing::Unasked(bring) => bring.command(&self.remote_program, verb),
            Bringing::Never | Bringing::Offered => format!("{} {verb}", self.remote_program),
        };
        args.extend(["--".into(), self.host.clone().into(), command.into()]);
        args
    }

    /// How to wait for the answer of a program that ssh has started.
    pub(super) fn wait<'a>(&'a self, ssh: &Child, requester: &'a dyn DialRequester) -> Wait<'a> {
        Wait { requester, host: &self.host, ssh: ssh.id(), most: Some(self.answer_wait) }
    }

    /// The host that ssh would connect to, as ssh says itself. `Match exec` runs its program once for a
    /// connection, when that is made, and not for this question; so lines of the configuration below such a
    /// `Match` do not count here.
    fn asked_host(&self) -> Option<String> {
        let mut command = Command::new(&self.program);
        command.env("SHELL", refusing_shell()?);
        self.prompts.obey(&mut command);
        command.args(self.query_args()).stdin(Stdio::null()).stderr(Stdio::null());
        hostname_of(&output_within(command, QUERY_TIME)?)
    }

    /// The arguments that ask ssh to which host it would connect.
    fn query_args(&self) -> Vec<OsString> {
        let mut args = vec![OsString::from("-G")];
        args.extend(self.options());
        args.extend(["--".into(), self.host.clone().into()]);
        args
    }
}

/// Starts the far end with ssh, and a session with it. Blocks as long as ssh asks its user for something,
/// unless `requester` cancels.
pub fn ssh_connect(
    target: &SshTarget,
    params: HelloParams,
    requester: &dyn DialRequester,
) -> Result<EstablishedSession, Error> {
    target.checked()?;
    // The hello is in ssh's pipe before ssh has logged in.
    requester.ask_to_begin();
    requester.dials();
    let mut params = params;
    let options = &params.opening.network;
    let sockets = if params.udp { bind_flows(options)? } else { Vec::new() };
    let interfaces = if params.udp && options.auto_paths { discovery::own() } else { Vec::new() };
    // One more id, for the channel itself.
    let flows = sockets.len() * discovery::most(options, &interfaces);
    let ids = random_flow_ids(flows * GENERATIONS + reserved_ids(options) + 1, |_| false)?;
    let own = with_session(&params.features);
    let mut hello = Hello::new(params.opening.clone(), own.clone(), ids, params.udp);
    hello.interfaces = interfaces;
    hello.client_udp_ports =
        sockets.iter().filter_map(|socket| socket.local_addr()).map(|local| local.port()).collect();
    hello.secret_half = Some(HelloSecret::random()?);

    let addresses = look_up(target.clone(), requester);
    let first = answered(target, &hello, requester);
    let Answered { process, stdin, stdout, reply } = match first {
        Err(error) if error.code() == Code::NotInstalled => match bring::agreed(target, requester) {
            Some(target) => answered(&target, &hello, requester)?,
            None if requester.is_cancelled() => return Err(Error::interrupted()),
            None => return Err(error),
        },
        answered => answered?,
    };
    discovery::adopt(&mut params.opening.network, &hello, &reply.paths)?;
    let options = &params.opening.network;
    let sockets = match reply.paths.is_empty() {
        true => sockets,
        false => bind_further_flows(options, sockets)?,
    };
    let master = session_secret(hello.secret_half.as_ref(), reply.secret_half.as_ref())?;
    let link = StreamLink::from_fds(OwnedFd::from(stdout), OwnedFd::from(stdin))
        .map_err(Error::io("cannot take over the pipes of ssh"))?;
    let mut warnings = Vec::new();
    let addresses = candidate_addresses(addresses, reply.ssh_connection.as_deref(), requester)?;
    target.this_host.judge(&target.host, &addresses)?;
    let direct = match reply.tcp_port {
        Some(port) if params.udp && !options.udp_only => {
            let candidates = direct_tcp::candidates(&addresses, port);
            CarrierFallback::Dial(Arc::new(Dialer::direct(candidates, master.clone(), hello.flow_ids.len())))
        }
        _ => CarrierFallback::None,
    };
    let blocked = UdpBlockNotes::towards(addresses.iter().map(SocketAddr::ip), "ssh");
    let (flows, spares, reserved, fallback, transport) = if reply.udp_ports.is_empty() {
        if params.udp && options.udp_only {
            return Err(Error::new(Code::NoPort, format!("{} has no free UDP port", target.host))
                .with_hint("choose others with `udp-ports`"));
        }
        if params.udp {
            warnings
                .push(format!("{} has no free UDP port; going on over ssh, which is slower", target.host));
        }
        let channel = PlannedFlow { index: 0, send_id: reply.flow_ids[0], recv_id: hello.flow_ids[0] };
        (
            vec![channel.over(FlowLink::Stream(link))],
            Vec::new(),
            Vec::new(),
            CarrierFallback::None,
            Transport::Channel,
        )
    } else {
        let ids = (&reply.flow_ids[..], &hello.flow_ids[..]);
        let plan = FlowPlan::new(ids, sockets.len(), reserved_ids(options), LastId::Stream);
        let remotes = |flow: usize| {
            addresses.iter().map(|&address| with_port(address, reply.udp_ports[flow])).collect()
        };
        let (flows, spares) = dialled_flows(options, sockets, &plan, remotes);
        let fallback = plan.stream.map_or(CarrierFallback::None, |flow| {
            CarrierFallback::Ready(Box::new(flow.over(FlowLink::Stream(link))))
        });
        (flows, spares, plan.reserved_here(), fallback, Transport::Udp)
    };
    let session = Setup::new(master, true, flows, transport, target.host.clone());
    Ok(EstablishedSession {
        session: Setup {
            spares,
            reserved,
            fallback,
            direct,
            blocked: Some(blocked),
            udp_ports: reply.udp_ports,
            warnings,
            control_process: Some(process),
            ..session
        },
        opening: params.opening,
        features: own.common(&reply.features),
        terms: reply.terms,
        peer_key: None,
        keys: None,
        guest: None,
        peer_version: printable(reply.version.as_bytes(), 40),
    })
}

/// A running ssh, and the far end's reply or the error in its place.
struct Channel {
    process: ControlProcess,
    stdin: ChildStdin,
    stdout: ChildStdout,
    messages: Option<MessageTail>,
    reply: Result<HelloReply, HelloOrError>,
}

/// A running ssh whose far end has answered.
struct Answered {
    process: ControlProcess,
    stdin: ChildStdin,
    stdout: ChildStdout,
    reply: HelloReply,
}

fn answered(target: &SshTarget, hello: &Hello, requester: &dyn DialRequester) -> Result<Answered, Error> {
    let Channel { mut process, stdin, stdout, messages, reply } = open_channel(target, hello, requester)?;
    match reply {
        Ok(reply) => Ok(Answered { process, stdin, stdout, reply }),
        Err(error) => {
            let error = why(target, error, (&mut process, messages.as_ref()), requester);
            Err(hello.opening.needs.explained(error))
        }
    }
}

/// Why an exchange over the channel has failed.
pub(super) enum HelloOrError {
    Hello(HelloError),
    Error(Error),
    Unanswered(Ending),
}

impl From<HelloError> for HelloOrError {
    fn from(error: HelloError) -> Self {
        HelloOrError::Hello(error)
    }
}

fn open_channel(target: &SshTarget, hello: &Hello, requester: &dyn DialRequester) -> Result<Channel, Error> {
    // A hello that is too long is found before anything starts.
    let frame = hello::encode(hello)?;
    let mut child = start(target, "endpoint")?;
    let wait = target.wait(&child, requester);
    let pipes = (child.stdin.take(), child.stdout.take());
    let stderr = child.stderr.take();
    let process = ControlProcess::new(child);
    let messages = stderr.map(MessageTail::begin).transpose()?;
    let (Some(mut stdin), Some(mut stdout)) = pipes else {
        return Err(Error::of_host("ssh has no pipes", io::ErrorKind::BrokenPipe.into()));
    };
    let reply = target
        .bring
        .serve((&mut stdin, &mut stdout), wait)
        .and_then(|()| exchange((&mut stdin, &mut stdout), &frame, hello, wait));
    Ok(Channel { process, stdin, stdout, messages, reply })
}

pub(super) fn start(target: &SshTarget, verb: &str) -> Result<Child, Error> {
    let mut command = Command::new(&target.program);
    command.args(target.start_args(verb)).stdin(Stdio::piped()).stdout(Stdio::piped());
    target.prompts.obey(&mut command);
    if target.messages == SshMessages::Kept {
        command.stderr(Stdio::piped());
    }
    command.spawn().map_err(|error| cannot_start(&target.program, error))
}

/// Tells a missing program apart from a host that has no resources for it.
fn cannot_start(program: &Path, error: io::Error) -> Error {
    let lacking = [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM];
    if error.raw_os_error().is_some_and(|number| lacking.iter().any(|errno| errno.raw_os_error() == number)) {
        return Error::of_host(format!("cannot start {}", program.display()), error);
    }
    Error::new(Code::NoSsh, format!("cannot run {}: {}", program.display(), plain(&error)))
        .with_hint("install OpenSSH's client, or name another with `ssh-program`")
}

fn exchange(
    pipes: (&mut ChildStdin, &mut ChildStdout),
    frame: &[u8],
    hello: &Hello,
    wait: Wait<'_>,
) -> Result<HelloReply, HelloOrError> {
    let body = match answer::ask(pipes, frame, wait)? {
        Answer::Frame(body) => body,
        Answer::None(ending) => return Err(HelloOrError::Unanswered(ending)),
    };
    let mut reply = hello::decode_reply(&body)?;
    if let Some(refusal) = reply.refusal.take() {
        return Err(HelloOrError::Error(refusal.into_error()));
    }
    let needs = &hello.opening.needs;
    reply.features.satisfy(needs).map_err(|refusal| HelloOrError::Error(refusal.into_error()))?;
    let flows = hello.client_udp_ports.len() * reply.paths.len().max(1);
    let udp_fits = reply.udp_ports.is_empty() || reply.udp_ports.len() == flows;
    if reply.flow_ids.len() != hello.flow_ids.len()
        || !udp_fits
        || (!hello.udp && !reply.udp_ports.is_empty())
    {
        return Err(HelloError::Malformed("it agreed on another number of flows".into()).into());
    }
    Ok(reply)
}

/// Why the far end has not answered, in words for whoever can repair it.
pub(super) fn why(
    target: &SshTarget,
    error: HelloOrError,
    (process, messages): (&mut ControlProcess, Option<&MessageTail>),
    requester: &dyn DialRequester,
) -> Error {
    let host = &target.host;
    let failed = |code: Code, what: String, hint: String| Error::new(code, what).with_hint(hint);
    let error = match error {
        HelloOrError::Error(error) => return error,
        HelloOrError::Unanswered(ending) => {
            process.stop();
            return match ending {
                Ending::CalledOff => Error::interrupted(),
                Ending::TookTooLong => failed(
                    Code::PeerCannotStart,
                    format!("{host} has not answered for {} s{}", target.answer_wait.as_secs(), {
                        tail_of(messages.map(MessageTail::text).as_deref())
                    }),
                    format!(
                        "its shell's start files must neither ask nor wait for anything: `ssh {host} true` has to end \
                         by itself (`answer-wait` waits longer)"
                    ),
                ),
            };
        }
        HelloOrError::Hello(error) => error,
    };
    match error {
        HelloError::Foreign(text) => {
            let what = match &text[..] {
                "" => "an empty line".into(),
                text => format!("text before farhaul could answer: {text:?}"),
            };
            failed(
                Code::NotFarhaul,
                format!("{host} printed {what}"),
                "its shell's start files must print nothing when the shell is not interactive".into(),
            )
        }
        HelloError::ForeignBytes(bytes) => failed(
            Code::NotFarhaul,
            format!("{host} sent bytes that are no text before farhaul could answer: {bytes} ..."),
            "its shell's start files must print nothing when the shell is not interactive (scp fails there, too)".into(),
        ),
        HelloError::Closed | HelloError::Io(_) => match end_of(process, requester) {
            Err(error) => error,
            Ok(status) => ended(target, status, messages.map(MessageTail::text)),
        },
        HelloError::Version { .. }
        | HelloError::OtherProtocol
        | HelloError::TooLong(_)
        | HelloError::Unsendable(_)
        | HelloError::Malformed(_) => error.into(),
    }
}

/// How ssh has ended, if it ends soon. A terminal sends a signal to this process and to ssh; it may end ssh
/// before it arrives here.
fn end_of(process: &mut ControlProcess, requester: &dyn DialRequester) -> Result<Option<ExitStatus>, Error> {
    let end = Instant::now() + SSH_END_TIME;
    let status = loop {
        let status = process.ended(LOOK_EVERY);
        if requester.is_cancelled() {
            process.stop();
            return Err(Error::interrupted());
        }
        if status.is_some() || Instant::now() >= end {
            break status;
        }
    };
    let may_be_ours = |status: ExitStatus| status.signal().is_some() || status.code() == Some(OF_SSH);
    if status.is_some_and(may_be_ours) {
        pause(requester, SIGNAL_TIME)?;
    }
    Ok(status)
}

/// The code with which ssh ends when it fails; also if the far end's program ends with this code, or by a
/// signal.
const OF_SSH: i32 = 255;

/// The error for a far end that was not heard, if ssh has ended with this status. `said` has ssh's own messages,
/// if the user has not seen them.
fn ended(target: &SshTarget, status: Option<ExitStatus>, said: Option<String>) -> Error {
    let host = &target.host;
    let tail = tail_of(said.as_deref());
    let failed = |code: Code, what: String, hint: &str| Error::new(code, what + &tail).with_hint(hint);
    let Some(status) = status else {
        return failed(Code::SshFailed, format!("the far end on {host} closed the channel"), "try again");
    };
    match (status.code(), status.signal()) {
        (_, Some(signal)) => failed(
            Code::SshFailed,
            format!("ssh was ended by signal {signal} before {host} answered"),
            "run the same command again",
        ),
        (Some(OF_SSH), _) => failed(
            code_of_ssh(said.as_deref().unwrap_or_default()),
            match tail.is_empty() {
                true => format!(
                    "ssh ended with code {OF_SSH} before farhaul answered on {host}: ssh could not connect, or the \
                     program on {host} ended with this code"
                ),
                false => format!("ssh ended with code {OF_SSH} before farhaul answered on {host}"),
            },
            match (said, target.is_quiet()) {
                (_, true) => "ssh is silent with `quiet`; without it, it says why",
                (None, false) => {
                    "`ssh HOST true` must work; if there is a message above, it says why it does not"
                }
                (Some(_), false) => "`ssh HOST true` must work for the user of this process",
            },
        ),
        (Some(126 | 127), _) => failed(
            Code::NotInstalled,
            format!("farhaul cannot be started on {host} (as {:?})", target.remote_program),
            "install it there in the PATH of a shell that is not interactive, name it with `remote-program`, or let \
             `bring` send this one",
        ),
        (code, _) => failed(
            Code::PeerCannotStart,
            format!("the far end on {host} ended with code {} before it answered", code.unwrap_or(0)),
            &match (code, said) {
                // A program that fails has another code.
                (Some(0), _) => format!(
                    "its shell's start files must not end the shell (`exit`, `exec`): `ssh {host} {} --version` must \
                     print a version",
                    target.remote_program
                ),
                (_, None) => format!(
                    "`ssh {host} {} --version` must print a version; if no message above says why it does not, the \
                     shell's start files may end the shell",
                    target.remote_program
                ),
                (_, Some(_)) => "`ssh HOST farhaul --version` must work for the user of this process".into(),
            },
        ),
    }
}

/// What ssh says of failures that do not pass by themselves, and their codes. Every other failure may pass.
const LASTING: [(&str, Code); 8] = [
    ("permission denied (", Code::SshRefused),
    ("too many authentication failures", Code::SshRefused),
    ("host key verification failed", Code::SshRefused),
    ("remote host identification has changed", Code::SshRefused),
    ("no matching", Code::SshRefused),
    ("name or service not known", Code::HostUnknown),
    ("no address associated with hostname", Code::HostUnknown),
    ("bad configuration option", Code::SshRefused),
];

/// The code for an ssh that has ended with these messages.
fn code_of_ssh(said: &str) -> Code {
    let said = said.to_ascii_lowercase();
    let lasting = LASTING.iter().find(|(words, _)| said.contains(words)).map(|(_, code)| *code);
    match lasting {
        Some(code) => code,
        None if said.contains("temporary failure in name resolution") => Code::NameServerAway,
        None => Code::SshFailed,
    }
}

/// The end of an error that has ssh's messages.
fn tail_of(said: Option<&str>) -> String {
    said.filter(|said| !said.is_empty()).map(|said| format!(": {said}")).unwrap_or_default()
}

/// What a program prints, if it ends within this time; afterwards it is killed. A program that prints more than a
/// pipe holds does not end.
fn output_within(mut command: Command, time: Duration) -> Option<Vec<u8>> {
    let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
    let end = Instant::now() + time;
    while child.try_wait().ok()?.is_none() {
        if Instant::now() >= end {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(QUERY_LOOK);
    }
    let mut printed = Vec::new();
    child.stdout.take()?.take(QUERY_BYTES).read_to_end(&mut printed).ok()?;
    Some(printed)
}

/// Finds the addresses of the far end while ssh connects; ssh itself resolves aliases. If no thread can be
/// started, none are found.
pub(super) fn look_up(
    target: SshTarget,
    requester: &dyn DialRequester,
) -> Option<ThreadTask<Vec<SocketAddr>>> {
    let look = move || {
        let host = target.asked_host().unwrap_or(target.host);
        // A name that only a jump host knows has no address here; SSH_CONNECTION may still give one.
        (host.as_str(), 0).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
    };
    ThreadTask::begin(requester, look).ok()
}

/// A program that always fails. It stands in for the shell with which ssh runs the programs of its
/// configuration.
fn refusing_shell() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/bin", "/usr/bin"].map(PathBuf::from);
    let folders = usual.into_iter().chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join("false")).find(|program| program.is_file())
}

/// The value of the line `hostname` of `ssh -G`.
fn hostname_of(output: &[u8]) -> Option<String> {
    output.lines().map_while(Result::ok).find_map(|line| line.strip_prefix("hostname ").map(str::to_string))
}

pub(super) fn candidate_addresses(
    found: Option<ThreadTask<Vec<SocketAddr>>>,
    ssh_connection: Option<&str>,
    requester: &dyn DialRequester,
) -> Result<Vec<SocketAddr>, Error> {
    let mut addresses = found.map(|found| found.wait(requester)).transpose()?.unwrap_or_default();
    // A link-local address belongs to a link of that host; only the user could say whether it is one of this
    // host, too.
    addresses.extend(
        ssh_connection.and_then(server_address).filter(|address| !farhaul_net::is_link_local(address.ip())),
    );
    addresses.iter_mut().for_each(|address| *address = farhaul_net::canonical(*address));
    let mut seen = Vec::new();
    addresses.retain(|address| {
        !seen.contains(address) && !address.ip().is_unspecified() && {
            seen.push(*address);
            true
        }
    });
    Ok(addresses)
}

/// The address in the third of SSH_CONNECTION's four words. An interface in it is one of the host that sshd
/// runs on.
pub(super) fn server_address(ssh_connection: &str) -> Option<SocketAddr> {
    let word = ssh_connection.split_whitespace().nth(2)?;
    Some(SocketAddr::new(word.split('%').next()?.parse().ok()?, 0))
}

/// The address in the first of SSH_CONNECTION's four words, at the host that sshd runs on.
pub(super) fn client_address(ssh_connection: &str) -> Option<SocketAddr> {
    farhaul_net::scoped(ssh_connection.split_whitespace().next()?)
}

/// Derives the session's secret; whoever lacks one of the halves cannot.
pub(super) fn session_secret(
    client: Option<&HelloSecret>,
    server: Option<&HelloSecret>,
) -> Result<Secret, Error> {
    let (Some(client), Some(server)) = (client, server) else {
        return Err(Error::from(Misbehaviour::NoSecretHalf));
    };
    let mut halves = Zeroizing::new([0; 64]);
    halves[..32].copy_from_slice(&client.0);
    halves[32..].copy_from_slice(&server.0);
    let mut master = Secret::zeros();
    hkdf::Salt::new(hkdf::HKDF_SHA256, b"farhaul ssh session")
        .extract(&halves[..])
        .expand(&[b"master"], hkdf::HKDF_SHA256)
        .and_then(|key| key.fill(&mut master[..]))
        .map_err(|_| Error::of_host("cannot derive a key", io::ErrorKind::Other.into()))?;
    farhaul_proto::wipe_dead_stack();
    Ok(master)
}

#[cfg(test)]
pub(crate) mod tests;
