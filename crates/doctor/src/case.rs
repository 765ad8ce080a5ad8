//! A host as the checks see it: places with their values, network cards, disks, mounts and cores.
//!
//! Always true: everything is read by the port, each place once; what the user may not see is noted.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use crate::host::{Host, Unseen, keyed, split};

/// What an interface is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NicKind {
    Physical,
    /// A card of a virtual machine: virtio, vmxnet3, Xen.
    Paravirtual,
    Wireless,
    Bond,
    /// One end of a pair between network namespaces, as containers have it.
    Pair,
    /// Bridges, tunnels, loopback.
    Other,
}

/// A network interface.
#[derive(Debug, Clone)]
pub(crate) struct Nic {
    pub(crate) name: String,
    pub(crate) kind: NicKind,
    pub(crate) is_up: bool,
    pub(crate) speed_bps: Option<u64>,
}

impl Nic {
    /// Whether transfers are likely to go through it.
    pub(crate) fn carries_data(&self) -> bool {
        self.is_up && !matches!(self.kind, NicKind::Wireless | NicKind::Other)
    }

    /// Whether it is a real card, or a part of one.
    pub(crate) fn is_card(&self) -> bool {
        self.is_up && self.kind == NicKind::Physical
    }
}

/// A disk.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    pub(crate) name: String,
    pub(crate) is_rotating: bool,
    pub(crate) is_nvme: bool,
}

/// A mounted file system.
#[derive(Debug, Clone)]
pub(crate) struct Mount {
    pub(crate) device: String,
    pub(crate) place: String,
    pub(crate) kind: String,
    pub(crate) options: String,
}

impl Mount {
    /// The value of an option, empty for one without a value.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        self.options.split(',').find_map(|option| match option.split_once('=') {
            Some((key, value)) => (key == name).then_some(value),
            None => (option == name).then_some(""),
        })
    }
}

/// A host that is being judged.
pub struct Case<'a> {
    host: &'a dyn Host,
    texts: RefCell<BTreeMap<String, Option<String>>>,
    denied: RefCell<BTreeSet<String>>,
    nics: OnceCell<Vec<Nic>>,
    disks: OnceCell<Vec<Disk>>,
    mounts: OnceCell<Vec<Mount>>,
}

