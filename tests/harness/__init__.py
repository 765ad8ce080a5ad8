"""Two hosts on one machine, for running the real binary between them.

How to read it: `surroundings` keeps the machine's own programs and settings out of the tests; `hosts` makes
the hosts (network namespaces joined by a veth pair) and owns everything that has to be cleaned up; `ssh` puts
an OpenSSH server on one of them; `product` runs `farhaul cp` and `farhaul serve`; `trees` makes and compares
data; `packets` looks at, forges and repeats datagrams; `peer` is a second implementation of the wire (with
the ciphers of `seal`), and `play` puts it at one end of a session with the real binary at the other;
`sampling` watches memory; `hooks` makes a process fail on purpose.

Nothing in here leaves the namespaces: they have no route to anywhere else.
"""
