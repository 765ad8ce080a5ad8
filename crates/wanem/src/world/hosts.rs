//! The hosts of a lab, the devices in them and the links between them.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use serde::Serialize;

use super::mounts;
use super::plan::{LabPlan, address_v4, address_v6};
use crate::io::{DirectionTotals, SideDevices as Devices};
use crate::link::{LabLink, LinkEnd, LinkReport};
use crate::packet::Router;
use crate::{Error, LinkSettings, sys};

/// The side of the links that a host is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LabSide {
    /// The side on which commands run.
    A = 0,
    /// The side on which servers run.
    B = 1,
}

/// A host: `a`, `b`, `a2`, `b2` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId {
    /// Its side.
    pub side: LabSide,
    /// Its number on this side, counted from 0.
    pub index: usize,
}

impl fmt::Display for HostId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.side == LabSide::A { "a" } else { "b" })?;
        if self.index > 0 { write!(out, "{}", self.index + 1) } else { Ok(()) }
    }
}

impl FromStr for HostId {
    type Err = Error;

    fn from_str(text: &str) -> Result<HostId, Error> {
        let wrong =
            || Error::Usage(format!("'{text}' is not a host; hosts are called a, b, a2, b2 and so on"));
        let text = text.strip_prefix("lab-").unwrap_or(text);
        let (side, rest) = match text.split_at_checked(1) {
            Some(("a", rest)) => (LabSide::A, rest),
            Some(("b", rest)) => (LabSide::B, rest),
            _ => return Err(wrong()),
        };
        let number =
            if rest.is_empty() { Some(1) } else { rest.parse::<usize>().ok().filter(|number| *number > 1) };
        Ok(HostId { side, index: number.ok_or_else(wrong)? - 1 })
    }
}

/// The namespaces of a host, held open.
#[derive(Debug)]
struct HostNamespaces {
    id: HostId,
    net: OwnedFd,
    uts: OwnedFd,
    mounts: OwnedFd,
    /// One device for each link.
    devices: Vec<Arc<OwnedFd>>,
}

/// A running lab.
pub struct Lab {
    hosts: Vec<HostNamespaces>,
    links: Vec<LabLink>,
    last: Mutex<Vec<[DirectionTotals; 2]>>,
}

/// One link in a lab's statistics.
#[derive(Debug, Serialize)]
pub struct LinkStatus {
    /// Counted from 1.
    pub link: usize,
    /// Its present settings.
    pub settings: LinkSettings,
    /// What it has done.
    #[serde(flatten)]
    pub report: LinkReport,
}

impl Lab {
    /// Builds the lab. Must be called in the namespaces that [`super::isolate`] has made, before anything
    /// depends on mounts.
    pub fn build(plan: &LabPlan) -> Result<Lab, Error> {
        let settings = plan.checked()?;
        mounts::prepare()?;
        let mut hosts = Vec::new();
        for side in [LabSide::A, LabSide::B] {
            for index in 0..plan.hosts {
                hosts.push(make_host(HostId { side, index }, plan, &settings)?);
            }
        }
        let mut links = Vec::new();
        for (number, settings) in settings.into_iter().enumerate() {
            let ends = [end(&hosts, LabSide::A, number)?, end(&hosts, LabSide::B, number)?];
            let router = Router { v4: LabPlan::router_v4(number), v6: LabPlan::router_v6(number) };
            let seed = plan.seed.wrapping_add(1_000 * number as u64);
            links.push(LabLink::start(settings, seed, device_name(number), ends, router)?);
        }
        let last = Mutex::new(links.iter().map(LabLink::begin).collect());
        Ok(Lab { hosts, links, last })
    }

    /// All hosts.
    pub fn hosts(&self) -> impl Iterator<Item = HostId> {
        self.hosts.iter().map(|host| host.id)
    }

    /// Starts a program on a host, in the folder that the command names, or else in `/`.
    pub fn spawn(&self, host: HostId, command: &mut Command) -> io::Result<Child> {
        self.inside(host, || command.spawn())?
    }

    /// Shows `file` in place of `over` on one host.
    pub fn show(&self, host: HostId, file: &Path, over: &Path) -> io::Result<()> {
        self.inside(host, || mounts::show(file, over))?
    }

    /// The present settings of each link.
    pub fn settings(&self) -> Vec<LinkSettings> {
        self.links.iter().map(LabLink::settings).collect()
    }

    /// Changes a link, counted from 1, or all links.
    pub fn change(&self, link: Option<usize>, changes: &[(String, String)]) -> Result<(), Error> {
        let mut changed = Vec::new();
        for link in self.chosen(link)? {
            let mut settings = link.settings();
            changes.iter().try_for_each(|(name, value)| settings.set(name, value))?;
            changed.push((link, settings.judged()?));
        }
        changed.into_iter().for_each(|(link, settings)| link.change(settings));
        Ok(())
    }