impl<'a> Case<'a> {
    /// Begins to look at a host.
    pub fn of(host: &'a dyn Host) -> Case<'a> {
        Case {
            host,
            texts: RefCell::default(),
            denied: RefCell::default(),
            nics: OnceCell::new(),
            disks: OnceCell::new(),
            mounts: OnceCell::new(),
        }
    }

    /// The places that exist and that this user may not see, of those asked for until now.
    pub fn denied(&self) -> Vec<String> {
        self.denied.borrow().iter().cloned().collect()
    }

    /// The value of a place, which may end with `#key`; `None` if the host does not show it.
    pub(crate) fn text(&self, place: &str) -> Option<String> {
        let (file, key) = split(place);
        let text = self.whole(file)?;
        match key {
            Some(key) => keyed(&text, key).map(str::to_owned),
            None => Some(text.trim().to_owned()),
        }
    }

    /// A file's text as it is.
    pub(crate) fn whole(&self, file: &str) -> Option<String> {
        if let Some(text) = self.texts.borrow().get(file) {
            return text.clone();
        }
        let answer = self.host.read(file);
        if answer == Err(Unseen::Denied) {
            self.denied.borrow_mut().insert(file.to_owned());
        }
        let text = answer.ok();
        self.texts.borrow_mut().insert(file.to_owned(), text.clone());
        text
    }

    /// A place's value as a number.
    pub(crate) fn number(&self, place: &str) -> Option<u64> {
        self.text(place)?.parse().ok()
    }

    /// A place's value as numbers between spaces.
    pub(crate) fn numbers(&self, place: &str) -> Vec<u64> {
        let text = self.text(place).unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    /// The lines of `key value` in a file.
    pub(crate) fn pairs(&self, file: &str) -> Vec<(String, String)> {
        let text = self.whole(file).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(a, b)| (a.into(), b.trim().into()))
            .collect()
    }

    pub(crate) fn list(&self, place: &str) -> Vec<String> {
        self.host.list(place)
    }

    pub(crate) fn link(&self, place: &str) -> Option<String> {
        self.host.link(place)
    }

    /// The last part of where a link leads.
    fn link_name(&self, place: &str) -> Option<String> {
        let target = self.link(place)?;
        Some(target.rsplit('/').next().unwrap_or_default().to_owned())
    }

    /// The driver of an interface.
    pub(crate) fn driver(&self, nic: &str) -> Option<String> {
        self.text(&format!("asked/ethtool/{nic}/driver#driver"))
            .filter(|driver| !driver.is_empty())
            .or_else(|| self.link_name(&format!("sys/class/net/{nic}/device/driver")))
    }

    /// The network interfaces.
    pub(crate) fn nics(&self) -> &[Nic] {
        self.nics.get_or_init(|| {
            self.list("sys/class/net")
                .into_iter()
                .filter(|name| name != "bonding_masters")
                .map(|name| self.nic(name))
                .collect()
        })
    }

    fn nic(&self, name: String) -> Nic {
        let at = |what: &str| format!("sys/class/net/{name}/{what}");
        let driver = self.driver(&name).unwrap_or_default();
        let kind = if self.link(&at("phy80211")).is_some() {
            NicKind::Wireless
        } else if ["virtio_net", "vmxnet3", "xen_netfront", "hv_netvsc"].contains(&driver.as_str()) {
            NicKind::Paravirtual
        } else if self.link(&at("device")).is_some() {
            NicKind::Physical
        } else if driver == "bonding" {
            NicKind::Bond
        } else if driver == "veth" {
            NicKind::Pair
        } else {
            NicKind::Other
        };
        let is_up = self.text(&at("carrier")).as_deref() == Some("1");
        // A pair says 10 Gbit/s, and virtual cards say what the host made up, or -1.
        let speed = self.text(&at("speed")).and_then(|speed| speed.parse::<u64>().ok());
        let speed_bps = speed.filter(|_| kind != NicKind::Pair).map(|speed| speed.saturating_mul(1_000_000));
        Nic { kind, is_up, speed_bps, name }
    }

    /// The disks, without partitions, and without what lies on top of others.
    pub(crate) fn disks(&self) -> &[Disk] {
        self.disks.get_or_init(|| {
            let real = |name: &String| {
                !["loop", "ram", "zram", "sr", "fd", "dm-", "md", "nbd"]
                    .iter()
                    .any(|start| name.starts_with(start))
            };
            let disk = |name: String| Disk {
                is_rotating: self.text(&format!("sys/block/{name}/queue/rotational")).as_deref() == Some("1"),
                is_nvme: name.starts_with("nvme"),
                name,
            };
            self.list("sys/block").into_iter().filter(real).map(disk).collect()
        })
    }

    /// The mounted file systems.
    pub(crate) fn mounts(&self) -> &[Mount] {
        self.mounts.get_or_init(|| {
            let text = self.whole("proc/self/mounts").unwrap_or_default();
            let mount = |line: &str| {
                let mut words = line.split(' ').map(str::to_owned);
                Some(Mount {
                    device: words.next()?,
                    place: words.next()?,
                    kind: words.next()?,
                    options: words.next()?,
                })
            };
            text.lines().filter_map(mount).collect()
        })
    }

    /// Whether this is seen from inside a container.
    pub fn is_container(&self) -> bool {
        let first = self.whole("proc/1/cgroup").unwrap_or_default();
        let marks = ["docker", "kubepods", "lxc", "containerd", "libpod", "podman"];
        let root_is_layered = self.mounts().iter().any(|mount| mount.place == "/" && mount.kind == "overlay");
        root_is_layered || marks.iter().any(|mark| first.contains(mark))
    }

    /// Whether this is a virtual machine.
    pub(crate) fn is_virtual(&self) -> bool {
        self.cpu_flags().contains(&"hypervisor".to_owned())
            || self.nics().iter().any(|nic| nic.kind == NicKind::Paravirtual)
    }

    /// The flags of the first processor.
    pub(crate) fn cpu_flags(&self) -> Vec<String> {
        let text = self.whole("proc/cpuinfo").unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"));
        let flags = line.and_then(|line| line.split_once(':')).map_or("", |(_, flags)| flags);
        flags.split_whitespace().map(str::to_owned).collect()
    }

    /// The numbers of the cores.
    pub(crate) fn cores(&self) -> usize {
        let names = self.list("sys/devices/system/cpu");
        names
            .iter()
            .filter(|name| name.strip_prefix("cpu").is_some_and(|rest| rest.parse::<u32>().is_ok()))
            .count()
    }

    /// The memory of the host; 0 if it does not say.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let text = self.whole("proc/meminfo").unwrap_or_default();
        let total = text
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))
            .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        total.unwrap_or(0).saturating_mul(1024)
    }

    /// How many NUMA nodes there are; 1 if the host does not say.
    pub(crate) fn nodes(&self) -> usize {
        let names = self.list("sys/devices/system/node");
        names
            .iter()
            .filter(|name| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok()))
            .count()
            .max(1)
    }

    /// Whether a program runs, as far as it is one of those looked for.
    pub(crate) fn runs(&self, program: &str) -> bool {
        self.text(&format!("asked/processes#{program}")).is_some()
    }
}

/// Reads a list of numbers such as `0-3,8`.
pub(crate) fn ranges(text: &str) -> BTreeSet<u32> {
    let mut all = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            // No machine has more; a damaged recording must not take all memory.
            all.extend((first..=last).take(1 << 16));
        }
    }
    all
}

/// Bytes in words.
pub(crate) fn bytes_words(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match UNITS.iter().find(|(_, shift)| bytes >> shift > 0) {
        Some((unit, shift)) => {
            let value = bytes as f64 / (1u64 << shift) as f64;
            let digits = usize::from(value < 10.0 && value.fract() >= 0.05);
            format!("{value:.digits$} {unit}")
        }
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_cores_are_read() {
        assert_eq!(ranges("0-2,8\n").into_iter().collect::<Vec<_>>(), [0, 1, 2, 8]);
        assert!(ranges("").is_empty() && ranges("x-y").is_empty() && ranges("5-1").is_empty());
    }

    #[test]
    fn bytes_are_said_in_the_largest_unit() {
        assert_eq!(bytes_words(212_992), "208 KiB");
        assert_eq!(bytes_words(2_147_483_647), "2.0 GiB");
        assert_eq!(bytes_words(64 << 20), "64 MiB");
        assert_eq!(bytes_words(7), "7 bytes");
    }
}
