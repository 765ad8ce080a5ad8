//! The options of `farhaul tunnel`.

use std::ffi::OsString;

use clap::Args as Group;

use super::network::NetworkArgs;
use super::{ConnectionArgs, EXIT_CODES};

const WAYS: &str = "Ways";

/// Carry connections of TCP to and from another host, as ssh -L, -R and -D do
#[derive(Group, Debug)]
#[command(after_help = format!("The host is [user@]host over SSH, or fh://host[:port] at a daemon, which must allow it (tunnel= before your \
key in its list). Ports are listened on at the loopback interface unless BIND says more; * is all addresses, and port 0 lets the system choose. The \
tunnel lasts until Ctrl-C; a lost session is begun again.\n\n{EXIT_CODES}"))]
pub struct TunnelArgs {
    /// The other host
    #[arg(value_name = "HOST")]
    pub host: OsString,
    /// Listen here, and let the other host connect to HOST:PORT; may be repeated
    #[arg(short = 'L', long = "local", value_name = "[BIND:]PORT:HOST:PORT", help_heading = WAYS)]
    pub local: Vec<String>,
    /// Listen on the other host, and connect from here to HOST:PORT; may be repeated
    #[arg(short = 'R', long = "remote", value_name = "[BIND:]PORT:HOST:PORT", help_heading = WAYS)]
    pub remote: Vec<String>,
    /// Listen here as a SOCKS 5 proxy, whose clients say where the other host is to connect to; may be repeated
    #[arg(short = 'D', long = "dynamic", value_name = "[BIND:]PORT", help_heading = WAYS)]
    pub dynamic: Vec<String>,
    #[command(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Print what happens as lines of JSON on stdout
    #[arg(long, help_heading = WAYS)]
    pub json: bool,
    /// Print errors only
    #[arg(short = 'q', long, help_heading = WAYS)]
    pub quiet: bool,
}
