//! Prepares the hosts of a lab: sshd and `farhaul serve` on B, keys and host names for both sides, and
//! environment variables that say where all of it is.
//!
//! Always true: all files are in the lab's own memory. No file of the user's is written; a file that replaces
//! one on a host (ssh_config, hosts, passwd) is visible on that host only.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farhaul::target::default_identity_path;
use farhaul::target::keygen;
use farhaul_wanem::{Error, HostId, Lab, LabControl, LabSide, RUN_FOLDER, address_v4, address_v6};

use super::{WorldTask, failed};
use crate::ui::printer;

const SSH_PORT: u16 = 22;
const DAEMON_PORT: u16 = 33001;
/// How long to wait until a server listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// The environment variables for the programs of each host.
#[derive(Debug, Default)]
pub struct Environments {
    common: Vec<(String, String)>,
    home: PathBuf,
}

impl Environments {
    pub fn of(&self, host: HostId) -> Vec<(String, String)> {
        let mut all = self.common.clone();
        all.push(("FARHAUL_LAB_HOST".into(), host.to_string()));
        if host.side == LabSide::B {
            all.push(("HOME".into(), self.home.to_string_lossy().into_owned()));
        }
        all
    }
}

/// The servers that run on the lab's hosts.
pub struct Services {
    pub environments: Arc<Environments>,
    children: BTreeMap<u32, String>,
}

/// The lab's folders.
struct Folders {
    root: PathBuf,
    keys: PathBuf,
    home: PathBuf,
}

impl Services {
    pub fn start(lab: &Lab, task: &WorldTask) -> Result<Services, Error> {
        let root = PathBuf::from(RUN_FOLDER);
        let home = task.home.clone().unwrap_or_else(|| root.join("home"));
        let folders = Folders { keys: root.join("keys"), home, root };
        for name in ["bin", "keys", "logs", "home"] {
            fs::create_dir_all(folders.root.join(name)).map_err(failed("cannot make the lab's folders"))?;
        }
        std::os::unix::fs::symlink(&task.program, folders.root.join("bin/farhaul"))
            .map_err(failed("cannot make the lab's folders"))?;
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into());
        let path = format!("{}/bin:{path}:/usr/sbin:/sbin", folders.root.display());
        name_hosts(lab, &folders)?;

