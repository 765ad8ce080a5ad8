"""What the matrix measures: links, data, how many clients, which tools.

From: the systems that Farhaul wants to equal were measured at these distances and losses (50 ms/0.1 %, 100 ms/1 %,
500 ms/5 %), by file size (the size below which a tool no longer fills the link), and with many clients at once.
"""

import dataclasses

from link import Profile

GBIT = 1_000_000_000
MIB = 1 << 20
KIB = 1 << 10

LAN = Profile("LAN", 0.5, 0.0, GBIT)
COUNTRY = Profile("50ms-0.1%", 50, 0.001, GBIT)
OCEAN = Profile("100ms-1%", 100, 0.01, GBIT)
SATELLITE = Profile("500ms-5%", 500, 0.05, GBIT)
BAD = Profile("100ms-10%", 100, 0.10, GBIT)
WORSE = Profile("100ms-30%", 100, 0.30, GBIT)
PLAIN = Profile("veth")

#: Names that --profiles knows.
PROFILES = {profile.name: profile for profile in (
    LAN, COUNTRY, OCEAN, SATELLITE, BAD, WORSE, PLAIN,
    Profile("LAN-fast", 0.5, 0.0, None), Profile("50ms-fast", 50, 0.0, None), Profile("100ms-fast", 100, 0.0, None),
    Profile("50ms-0.1%-fast", 50, 0.001, None), Profile("100ms-1%-fast", 100, 0.01, None),
    Profile("50ms", 50, 0.0, GBIT), Profile("100ms", 100, 0.0, GBIT),
    Profile("LAN-jumbo", 0.5, 0.0, None, 9000), Profile("100ms-1%-jumbo", 100, 0.01, None, 9000))}

#: The five tools that nearly everybody has or can install.
STANDARD = ["farhaul daemon", "scp", "rsync ssh", "gridftp -p 4 -cc 4 -pp -fast", "nginx + aria2c -x16 -s16"]

#: One tool of each kind, for the curves over file size and over the number of clients.
CURVES = ["farhaul daemon", "farhaul ssh", "scp", "tar over ssh", "rsync ssh", "rsync daemon",
          "gridftp -p 4 -cc 4 -pp -fast", "xrdcp -S 15", "nginx + curl", "nginx + aria2c -x16 -s16",
          "squid + aria2c -x16 -s16", "rclone sftp", "uftp"]


@dataclasses.dataclass(frozen=True)
class Case:
    """One column of the matrix: the same data over the same link for every tool."""

    scenario: str
    profile: Profile
    size: int = 512 * MIB
    file_size: int | None = None
    clients: int = 1
    #: Each client runs as many commands at once as there are clients, as if each of them went to another
    #: server.
    all_to_all: bool = False
    storage: str = "memory"
    peers: tuple = ()  # all, if empty

    @property
    def commands(self):
        """How many commands run at once."""
        return self.clients ** 2 if self.all_to_all else self.clients

    @property
    def command_size(self):
        """How many bytes each command moves."""
        return self.size // self.clients if self.all_to_all else self.size

    @property
    def name(self):
        parts = [self.profile.name, f"{self.size // MIB} MiB"]
        if self.file_size is not None:
            parts.append(f"files of {size_text(self.file_size)}")
        if self.clients > 1:
            parts.append(f"{self.clients} clients" + (" to all" if self.all_to_all else ""))
        if self.storage != "memory":
            parts.append(self.storage)
        return ", ".join(parts)


def size_text(size):
    for unit, scale in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", KIB)):
        if size >= scale:
            return f"{size / scale:g} {unit}"
    return f"{size} B"


def standard():
    return [Case("distance", profile, peers=tuple(STANDARD)) for profile in (LAN, COUNTRY, OCEAN)]


def full():
    cases = [Case("distance", profile) for profile in (LAN, COUNTRY, OCEAN, SATELLITE, BAD, WORSE)]
    cases += [Case("distance", PROFILES[name], 2048 * MIB)
              for name in ("LAN-fast", "50ms-0.1%-fast", "100ms-1%-fast", "LAN-jumbo", "100ms-1%-jumbo")]
    cases += [Case("distance", PROFILES["LAN-fast"], 2048 * MIB, storage="disk")]
    sizes = (None, 64 * MIB, 8 * MIB, MIB, 64 * KIB, 8 * KIB)
    for name in ("LAN", "50ms", "100ms", "LAN-fast", "50ms-fast", "100ms-fast"):
        # The smallest files are 64 MiB together, 8192 files: for them the files a second count, not the
        # bytes.
        total = {8 * KIB: 64 * MIB}
        cases += [Case("file sizes", PROFILES[name], total.get(size, 256 * MIB), size, peers=tuple(CURVES)) for size in sizes]
    for name in ("LAN-fast", "50ms-0.1%"):
        cases += [Case("clients", PROFILES[name], 256 * MIB, clients=clients, peers=tuple(CURVES))
                  for clients in (1, 2, 4, 8)]
        cases += [Case("all to all", PROFILES[name], 256 * MIB, clients=clients, all_to_all=True, peers=tuple(CURVES))
                  for clients in (2, 4)]
    return cases
