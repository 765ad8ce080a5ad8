//! The options of `farhaul lab`. What a link can do is defined in wanem, which reads the values; here are the
//! words.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args as Group, Subcommand};
use farhaul_wanem::{HostId, LabChange, LabPlan, LinkSettings};

const LINK: &str = "Link (X for both directions, X/Y for A to B and B to A)";
const LAB: &str = "Lab";

/// Two hosts on this machine, joined by a link that behaves as a far one does
#[derive(Group, Debug)]
pub struct LabArgs {
    #[command(subcommand)]
    pub verb: LabVerb,
}

#[derive(Subcommand, Debug)]
pub enum LabVerb {
    Up(LabUpArgs),
    Run(LabRunArgs),
    Set(LabSetArgs),
    Stats(LabStatsArgs),
    Exec(LabExecArgs),
    /// The lab's own first process
    #[command(hide = true)]
    World(LabWorldArgs),
}

/// Build a lab and keep it until Ctrl-C; say how to get a shell on either host
#[derive(Group, Debug)]
pub struct LabUpArgs {
    #[command(flatten)]
    pub build: LabBuildArgs,
    /// One JSON object on stdout when it stands
    #[arg(long)]
    pub json: bool,
}

/// Run a command on host A of a lab built for it, and end with its exit code
#[derive(Group, Debug)]
#[command(after_help = RUN)]
pub struct LabRunArgs {
    #[command(flatten)]
    pub build: LabBuildArgs,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

const RUN: &str = "FARHAUL_LAB_A and FARHAUL_LAB_B hold the hosts' addresses. On B, sshd and farhaul serve are ready: \
scp FILE $FARHAUL_LAB_B: and farhaul cp $FARHAUL_LAB_CP_OPTIONS FILE $FARHAUL_LAB_URL work without more, and put files \
into $FARHAUL_LAB_DIR. docs/design/lab.md lists all variables.";

/// Change the links of a lab while it runs
#[derive(Group, Debug)]
pub struct LabSetArgs {
    #[command(flatten)]
    pub link: LabLinkArgs,
    /// Let nothing through for so long, such as 10s
    #[arg(long, value_name = "TIME")]
    pub cut: Option<String>,
    /// Change only this link, counted from 1
    #[arg(long = "only", value_name = "LINK")]
    pub only: Option<usize>,
    #[command(flatten)]
    pub which: LabChoiceArgs,
    /// The new settings as one JSON object on stdout
    #[arg(long)]
    pub json: bool,
}

/// Print what a lab's links have done, as one JSON object
#[derive(Group, Debug)]
pub struct LabStatsArgs {
    #[command(flatten)]
    pub which: LabChoiceArgs,
    /// Accepted as everywhere; the output is JSON anyway
    #[arg(long)]
    pub json: bool,
}

/// Run a command on a host of a lab; without one, a shell
#[derive(Group, Debug)]
pub struct LabExecArgs {
    #[command(flatten)]
    pub which: LabChoiceArgs,
    /// The host: a, b, a2, b2 and so on
    #[arg(value_name = "HOST")]
    pub host: HostId,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Group, Debug)]
pub struct LabWorldArgs {
    pub job: String,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

#[derive(Group, Debug)]
pub struct LabChoiceArgs {
    /// The lab's name [default: the one around this program, or the only one]
    #[arg(long, value_name = "NAME")]
    pub lab: Option<String>,
}

#[derive(Group, Debug)]
pub struct LabBuildArgs {
    #[command(flatten)]
    pub link: LabLinkArgs,
    /// One more link, as rtt=50ms,loss=1%; what it does not say is as for the first. May be repeated
    #[arg(long = "link", value_name = "SETTINGS", help_heading = LAB, value_parser = settings)]
    pub links: Vec<String>,
    /// Hosts on either side, which share the links
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = LAB)]
    pub hosts: usize,
    /// MTU of the hosts' interfaces
    #[arg(long, value_name = "BYTES", default_value_t = 1500, help_heading = LAB)]
    pub mtu: u32,
    /// Congestion control of the hosts' TCP, such as cubic or bbr [default: the system's]
    #[arg(long, value_name = "NAME", help_heading = LAB)]
    pub tcp: Option<String>,
    /// Chooses which packets are lost
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = LAB)]
    pub seed: u64,
    /// Changes to make while it runs, in JSON
    #[arg(long, value_name = "FILE", help_heading = LAB)]
    pub timeline: Option<PathBuf>,
    /// Write statistics there, one JSON object a second and one at the end
    #[arg(long, value_name = "FILE", help_heading = LAB)]
    pub stats: Option<PathBuf>,
    /// Folder that is home on B and what its daemon serves [default: one in memory that vanishes with the
    /// lab]
    #[arg(long, value_name = "DIR", help_heading = LAB)]
    pub home: Option<PathBuf>,
    /// What to call it [default: the first free number]
    #[arg(long, value_name = "NAME", help_heading = LAB)]
    pub lab: Option<String>,
    /// Errors only
    #[arg(short = 'q', long, help_heading = LAB)]
    pub quiet: bool,
}