        let mut variables = Variables(Vec::new());
        variables.add_addresses(lab, task.plan.links.len());
        variables.add("PATH", &path);
        variables.add("FARHAUL_LAB_DIR", folders.home.display());
        variables.0.push(LabControl::variable());
        let mut services = Services { environments: Arc::default(), children: BTreeMap::new() };
        services.start_daemons(lab, &folders, &mut variables)?;
        match find_sshd() {
            Some(sshd) => services.start_sshd(lab, &folders, &sshd, &path, &mut variables)?,
            None if !task.quiet => {
                printer::warning("there is no sshd on this machine, so scp and ssh do not work in the lab")
            }
            None => {}
        }
        services.environments = Arc::new(Environments { common: variables.0, home: folders.home });
        Ok(services)
    }

    /// Returns the name of the server with this process id.
    pub fn name_of(&self, pid: u32) -> Option<&str> {
        self.children.get(&pid).map(String::as_str)
    }

    fn start_daemons(
        &mut self,
        lab: &Lab,
        folders: &Folders,
        variables: &mut Variables,
    ) -> Result<(), Error> {
        let make_key = |name: &str| {
            let fingerprint = keygen(&folders.keys.join(name), "lab");
            fingerprint.map_err(|error| Error::Io {
                what: "cannot make a key".into(),
                source: std::io::Error::other(error),
            })
        };
        let fingerprint = make_key("daemon")?;
        make_key("client")?;
        let client = fs::read_to_string(folders.keys.join("client.pub")).unwrap_or_default();
        let mut authorized = format!("diagnose,tunnel=*:*,tunnel-listen=*:* {client}");
        // A user who has a key can use it in the lab as well.
        let own = default_identity_path().with_extension("pub");
        authorized.push_str(&fs::read_to_string(own).unwrap_or_default());
        let authorized_keys = folders.write("keys/authorized", &authorized)?;
        // With an empty configuration file, neither the user's nor the system's is read.
        let configuration = folders.write("keys/none.toml", "")?;
        let listen = format!("[::]:{DAEMON_PORT}");
        for host in lab.hosts().filter(|host| host.side == LabSide::B) {
            let mut serve = Command::new(folders.root.join("bin/farhaul"));
            serve.args(["serve", "--listen", &listen, "--root"]).arg(&folders.home);
            serve.arg("--authorized-keys").arg(&authorized_keys).arg("-i").arg(folders.keys.join("daemon"));
            serve.arg("--allow-root").arg("--config").arg(&configuration);
            serve.arg("--state").arg(folders.root.join("jobs").join(host.to_string()));
            // The home is the folder that it serves, so its state goes elsewhere.
            serve.env("XDG_STATE_HOME", folders.root.join("state"));
            self.start_server(lab, host, "farhaul serve", serve, DAEMON_PORT, folders)?;
        }
        let key = folders.keys.join("client");
        variables.add("FARHAUL_LAB_PORT", DAEMON_PORT);
        variables.add("FARHAUL_LAB_URL", format!("fh://{}:{DAEMON_PORT}/", address_v4(LabSide::B, 0, 0)));
        variables.add("FARHAUL_LAB_KEY", key.display());
        variables.add("FARHAUL_LAB_FINGERPRINT", &fingerprint);
        // The user's own file of known hosts must not get a key that exists only as long as the lab.
        let known_hosts = folders.keys.join("known_daemons");
        let options = format!(
            "-i {} --known-hosts {} --fingerprint {fingerprint}",
            key.display(),
            known_hosts.display()
        );
        variables.add("FARHAUL_LAB_CP_OPTIONS", options);
        Ok(())
    }

    fn start_sshd(
        &mut self,
        lab: &Lab,
        folders: &Folders,
        sshd: &Path,
        path: &str,
        variables: &mut Variables,
    ) -> Result<(), Error> {
        for name in ["ssh_host", "ssh_client"] {
            make_ssh_key(&folders.keys.join(name))?;
        }
        // sshd needs this folder, which otherwise the system's start script makes.
        let _ = fs::create_dir("/run/sshd");
        let root = folders.root.display();
        let config = folders.write(
            "sshd_config",
            &format!(
                "Port {SSH_PORT}\nHostKey {root}/keys/ssh_host\nPidFile none\n\
                 AuthorizedKeysFile {root}/keys/ssh_client.pub\nStrictModes no\nUsePAM no\nUseDNS no\n\
                 PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
                 MaxStartups 100\nMaxSessions 100\nPrintMotd no\nPrintLastLog no\nLogLevel ERROR\n\
                 SetEnv PATH={path}\nSubsystem sftp internal-sftp\n"
            ),
        )?;
        for host in lab.hosts().filter(|host| host.side == LabSide::B) {
            move_home(lab, host, folders)?;
            let mut server = Command::new(sshd);
            server.args(["-D", "-e", "-f"]).arg(&config);
            self.start_server(lab, host, "sshd", server, SSH_PORT, folders)?;
        }
        let lab_config = ssh_client_config(lab, folders)?;
        let system_path = Path::new("/etc/ssh/ssh_config");
        if let Ok(system_config) = fs::read_to_string(system_path) {
            let both = format!("{lab_config}\nHost *\n{system_config}");
            let both = folders.write("ssh_config.all", &both)?;
            for host in lab.hosts().filter(|host| host.side == LabSide::A) {
                lab.show(host, &both, system_path).map_err(failed("cannot set up ssh in the lab"))?;
            }
        }
        variables.add("FARHAUL_LAB_SSH_CONFIG", folders.write("ssh_config", &lab_config)?.display());
        variables.add("FARHAUL_LAB_SSH_KEY", folders.keys.join("ssh_client").display());
        variables.add("FARHAUL_LAB_SSH_PORT", SSH_PORT);
        Ok(())
    }

    fn start_server(
        &mut self,
        lab: &Lab,
        host: HostId,
        name: &str,
        mut command: Command,
        port: u16,
        folders: &Folders,
    ) -> Result<(), Error> {
        let log_path = folders.root.join(format!("logs/{}-{host}", name.replace(' ', "-")));
        let what = format!("cannot start {name} on host {host}");
        let log = File::create(&log_path).map_err(failed(&what))?;
        let errors = log.try_clone().map_err(failed(&what))?;
        // The server gets a process group of its own, so that keys of the terminal, such as Ctrl-C, reach
        // only the command.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.stdin(Stdio::null()).stdout(log).stderr(errors).env("HOME", &folders.home);
        let mut child = lab.spawn(host, &mut command).map_err(failed(&what))?;
        wait_until_listening(&mut child, port).map_err(|reason| Error::Io {
            what,
            source: std::io::Error::other(format!(
                "{reason}; {}",
                fs::read_to_string(&log_path).unwrap_or_default().trim().replace('\n', "; ")
            )),
        })?;
        self.children.insert(child.id(), format!("{name} on host {host}"));
        Ok(())
    }
}