    /// Drops all packets that are sent in the next `ns` nanoseconds.
    pub fn cut(&self, link: Option<usize>, ns: u64) -> Result<(), Error> {
        self.chosen(link)?.iter().for_each(|link| link.cut(ns));
        Ok(())
    }

    /// What the links have done since the start.
    pub fn total(&self) -> Vec<LinkStatus> {
        let begin: Vec<_> = self.links.iter().map(LabLink::begin).collect();
        self.states(&begin, &self.sums())
    }

    /// What the links have done since the last call.
    pub fn interval(&self) -> Vec<LinkStatus> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.sums();
        let states = self.states(&last, &now);
        *last = now;
        states
    }

    /// The namespaces that a process needs to enter a host: mounts, names, network.
    pub(crate) fn entrance(&self, host: HostId) -> Option<[&OwnedFd; 3]> {
        self.find(host).map(|host| [&host.mounts, &host.uts, &host.net])
    }

    fn sums(&self) -> Vec<[DirectionTotals; 2]> {
        self.links.iter().map(LabLink::sums).collect()
    }

    fn states(&self, before: &[[DirectionTotals; 2]], now: &[[DirectionTotals; 2]]) -> Vec<LinkStatus> {
        let pairs = before.iter().zip(now).zip(&self.links).enumerate();
        pairs
            .map(|(index, ((before, now), link))| LinkStatus {
                link: index + 1,
                settings: link.settings(),
                report: LabLink::report(before, now),
            })
            .collect()
    }

    fn chosen(&self, link: Option<usize>) -> Result<&[LabLink], Error> {
        match link {
            None => Ok(&self.links),
            Some(number) => {
                number.checked_sub(1).and_then(|index| self.links.get(index..=index)).ok_or_else(|| {
                    Error::Usage(format!("there is no link {number}; there are {}", self.links.len()))
                })
            }
        }
    }

    fn find(&self, host: HostId) -> Option<&HostNamespaces> {
        self.hosts.iter().find(|candidate| candidate.id == host)
    }

    /// Runs a function in a thread that has moved into a host.
    fn inside<T: Send>(&self, host: HostId, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        let host = self.find(host).ok_or_else(|| io::Error::other("no such host"))?;
        in_thread(move || {
            // A thread that shares its working directory with others cannot move into another mount
            // namespace.
            sys::unshare(UnshareFlags::FS)?;
            enter(&host.mounts, &host.uts, &host.net)?;
            Ok(act())
        })
    }
}

/// Moves the calling thread into a host.
pub(crate) fn enter(mounts: &OwnedFd, uts: &OwnedFd, net: &OwnedFd) -> io::Result<()> {
    move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network))?;
    move_into_link_name_space(uts.as_fd(), Some(LinkNameSpaceType::HostNameAndNISDomainName))?;
    move_into_link_name_space(mounts.as_fd(), Some(LinkNameSpaceType::Mount))?;
    Ok(())
}

fn in_thread<T: Send>(act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("host".into()).spawn_scoped(scope, act)?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the lab panicked")))
    })
}

fn device_name(link: usize) -> String {
    format!("fh{link}")
}

fn make_host(id: HostId, plan: &LabPlan, settings: &[LinkSettings]) -> Result<HostNamespaces, Error> {
    let made = in_thread(|| {
        sys::unshare(UnshareFlags::FS | UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWUTS)?;
        rustix::system::sethostname(format!("lab-{id}").as_bytes())?;
        sys::bring_up("lo", 65_536, &[])?;
        tune(settings);
        let devices: Result<Vec<_>, Error> =
            (0..settings.len()).map(|link| make_device(id, link, plan.mtu)).collect();
        if let Some(tcp) = plan.tcp.as_ref().filter(|_| devices.is_ok()) {
            choose_tcp(id, tcp, settings.len())?;
        }
        let space = |name: &str| File::open(format!("/proc/thread-self/ns/{name}")).map(OwnedFd::from);
        Ok((devices, space("net")?, space("uts")?, space("mnt")?))
    });
    let (devices, net, uts, mounts) = made.map_err(Error::io(format!("cannot make host {id}")))?;
    Ok(HostNamespaces { id, net, uts, mounts, devices: devices? })
}

fn make_device(id: HostId, link: usize, mtu: u32) -> Result<Arc<OwnedFd>, Error> {
    let name = device_name(link);
    let fd = sys::open_tun(&name).map_err(|source| Error::Missing {
        hint: match source.kind() {
            io::ErrorKind::PermissionDenied => {
                "as root: chmod 0666 /dev/net/tun (it is safe: only the owner of a network can use it there)"
            }
            io::ErrorKind::NotFound => "as root: modprobe tun; in a container, let it have /dev/net/tun",
            _ => "the kernel needs CONFIG_TUN",
        }
        .into(),
        what: "cannot make a network device of /dev/net/tun".into(),
        source,
    })?;
    let addresses = [(address_v4(id.side, id.index, link), address_v6(id.side, id.index, link))];
    sys::bring_up(&name, mtu, &addresses).map_err(Error::io(format!("cannot set up {name} on host {id}")))?;
    Ok(Arc::new(fd))
}

