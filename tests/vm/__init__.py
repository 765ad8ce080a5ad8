"""Guests: whole systems of Debian 11, 12 and 13, each with its own kernel and systemd as pid 1, started by qemu.

How to read it: `releases` has the table of systems. `image` makes a root and a kernel for one, once. `initrd` makes the small
system that finds the root. `accelerator` finds out whether this machine's /dev/kvm runs a kernel. `guest` starts, asks, cuts
the power of and ends a guest; `agent` is how it is asked. `__main__` is `./x vm`.

Always true: a guest writes to a layer of its own over the image, so each starts from the same state. At most one guest runs at
a time in a source tree, with low priority, and none outlives the process that has started it.
"""