impl Folders {
    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.root.join(name);
        fs::write(&path, text).map_err(failed(&format!("cannot write {}", path.display())))?;
        Ok(path)
    }
}

/// Names and values for the environment.
struct Variables(Vec<(String, String)>);

impl Variables {
    fn add(&mut self, name: &str, value: impl ToString) {
        self.0.push((name.into(), value.to_string()));
    }

    /// FARHAUL_LAB_B is host b on link 1, FARHAUL_LAB_B2 host b2, FARHAUL_LAB_B_LINK2 host b on link 2.
    fn add_addresses(&mut self, lab: &Lab, links: usize) {
        for host in lab.hosts() {
            for link in 0..links {
                let name = format!("FARHAUL_LAB_{}", host.to_string().to_uppercase());
                let name = if link == 0 { name } else { format!("{name}_LINK{}", link + 1) };
                self.add(&name, address_v4(host.side, host.index, link));
                self.add(&format!("{name}_V6"), address_v6(host.side, host.index, link));
            }
        }
    }
}

/// Gives all hosts a hosts file with the names lab-a, lab-b and so on.
fn name_hosts(lab: &Lab, folders: &Folders) -> Result<(), Error> {
    let hosts_path = Path::new("/etc/hosts");
    let Ok(mut text) = fs::read_to_string(hosts_path) else { return Ok(()) };
    for host in lab.hosts() {
        let addresses = [
            address_v4(host.side, host.index, 0).to_string(),
            address_v6(host.side, host.index, 0).to_string(),
        ];
        for address in addresses {
            text.push_str(&format!("\n{address} lab-{host}"));
        }
    }
    let file = folders.write("hosts", &format!("{text}\n"))?;
    for host in lab.hosts() {
        lab.show(host, &file, hosts_path).map_err(failed("cannot name the hosts"))?;
    }
    Ok(())
}

/// Makes the lab's folder the home of the user on B, so that `scp x B:` cannot overwrite files in the real
/// home.
fn move_home(lab: &Lab, host: HostId, folders: &Folders) -> Result<(), Error> {
    let what = "cannot give host B a home of its own";
    let Some(user) = current_user() else { return Ok(()) };
    let passwd = fs::read_to_string("/etc/passwd").map_err(failed(what))?;
    let file = folders.write("passwd", &passwd_with_home(&passwd, &user, &folders.home))?;
    lab.show(host, &file, Path::new("/etc/passwd")).map_err(failed(what))?;
    if user.id == 0 {
        // Without PAM, sshd refuses users whose password is locked, even with a key.
        let file = folders.write("shadow", &format!("{}:*:19000:0:99999:7:::\n", user.name))?;
        lab.show(host, &file, Path::new("/etc/shadow")).map_err(failed(what))?;
    }
    Ok(())
}

struct User {
    name: String,
    id: u32,
    group: u32,
}

