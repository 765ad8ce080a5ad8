//! Chooses where a session's threads run. On a host with several memory nodes they run on the CPUs of the
//! node that the network interface is attached to, and so does the memory that they touch first: data that
//! goes by another node crosses a bus twice.
//!
//! Always true: if somebody has already chosen CPUs (`--cpus`, `taskset`, a container), that holds. On a host
//! with one node, or if the interface's node is not known (as on most virtual hosts), nothing changes.
//! Threads are not bound to single CPUs.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use farhaul_net::Link as _;
use farhaul_words::CpuChoice;

use super::cpus::{Affinity, CpuList, chosen};
use super::setup::{FlowLink, FlowSetup};

/// Fewer CPUs are not enough to read, digest, seal and send at the same time, wherever they are.
const CPUS_MIN: usize = 4;

/// Keeps this thread, and those that it starts, on some CPUs until it is dropped.
pub(crate) struct Placement {
    choice: CpuChoice,
    _affinity: Option<Affinity>,
}

impl Placement {
    /// Returns `None` if the threads run where the system puts them.
    pub(crate) fn new(flows: &[FlowSetup]) -> Option<Placement> {
        if let Some(cpus) = chosen() {
            let choice = CpuChoice { list: cpus.to_string(), node: None, interface: None };
            return Some(Placement { choice, _affinity: None });
        }
        let system = System(Path::new("/sys"));
        let nodes = system.nodes();
        // With one node there is nothing to choose, so the interfaces need not be looked at.
        if nodes.len() < 2 {
            return None;
        }
        let interfaces = interfaces_of(flows);
        let (node, cpus) = system.choose(&nodes, &interfaces, &CpuList::allowed().ok()?)?;
        let affinity = Affinity::to(&cpus).ok()?;
        let choice =
            CpuChoice { list: cpus.to_string(), node: Some(node), interface: interfaces.into_iter().next() };
        Some(Placement { choice, _affinity: Some(affinity) })
    }

    pub(crate) fn choice(&self) -> &CpuChoice {
        &self.choice
    }
}

