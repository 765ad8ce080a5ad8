//! Temperatures, energy and power, as far as the host measures them and lets the user of the node read them.

use farhaul_api::{Energy, Power, Temperature};
use std::path::{Path, PathBuf};

use super::files;

/// The chips of hwmon and their names. From: the kernel's Documentation/hwmon/sysfs-interface.rst.
fn chips(root: &Path) -> Vec<(String, PathBuf)> {
    let named = |(name, folder): (String, PathBuf)| {
        (files::text(&folder.join("name")).filter(|chip| !chip.is_empty()).unwrap_or(name), folder)
    };
    files::entries(&root.join("sys/class/hwmon")).into_iter().map(named).collect()
}

/// Temperatures of chips, or of the kernel's thermal zones if there are no chips. From: also
/// Documentation/driver-api/thermal/sysfs-api.rst.
pub(super) fn temperatures(root: &Path) -> Vec<Temperature> {
    let mut all = Vec::new();
    for (chip, folder) in chips(root) {
        let mut inputs: Vec<u32> = files::entries(&folder)
            .iter()
            .filter_map(|(name, _)| files::index(name, "temp", "_input"))
            .collect();
        inputs.sort_unstable();
        for number in inputs {
            let value = |what: &str| files::number(&folder.join(format!("temp{number}_{what}")));
            let Some(millidegrees) = value("input") else { continue };
            let label = files::text(&folder.join(format!("temp{number}_label")));
            all.push(Temperature {
                chip: chip.clone(),
                label: label.unwrap_or_else(|| format!("temp{number}")),
                celsius: millidegrees as f64 / 1e3,
                critical_celsius: value("crit").filter(|crit| *crit > 0).map(|crit| crit as f64 / 1e3),
            });
        }
    }
    if !all.is_empty() {
        return all;
    }
    let zones = files::entries(&root.join("sys/class/thermal"));
    let zones = zones.iter().filter(|(name, _)| name.starts_with("thermal_zone"));
    let read = |(name, folder): &(String, PathBuf)| {
        let celsius = files::number(&folder.join("temp"))? as f64 / 1e3;
        let label = files::text(&folder.join("type")).unwrap_or_else(|| name.clone());
        Some(Temperature { chip: "thermal".into(), label, celsius, critical_celsius: None })
    };
    zones.filter_map(read).collect()
}

/// The energy that processors have used. From: the kernel's Documentation/power/powercap/powercap.rst.
pub(super) fn energy(root: &Path) -> Vec<Energy> {
    let zones = files::entries(&root.join("sys/class/powercap"));
    let read = |(zone, folder): &(String, PathBuf)| {
        // The same counters appear twice, as they can be read from memory or by processor instructions.
        if !zone.starts_with("intel-rapl:") {
            return None;
        }
        let microjoules = files::count(&folder.join("energy_uj"))?;
        let wraps_at = files::count(&folder.join("max_energy_range_uj"))?;
        // `intel-rapl:0:1` is a part of `intel-rapl:0`.
        let above = zone.rsplit_once(':').map(|(above, _)| above).filter(|above| above.contains(':'));
        Some(Energy {
            name: files::text(&folder.join("name"))?,
            zone: zone.clone(),
            part_of: above.map(ToString::to_string),
            joules: microjoules as f64 / 1e6,
            wraps_at_joules: wraps_at as f64 / 1e6,
        })
    };
    zones.iter().filter_map(read).collect()
}

/// True if some counters of energy exist but cannot be read. Kernels let only root read them, since they
/// could be used to guess keys.
pub(super) fn is_hidden(root: &Path) -> bool {
    let zones = files::entries(&root.join("sys/class/powercap"));
    let counters = zones.iter().map(|(_, folder)| folder.join("energy_uj"));
    counters.into_iter().any(|counter| counter.exists() && files::count(&counter).is_none())
}

/// The power that chips measure.
pub(super) fn power(root: &Path) -> Vec<Power> {
    let mut all = Vec::new();
    for (chip, folder) in chips(root) {
        for (name, _) in files::entries(&folder) {
            let number = files::index(&name, "power", "_average").or_else(|| {
                // A sensor that has both files counts once.
                let number = files::index(&name, "power", "_input")?;
                (!folder.join(format!("power{number}_average")).exists()).then_some(number)
            });
            let Some(number) = number else { continue };
            let Some(microwatts) = files::count(&folder.join(&name)) else { continue };
            let label = files::text(&folder.join(format!("power{number}_label")));
            all.push(Power {
                chip: chip.clone(),
                label: label.unwrap_or_else(|| format!("power{number}")),
                watts: microwatts as f64 / 1e6,
            });
        }
    }
    all
}