/// Returns the user that this process runs as.
fn current_user() -> Option<User> {
    let meta = fs::metadata("/proc/self").ok()?;
    let (id, group) =
        (std::os::unix::fs::MetadataExt::uid(&meta), std::os::unix::fs::MetadataExt::gid(&meta));
    let passwd = fs::read_to_string("/etc/passwd").ok()?;
    let listed = passwd.lines().find(|line| line.split(':').nth(2) == Some(&id.to_string()));
    let name = listed.and_then(|line| line.split(':').next()).map(str::to_string);
    Some(User { name: name.or_else(|| std::env::var("USER").ok())?, id, group })
}

/// Returns the text of a passwd file in which the user's line comes first and has another home. A user who is
/// not in the file gets a line.
fn passwd_with_home(passwd: &str, user: &User, home: &Path) -> String {
    let prefix = format!("{}:", user.name);
    let shell = passwd.lines().find(|line| line.starts_with(&prefix)).and_then(|line| line.split(':').nth(6));
    let mut text =
        format!("{prefix}x:{}:{}::{}:{}\n", user.id, user.group, home.display(), shell.unwrap_or("/bin/sh"));
    for line in passwd.lines().filter(|line| !line.starts_with(&prefix)) {
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn ssh_client_config(lab: &Lab, folders: &Folders) -> Result<String, Error> {
    let key = fs::read_to_string(folders.keys.join("ssh_host.pub")).map_err(failed("cannot make a key"))?;
    let key = key.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let mut names = Vec::new();
    for host in lab.hosts().filter(|host| host.side == LabSide::B) {
        names.push(format!("lab-{host}"));
        for link in 0..lab.settings().len() {
            names.push(address_v4(host.side, host.index, link).to_string());
            names.push(address_v6(host.side, host.index, link).to_string());
        }
    }
    folders.write("keys/known_hosts", &format!("{} {key}\n", names.join(",")))?;
    let keys = folders.keys.display();
    let user = current_user().map(|user| format!("    User {}\n", user.name)).unwrap_or_default();
    Ok(format!(
        "Host {}\n    Port {SSH_PORT}\n{user}    IdentityFile {keys}/ssh_client\n    \
         UserKnownHostsFile {keys}/known_hosts\n    GlobalKnownHostsFile {keys}/known_hosts\n",
        names.join(" ")
    ))
}

fn make_ssh_key(path: &Path) -> Result<(), Error> {
    let what = "cannot make a key with ssh-keygen";
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f"]).arg(path).stdin(Stdio::null());
    let output = command.output().map_err(failed(what))?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_string();
    Err(failed(what)(std::io::Error::other(reason)))
}

fn find_sshd() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join("sshd")).find(|file| file.is_file())
}

fn wait_until_listening(child: &mut Child, port: u16) -> Result<(), String> {
    let begin = Instant::now();
    let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{}/net/{table}", child.id()));
    while begin.elapsed() < PATIENCE {
        if tables.iter().any(|table| listens(&fs::read_to_string(table).unwrap_or_default(), port)) {
            return Ok(());
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("it ended ({status})"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(format!("it did not listen on port {port} within {} s", PATIENCE.as_secs()))
}

fn listens(table: &str, port: u16) -> bool {
    let end = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next().is_some_and(|local| local.ends_with(&end)) && fields.nth(1) == Some("0A")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_users_own_home_moves() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nme:x:1000:1000:Me:/home/me:/bin/zsh\n";
        let user = User { name: "me".into(), id: 1000, group: 1000 };
        let moved = passwd_with_home(passwd, &user, Path::new("/lab"));
        assert_eq!(moved, "me:x:1000:1000::/lab:/bin/zsh\nroot:x:0:0:root:/root:/bin/bash\n");
        let stranger = User { name: "ldap".into(), id: 5, group: 6 };
        let added = passwd_with_home(passwd, &stranger, Path::new("/lab"));
        assert!(added.starts_with("ldap:x:5:6::/lab:/bin/sh\n") && added.ends_with(passwd));
    }

    #[test]
    fn a_listening_port_is_found() {
        let table = "  sl  local_address rem_address   st\n   0: 00000000:0016 00000000:0000 0A 0\n\
                     \x20  1: 00000000:80E9 00000000:0000 01 0\n";
        assert!(listens(table, 22) && !listens(table, 33001) && !listens(table, 23));
    }
}