/// Each option has the name that wanem's settings have.
#[derive(Group, Debug, Default)]
pub struct LabLinkArgs {
    /// Round trip without queues, such as 100ms
    #[arg(long, value_name = "TIME", help_heading = LINK, value_parser = one("rtt"))]
    pub rtt: Option<String>,
    /// One-way delay instead of --rtt
    #[arg(long, value_name = "TIME", help_heading = LINK, conflicts_with = "rtt", value_parser = one("delay"))]
    pub delay: Option<String>,
    /// Rate of the bottleneck in bits a second, such as 1g, or unlimited
    #[arg(long, value_name = "RATE", help_heading = LINK, value_parser = one("rate"))]
    pub rate: Option<String>,
    /// How that rate moves by itself: walk:0.1:100, cellular, trace:FILE with the ms at which packets leave,
    /// or still
    #[arg(long, value_name = "MOTION", help_heading = LINK, value_parser = rate_motion)]
    pub rate_motion: Option<String>,
    /// Room before the bottleneck: a time, bytes, or auto (the round trip, 10 to 100 ms)
    #[arg(long, value_name = "SIZE", help_heading = LINK, value_parser = one("queue"))]
    pub queue: Option<String>,
    /// Controlled delay in the queue: on, off or TARGET:INTERVAL
    #[arg(long, value_name = "TIMES", help_heading = LINK, value_parser = one("codel"))]
    pub codel: Option<String>,
    /// A policer before the queue, RATE:BYTES, or off
    #[arg(long, value_name = "BUCKET", help_heading = LINK, value_parser = one("policer"))]
    pub policer: Option<String>,
    /// Mark packets that have waited so long, if they can be marked; or off
    #[arg(long, value_name = "TIME", help_heading = LINK, value_parser = one("ecn"))]
    pub ecn: Option<String>,
    /// Delay that varies: 2ms is up to so much either way; white:5, walk:5:10, steps:17:15000:100 and
    /// bursts:20 add to it, in ms. With :reorder behind 2ms or white:5 packets may overtake
    #[arg(long, value_name = "MOTION", help_heading = LINK, value_parser = one("jitter"))]
    pub jitter: Option<String>,
    /// Share of packets lost at random, such as 1%
    #[arg(long, value_name = "SHARE", help_heading = LINK, value_parser = one("loss"))]
    pub loss: Option<String>,
    /// Where they are lost: behind the bottleneck or in front of it
    #[arg(long, value_name = "PLACE", help_heading = LINK, value_parser = one("loss-place"))]
    pub loss_place: Option<String>,
    /// Losses in bursts, SHARE:PACKETS with the mean length of a burst, or off
    #[arg(long, value_name = "BURSTS", help_heading = LINK, value_parser = one("burst-loss"))]
    pub burst_loss: Option<String>,
    /// Share of packets that arrive twice
    #[arg(long, value_name = "SHARE", help_heading = LINK, value_parser = one("duplicate"))]
    pub duplicate: Option<String>,
    /// Share of packets with a wrong bit
    #[arg(long, value_name = "SHARE", help_heading = LINK, value_parser = one("corrupt"))]
    pub corrupt: Option<String>,
    /// Share of packets that come late, SHARE or SHARE:TIME, or off
    #[arg(long, value_name = "LATE", help_heading = LINK, value_parser = one("reorder"))]
    pub reorder: Option<String>,
    /// Longest packet that the path takes, or off
    #[arg(long, value_name = "BYTES", help_heading = LINK, value_parser = one("path-mtu"))]
    pub path_mtu: Option<String>,
    /// What becomes of a longer one: answered (with ICMP) or silent
    #[arg(long, value_name = "HOW", help_heading = LINK, value_parser = one("too-big"))]
    pub too_big: Option<String>,
}

