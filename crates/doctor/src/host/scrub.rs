//! Takes out of a recording what names the machine, its users or its network: addresses, serial numbers, host names,
//! home directories, servers.

/// Returns a text without addresses and long identifiers.
pub(super) fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-' | '_') {
            word.push(c);
        } else {
            out.push_str(&plain(&word));
            word.clear();
            out.push(c);
        }
    }
    out.push_str(&plain(&word));
    out
}

/// A word, or what stands for it if it is an address or an identifier.
fn plain(word: &str) -> String {
    let parts = |separator: char| word.split(separator).collect::<Vec<_>>();
    let is_hex = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let colons = parts(':');
    let dots = parts('.');
    let dashes = parts('-');
    if colons.len() == 6 && colons.iter().all(|part| part.len() == 2 && is_hex(part)) {
        "00:00:00:00:00:00".into()
    } else if dots.len() == 4 && dots.iter().all(|part| part.parse::<u8>().is_ok()) {
        "192.0.2.1".into()
    } else if colons.len() >= 4
        && colons.iter().all(|part| part.is_empty() || part.len() <= 4 && is_hex(part))
    {
        "2001:db8::1".into()
    } else if word.len() >= 32 && is_hex(word) {
        "0".repeat(32)
    } else if dashes.len() == 5 && dashes.iter().all(|part| is_hex(part)) {
        "00000000-0000-0000-0000-000000000000".into()
    } else {
        word.into()
    }
}

/// Returns the content of a place without what names anything.
pub(super) fn content(place: &str, content: &str) -> String {
    match place {
        "proc/self/mounts" => {
            content.lines().filter(|line| is_of_interest(line)).map(|line| mount(line) + "\n").collect()
        }
        "asked/space" | "proc/swaps" => content.lines().map(|line| mount(line) + "\n").collect(),
        // Of the older hierarchies nothing is read.
        "proc/self/cgroup" | "proc/1/cgroup" => {
            content.lines().filter(|line| line.starts_with("0::")).map(|line| text(line) + "\n").collect()
        }
        "proc/cmdline" => content
            .split_whitespace()
            .filter(|word| {
                ["iommu", "isolcpus", "nohz", "mitigations"].iter().any(|part| word.contains(part))
            })
            .collect::<Vec<_>>()
            .join(" "),
        "proc/cpuinfo" => first_processor(content),
        "proc/stat" => content.lines().take(1).map(|line| format!("{line}\n")).collect(),
        "proc/meminfo" => {
            content.lines().filter(|line| line.starts_with("Mem")).map(|line| format!("{line}\n")).collect()
        }
        // The interfaces' addresses are the only content.
        "proc/net/if_inet6" => content
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(_, rest)| format!("20010db8000000000000000000000001 {rest}\n"))
            .collect(),
        _ => text(content),
    }
}

/// Whether a mount holds files of users, or is the root.
fn is_of_interest(line: &str) -> bool {
    let mut words = line.split(' ');
    let (device, place, kind) = (words.next(), words.next(), words.next());
    device.is_some_and(|device| device.starts_with("/dev/"))
        || place == Some("/")
        || kind.is_some_and(crate::check::is_network_file_system)
}

/// A line of mounts without servers, users and mounts' own names.
fn mount(line: &str) -> String {
    let words: Vec<String> = line
        .split(' ')
        .enumerate()
        .map(|(index, word)| match index {
            // SERVER:/path of NFS, NID@tcp:/fs of Lustre, //server/share of CIFS.
            0 if word.contains(":/") || word.starts_with("//") => "server:/export".into(),
            0 | 1 => home(word),
            _ => word.split(',').map(option).collect::<Vec<_>>().join(","),
        })
        .collect();
    words.join(" ")
}

/// A mount's option without the address that it may hold.
fn option(option: &str) -> String {
    match option.split_once('=') {
        Some((name, _)) if name.ends_with("addr") => format!("{name}=192.0.2.1"),
        _ => text(option),
    }
}

fn home(path: &str) -> String {
    match path.strip_prefix("/home/") {
        Some(rest) => {
            let below = rest.split_once('/').map_or(String::new(), |(_, below)| format!("/{below}"));
            format!("/home/user{below}")
        }
        None => path.into(),
    }
}

/// The first processor's lines, which tell of all.
fn first_processor(content: &str) -> String {
    let kept = ["processor", "model name", "flags", "Features", "vendor_id", "CPU implementer", "CPU part"];
    content
        .lines()
        .take_while(|line| !line.trim().is_empty())
        .filter(|line| kept.iter().any(|name| line.starts_with(name)))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_a_machine_is_gone_and_what_decides_stays() {
        assert_eq!(text("Permanent HW addr: 0c:42:a1:b2:c3:d4"), "Permanent HW addr: 00:00:00:00:00:00");
        assert_eq!(
            text("10.1.2.3 fe80::1:2:3 5.15.0 0000:3b:00.0"),
            "192.0.2.1 2001:db8::1 5.15.0 0000:3b:00.0"
        );
        assert_eq!(
            text("UUID=6f1c2a3b-0001-4a5b-8c9d-0123456789ab"),
            "UUID=00000000-0000-0000-0000-000000000000"
        );
        let nfs = "fs1.uni.example:/vol/home /home/alice nfs4 rw,addr=10.0.0.1,nconnect=4 0 0";
        assert_eq!(
            content("proc/self/mounts", nfs).split(' ').take(3).collect::<Vec<_>>(),
            ["server:/export", "/home/user", "nfs4"]
        );
        assert_eq!(content("proc/cmdline", "root=UUID=x quiet iommu=pt"), "iommu=pt");
        assert_eq!(
            content("proc/net/if_inet6", "fe80000000000000000000000000abcd 02 40 20 80 eth0\n"),
            "20010db8000000000000000000000001 02 40 20 80 eth0\n"
        );
    }

    #[test]
    fn the_options_of_an_nfs_mount_keep_what_is_judged() {
        let line = mount("a:/b /mnt nfs4 rw,noatime,nconnect=4 0 0");
        assert_eq!(line, "server:/export /mnt nfs4 rw,noatime,nconnect=4 0 0");
    }
}