/// The names of the interfaces that carry the flows' packets.
fn interfaces_of(flows: &[FlowSetup]) -> Vec<String> {
    let known = farhaul_net::interfaces().unwrap_or_default();
    let by_address = |ip: IpAddr| {
        let ip = ip.to_canonical();
        let mut with = known.iter().filter(|one| one.addresses.iter().any(|&(own, _)| own == ip));
        with.next().map(|interface| interface.name.clone())
    };
    let by_route = |remote: IpAddr| farhaul_net::source_address(remote).ok().and_then(by_address);
    let mut names: Vec<String> = flows
        .iter()
        .filter_map(|flow| match &flow.link {
            FlowLink::Udp { socket, candidates } => {
                let bound = socket.local_addr().map(|address| address.ip()).filter(|ip| !ip.is_unspecified());
                bound.and_then(by_address).or_else(|| by_route(candidates.first()?.ip()))
            }
            FlowLink::Accept { clients, .. } => by_route(*clients.first()?),
            FlowLink::Stream(_) => None,
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The kernel's files about the host, below this folder.
struct System<'a>(&'a Path);

impl System<'_> {
    /// The nodes that have CPUs, with their numbers.
    fn nodes(&self) -> Vec<(usize, CpuList)> {
        let list = |path: &str| fs::read_to_string(self.0.join(path)).ok()?.trim().parse::<CpuList>().ok();
        let online = list("devices/system/node/online");
        let numbers = online.iter().flat_map(CpuList::numbers);
        // A node may have only memory; then its list is empty.
        numbers
            .filter_map(|node| Some((node, list(&format!("devices/system/node/node{node}/cpulist"))?)))
            .collect()
    }

    /// The node that an interface's device is attached to; a bond or a VLAN has the node of the interfaces
    /// below it.
    fn node_of(&self, interface: &str) -> Option<usize> {
        let folder = self.0.join("class/net").join(interface);
        if let Ok(text) = fs::read_to_string(folder.join("device/numa_node")) {
            // -1 if the firmware does not say.
            return text.trim().parse().ok();
        }
        let entries = fs::read_dir(folder).ok()?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut below = names.filter_map(|name| Some(self.node_of(name.strip_prefix("lower_")?)));
        let first = below.next()??;
        below.all(|node| node == Some(first)).then_some(first)
    }

    fn choose(
        &self,
        nodes: &[(usize, CpuList)],
        interfaces: &[String],
        allowed: &CpuList,
    ) -> Option<(usize, CpuList)> {
        let all = CpuList::of(nodes.iter().flat_map(|(_, cpus)| cpus.numbers()));
        if all != *allowed {
            return None;
        }
        let mut wanted = interfaces.iter().map(|interface| self.node_of(interface));
        let node = wanted.next()??;
        if !wanted.all(|other| other == Some(node)) {
            return None;
        }
        let (_, cpus) = nodes.iter().find(|(number, _)| *number == node)?;
        (cpus.numbers().count() >= CPUS_MIN).then(|| (node, cpus.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A host with two nodes of eight CPUs in turns, one node of two, and one without CPUs; cards on the
    /// first two, and a bond of each kind.
    fn host(root: &Path) {
        write(root, "devices/system/node/online", "0-3\n");
        for (node, cpus) in ["0-3,8-11\n", "4-7,12-15\n", "16-17\n", "\n"].iter().enumerate() {
            write(root, &format!("devices/system/node/node{node}/cpulist"), cpus);
        }
        for (name, node) in
            [("near0", "0\n"), ("far0", "1\n"), ("far1", "1\n"), ("small0", "2\n"), ("vm0", "-1\n")]
        {
            write(root, &format!("class/net/{name}/device/numa_node"), node);
        }
        for (name, below) in [("bond0", ["far0", "far1"]), ("bond1", ["near0", "far1"])] {
            for lower in below {
                write(root, &format!("class/net/{name}/operstate"), "up\n");
                let link = root.join(format!("class/net/{name}/lower_{lower}"));
                symlink(format!("../{lower}"), link).unwrap();
            }
        }
        write(root, "class/net/veth0/operstate", "up\n");
    }

    #[test]
    fn threads_go_where_the_card_is() {
        let folder = tempfile::tempdir().unwrap();
        host(folder.path());
        let system = System(folder.path());
        let nodes = system.nodes();
        assert_eq!(nodes.iter().map(|(node, _)| *node).collect::<Vec<_>>(), [0, 1, 2]);
        let table = [
            ("near0", "0-17", Some((0, "0-3,8-11"))),
            ("far0", "0-17", Some((1, "4-7,12-15"))),
            ("far0 far1", "0-17", Some((1, "4-7,12-15"))),
            ("bond0", "0-17", Some((1, "4-7,12-15"))),
            // Interfaces on several nodes, on a small node, or on an unknown one.
            ("bond1", "0-17", None),
            ("near0 far0", "0-17", None),
            ("small0", "0-17", None),
            ("vm0", "0-17", None),
            ("veth0", "0-17", None),
            ("", "0-17", None),
            // Somebody has chosen CPUs already.
            ("near0", "0-15", None),
        ];
        for (interfaces, allowed, expected) in table {
            let names: Vec<String> = interfaces.split_whitespace().map(str::to_string).collect();
            let found = system.choose(&nodes, &names, &allowed.parse().unwrap());
            let expected = expected.map(|(node, cpus)| (node, cpus.parse().unwrap()));
            assert_eq!(found, expected, "{interfaces:?} of {allowed}");
        }
    }

    #[test]
    fn a_host_that_says_nothing_has_no_nodes() {
        let folder = tempfile::tempdir().unwrap();
        assert!(System(folder.path()).nodes().is_empty());
        assert_eq!(System(folder.path()).node_of("eth0"), None);
    }
}