impl LabLinkArgs {
    /// What was given, by wanem's names.
    pub fn given(&self) -> Vec<(String, String)> {
        let all = [
            ("rtt", &self.rtt),
            ("delay", &self.delay),
            ("rate", &self.rate),
            ("rate-motion", &self.rate_motion),
            ("queue", &self.queue),
            ("codel", &self.codel),
            ("policer", &self.policer),
            ("ecn", &self.ecn),
            ("jitter", &self.jitter),
            ("loss", &self.loss),
            ("loss-place", &self.loss_place),
            ("burst-loss", &self.burst_loss),
            ("duplicate", &self.duplicate),
            ("corrupt", &self.corrupt),
            ("reorder", &self.reorder),
            ("path-mtu", &self.path_mtu),
            ("too-big", &self.too_big),
        ];
        all.into_iter()
            .filter_map(|(name, value)| value.as_ref().map(|value| (name.to_string(), value.clone())))
            .collect()
    }
}

impl LabBuildArgs {
    /// The lab that was asked for.
    pub fn plan(&self) -> LabPlan {
        let given: Vec<String> =
            self.link.given().iter().map(|(name, value)| format!("{name}={value}")).collect();
        let first = given.join(",");
        let mut links = vec![first.clone()];
        links.extend(self.links.iter().map(|own| format!("{first},{own}")));
        LabPlan {
            name: self.lab.clone(),
            links,
            hosts: self.hosts,
            mtu: self.mtu,
            seed: self.seed,
            tcp: self.tcp.clone(),
        }
    }
}

impl LabSetArgs {
    /// The change that was asked for.
    pub fn change(&self) -> LabChange {
        LabChange { link: self.only, changes: self.link.given(), cut: self.cut.clone() }
    }
}

/// A reader for the value of one of wanem's names.
fn one(name: &'static str) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync + 'static {
    move |text| {
        // A comma would begin another setting.
        if text.contains(',') {
            return Err("one value, without a comma".into());
        }
        let judged = LinkSettings::default().set(name, text);
        judged.map(|()| text.to_string()).map_err(|error| error.to_string())
    }
}

/// With the file's whole name: who reads it may be in another folder.
fn rate_motion(text: &str) -> Result<String, String> {
    one("rate-motion")(text)?;
    let mut settings = LinkSettings::default();
    settings.set("rate-motion", text).map_err(|error| error.to_string())?;
    Ok(format!("{}/{}", settings.forward.rate_motion, settings.backward.rate_motion))
}

fn settings(text: &str) -> Result<String, String> {
    LinkSettings::default().set_all(text).map(|()| text.to_string()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Verb};

    fn lab(arguments: &str) -> Result<LabVerb, clap::Error> {
        let words = ["farhaul", "lab"].into_iter().chain(arguments.split_whitespace());
        match Cli::try_parse_from(words)?.verb {
            Verb::Lab(lab) => Ok(lab.verb),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_setting_has_its_option() {
        for (name, form) in farhaul_wanem::NAMES {
            let value = form.split([',', ' ']).next().unwrap();
            let LabVerb::Set(set) = lab(&format!("set --{name} {value}")).unwrap() else { panic!("{name}") };
            let both = if *name == "rate-motion" { format!("{value}/{value}") } else { value.to_string() };
            assert_eq!(set.change().changes, [(name.to_string(), both)]);
        }
    }

    #[test]
    fn a_further_link_begins_with_what_the_first_one_is() {
        let LabVerb::Up(up) = lab("up --rtt 10ms --loss 1% --link loss=2%,rate=1g").unwrap() else {
            panic!()
        };
        let links = up.build.plan().checked().unwrap();
        assert_eq!((links[0].forward.loss, links[1].forward.loss), (0.01, 0.02));
        assert_eq!((links[0].rtt_ns(), links[1].rtt_ns()), (10_000_000, 10_000_000));
    }

    #[test]
    fn a_command_keeps_its_own_options() {
        let LabVerb::Run(run) = lab("run --rtt 1ms -- ls -l --color").unwrap() else { panic!() };
        assert_eq!(run.command, ["ls", "-l", "--color"]);
        let LabVerb::Run(run) = lab("run --rtt 1ms ping -c 3").unwrap() else { panic!() };
        assert_eq!(run.command, ["ping", "-c", "3"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "run",
            "run --loss 5 -- ls",
            "up --rtt 5",
            "up --rtt 1ms --delay 1ms",
            "exec c",
            "set --loss 1%,rate=1g",
            "set --jitter walk:5",
            "set --rate-motion trace:/no/such/file",
        ] {
            assert!(lab(text).is_err(), "{text}");
        }
    }
}
