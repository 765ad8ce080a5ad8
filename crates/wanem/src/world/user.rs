//! Privileges: namespaces as root, or in a user namespace if the kernel lets every user have one.

use std::fs;
use std::io;

use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, capabilities, configure_capability_in_ambient_set,
    set_capabilities,
};

use crate::{Error, sys};

const HINT: &str = "run it as root, or let users have namespaces: sysctl user.max_user_namespaces=10000, on Debian \
also kernel.unprivileged_userns_clone=1, on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0; in a container, \
give it CAP_SYS_ADMIN";

/// Gives processes that are started from now on pid, mount and IPC namespaces of their own, in which they may
/// make networks. Must be called while the process has one thread.
pub fn isolate() -> Result<(), Error> {
    let flags = UnshareFlags::NEWPID | UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    if geteuid().is_root() && sys::unshare(flags).is_ok() {
        return Ok(());
    }
    let missing = |source: io::Error| Error::Missing {
        what: "this system does not let you make namespaces".into(),
        source,
        hint: HINT.into(),
    };
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    sys::unshare(flags | UnshareFlags::NEWUSER).map_err(missing)?;
    // The user id stays the same, so that files, ssh and sshd work as they do outside.
    let map = |file: &str, text: &str| fs::write(format!("/proc/self/{file}"), text);
    map("uid_map", &format!("{user} {user} 1"))
        .and_then(|()| map("setgroups", "deny"))
        .and_then(|()| map("gid_map", &format!("{group} {group} 1")))
        .and_then(|()| keep_rights())
        .map_err(missing)
}

/// Lets started programs keep the capabilities over the new namespaces, which only root would keep by itself.
pub(super) fn keep_rights() -> io::Result<()> {
    let own = capabilities(None)?;
    set_capabilities(None, CapabilitySets { inheritable: own.permitted, ..own })?;
    for capability in own.permitted.iter().filter(|one| CapabilitySet::all().contains(*one)) {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}