/// Sets up the host's own network stack as for long fat networks (fasterdata.es.net/host-tuning/linux).
fn tune(settings: &[LinkSettings]) {
    let most = settings.iter().map(bdp_bytes).max().unwrap_or(0).saturating_mul(4).clamp(64 << 20, 1 << 30);
    let wanted = [
        ("ipv4/tcp_rmem", format!("4096 131072 {most}")),
        ("ipv4/tcp_wmem", format!("4096 65536 {most}")),
        // A connection does not use what an earlier one has measured.
        ("ipv4/tcp_no_metrics_save", "1".into()),
        ("ipv4/ping_group_range", "0 2147483647".into()),
        ("ipv6/conf/default/accept_dad", "0".into()),
        ("ipv6/conf/default/router_solicitations", "0".into()),
        ("ipv6/conf/default/accept_ra", "0".into()),
    ];
    for (name, value) in wanted {
        // A kernel that lacks a setting does not need it.
        let _ = fs::write(format!("/proc/sys/net/{name}"), value);
    }
}

/// Sets the congestion control in the calling thread's network namespace. A namespace other than the
/// machine's own accepts only some algorithms as its default; for the others, the routes name them.
fn choose_tcp(id: HostId, tcp: &str, links: usize) -> io::Result<()> {
    match fs::write("/proc/sys/net/ipv4/tcp_congestion_control", tcp) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let what = format!("the kernel has no congestion control '{tcp}' (try modprobe tcp_{tcp})");
            return Err(io::Error::new(error.kind(), what));
        }
        done => return done,
    }
    for link in 0..links {
        let (v4, v6) = (address_v4(id.side, id.index, link), address_v6(id.side, id.index, link));
        let device = device_name(link);
        let routes = [
            format!("route change {}/24 dev {device} proto kernel scope link src {v4}", network_v4(v4)),
            format!("-6 route change {}/64 dev {device} proto kernel metric 256", network_v6(v6)),
        ];
        for route in routes {
            let mut command = Command::new("ip");
            let output = command.args(route.split(' ')).args(["congctl", tcp]).output()?;
            if !output.status.success() {
                let reason = String::from_utf8_lossy(&output.stderr).trim().to_string();
                return Err(io::Error::other(format!("cannot choose congestion control '{tcp}': {reason}")));
            }
        }
    }
    Ok(())
}

fn network_v4(address: Ipv4Addr) -> Ipv4Addr {
    let [a, b, c, _] = address.octets();
    Ipv4Addr::new(a, b, c, 0)
}

fn network_v6(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)
}

/// The bandwidth-delay product with a full queue. A link without a rate counts as one of 10 Gbit/s.
fn bdp_bytes(settings: &LinkSettings) -> u64 {
    let rate = settings.forward.whole_bps().into_iter().chain(settings.backward.whole_bps()).max();
    let rtt_ns = 2 * settings.rtt_ns().max(10_000_000);
    u64::try_from(u128::from(rate.unwrap_or(10_000_000_000)) * u128::from(rtt_ns) / 8_000_000_000)
        .unwrap_or(u64::MAX)
}

fn end(hosts: &[HostNamespaces], side: LabSide, link: usize) -> Result<LinkEnd, Error> {
    let mut devices = Vec::new();
    let mut counters = Vec::new();
    for host in hosts.iter().filter(|host| host.id.side == side) {
        devices.push(host.devices[link].clone());
        let file = in_thread(|| {
            move_into_link_name_space(host.net.as_fd(), Some(LinkNameSpaceType::Network))?;
            File::open("/proc/thread-self/net/dev")
        });
        counters.push(file.map_err(Error::io("cannot watch a device"))?);
    }
    Ok(LinkEnd { side: Devices { devices, first_address: LabPlan::first_address(side) }, counters })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_short_names() {
        for name in ["a", "b", "a2", "b64"] {
            assert_eq!(name.parse::<HostId>().unwrap().to_string(), name);
        }
        assert_eq!("lab-b".parse::<HostId>().unwrap(), HostId { side: LabSide::B, index: 0 });
        for name in ["", "c", "a0", "a1", "ab", "A", "é"] {
            assert!(name.parse::<HostId>().is_err(), "{name}");
        }
    }

    #[test]
    fn buffers_hold_what_a_path_holds() {
        let mut settings = LinkSettings::default();
        settings.set_all("rtt=100ms,rate=1g").unwrap();
        assert_eq!(bdp_bytes(&settings), 25_000_000);
    }
}
