//! Tests that everything is read from files recorded on a server, and that a missing or broken file affects
//! nothing else.

use std::path::Path;

use super::storage::FileSystemSize;
use super::*;

/// The recorded files, in a folder of their own.
fn server() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut file: Option<(std::path::PathBuf, String)> = None;
    let write = |file: Option<(std::path::PathBuf, String)>| {
        if let Some((path, text)) = file {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    };
    for line in include_str!("vectors/two_sockets.txt").lines() {
        match (line.strip_prefix("== "), &mut file) {
            (Some(path), _) => write(file.replace((folder.path().join(path), String::new()))),
            (None, Some((_, text))) => *text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    write(file);
    folder
}

fn sized(point: &str) -> Option<FileSystemSize> {
    (point != "/gone").then_some(FileSystemSize { bytes: 1000, free_bytes: 10 })
}

#[test]
fn a_server_is_read_as_it_was_recorded() {
    let folder = server();
    let host = look(folder.path(), &sized);
    assert!(host.at_s > 0.0);

    let interfaces: Vec<_> = host
        .interfaces
        .iter()
        .map(|one| {
            (one.name.as_str(), one.is_up, one.is_physical, one.speed_bps.map(|bps| bps / 1_000_000_000))
        })
        .collect();
    assert_eq!(
        interfaces,
        [
            ("eno1", true, true, Some(1)),
            ("ens1f0np0", true, true, Some(100)),
            ("ens1f1np1", false, true, None),
            ("wg0", true, false, None),
        ]
    );
    let fast = &host.interfaces[1];
    assert_eq!((fast.received_bytes, fast.sent_bytes), (98_765_432_109_876, 12_345_678_901_234));
    assert_eq!((fast.received_dropped, fast.sent_dropped), (17, 3));

    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let cores: Vec<_> = host.cores.iter().map(|core| (core.number, core.socket)).collect();
    assert_eq!(cores, [(0, Some(0)), (1, None), (34, Some(1))]);
    assert_eq!(host.cores[0].busy_s, (20_000.0 + 100.0 + 6000.0 + 250.0 + 750.0) / ticks);
    assert_eq!((host.cores[0].system_s, host.cores[0].idle_s), (7000.0 / ticks, 451_500.0 / ticks));
    // Time that the hypervisor has taken (steal) does not count as idle.
    assert_eq!(host.cores[1].busy_s, (10_000.0 + 50.0 + 3000.0 + 125.0 + 375.0 + 40.0) / ticks);
    let memory = host.memory.unwrap();
    assert_eq!((memory.bytes, memory.available_bytes), (528_279_048 << 10, 480_000_000 << 10));

    let disks: Vec<_> =
        host.disks.iter().map(|disk| (disk.name.as_str(), disk.read_bytes, disk.written_bytes)).collect();
    assert_eq!(disks, [("nvme0n1", 1 << 30, 2 << 30), ("sda", 1 << 20, 0), ("md127", 2 << 30, 2 << 30)]);
    assert_eq!(host.disks[0].model.as_deref(), Some("SAMSUNG MZWLJ7T6HALA-00007"));
    assert_eq!((host.disks[0].busy_s, host.disks[0].is_made_of_others), (61.25, false));
    assert!(host.disks[2].is_made_of_others);
    let mounts: Vec<_> =
        host.mounts.iter().map(|mount| (mount.point.as_str(), mount.device.as_str())).collect();
    assert_eq!(mounts, [("/", "/dev/nvme0n1p2"), ("/srv/data", "/dev/md127"), ("/mnt/a disk", "/dev/sda1")]);

    let hottest = &host.temperatures[0];
    assert_eq!((hottest.chip.as_str(), hottest.label.as_str()), ("coretemp", "Package id 0"));
    assert_eq!((hottest.celsius, hottest.critical_celsius), (61.0, Some(100.0)));
    let labels: Vec<_> = host.temperatures.iter().map(|one| one.label.as_str()).collect();
    assert_eq!(labels, ["Package id 0", "Core 0", "Core 10", "Package id 1", "Composite"]);

    let energy: Vec<_> = host
        .energy
        .iter()
        .map(|one| (one.name.as_str(), one.part_of.as_deref(), one.joules, one.wraps_at_joules > 6e4))
        .collect();
    assert_eq!(
        energy,
        [
            ("package-0", None, 262_143.328, true),
            ("dram", Some("intel-rapl:0"), 1.0, true),
            ("package-1", None, 5.5, true),
            ("dram", Some("intel-rapl:1"), 2.5, true),
        ]
    );
    assert!(!host.energy_is_hidden);
    let power: Vec<_> = host.power.iter().map(|one| (one.chip.as_str(), one.watts)).collect();
    assert_eq!(power, [("power_meter", 423.0), ("amdgpu", 38.0)]);
}

#[test]
fn without_chips_the_zones_of_the_kernel_have_the_temperatures() {
    let folder = server();
    std::fs::remove_dir_all(folder.path().join("sys/class/hwmon")).unwrap();
    let host = look(folder.path(), &sized);
    let read: Vec<_> = host.temperatures.iter().map(|one| (one.label.as_str(), one.celsius)).collect();
    assert_eq!(read, [("acpitz", 27.8)]);
    assert!(host.power.is_empty());
}

#[test]
fn a_counter_of_energy_that_cannot_be_read_is_said_to_be_there() {
    let folder = server();
    let counter = folder.path().join("sys/class/powercap/intel-rapl:0/energy_uj");
    // Root can read every file, but nobody can read a directory as a file.
    std::fs::remove_file(&counter).unwrap();
    std::fs::create_dir(&counter).unwrap();
    let host = look(folder.path(), &sized);
    assert!(host.energy_is_hidden && host.energy.len() == 3, "{:?}", host.energy);
}

#[test]
fn what_is_not_there_is_left_out() {
    let nothing = look(Path::new("/nonexistent"), &sized);
    assert_eq!(HostView { at_s: 0.0, ..nothing }, HostView::default());
}

#[test]
fn this_host_is_seen() {
    let host = look(Path::new("/"), &size_of);
    assert!(!host.cores.is_empty() && host.memory.is_some_and(|memory| memory.bytes > 1 << 20));
}
