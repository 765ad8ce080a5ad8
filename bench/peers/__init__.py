"""The tools with which Farhaul is compared, one file for each tool or family.

How to read it: `peer` has the base class of a tool; each other file has subclasses; `PEERS` is the list. A
new tool is a class with its options and the place in its documentation that recommends them, added to
`PEERS`.
"""

from . import farhaul, gridftp, http, openssh, quic, rclone, rsync, srt, udt, uftp, xrootd, yardsticks

PEERS = [
    farhaul.OverSsh(), farhaul.ToDaemon(), farhaul.ToDaemon(flows=2), farhaul.ToDaemon(flows=3),
    farhaul.ToDaemon(flows=4), farhaul.ToDaemon(cipher="none"), farhaul.ToDaemon(mtu=1492),
    openssh.Scp(), openssh.Sftp(), openssh.Tar(),
    rsync.OverSsh(), rsync.ToDaemon(),
    gridftp.Default(), gridftp.Tuned(),
    xrootd.Default(), xrootd.Streams(),
    http.Curl(), http.Aria2(), http.Squid(),
    rclone.Sftp(), rclone.Http(), rclone.Webdav(),
    udt.Udt(), uftp.Uftp(), uftp.Sealed(), srt.Srt(), quic.Quinn("cubic", 4433), quic.Quinn("bbr", 4434),
    yardsticks.Iperf3(), yardsticks.Iperf3(streams=4), yardsticks.Nuttcp(),
]

#: systemd units that Debian's packages bring and enable; `./x bench install` disables those that it has
#: installed.
SERVICES = {
    "globus-gridftp-server-progs": ["globus-gridftp-server", "globus-gridftp-sshftp"],
    "nginx-light": ["nginx"], "squid": ["squid"], "uftp": ["uftp"], "iperf3": ["iperf3"], "nuttcp": ["nuttcp.socket"],
    "rsync": ["rsync"], "xrootd-server": ["xrootd@clustered", "xrootd@standalone"],
}

#: Packages that draw the plots of the report.
REPORT_PACKAGES = ["python3-matplotlib"]


def by_name(name):
    return next((peer for peer in PEERS if peer.name == name), None)
