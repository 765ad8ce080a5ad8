"""What packages do on the host beside laying down files: the user, the state directory, and word to systemd."""

import textwrap

#: Makes the user and the state directory. Without systemd-sysusers (a container), useradd does it.
MAKE_USER = """\
if ! getent passwd farhaul >/dev/null; then
    if command -v systemd-sysusers >/dev/null; then
        {sysusers}
    else
        useradd --system --user-group --home-dir /var/lib/farhaul --no-create-home \\
            --shell /usr/sbin/nologin --comment "Farhaul data transfer node" farhaul
    fi
fi
"""
MAKE_STATE = "install -d -m 0700 -o farhaul -g farhaul /var/lib/farhaul\n"
#: Restarts a service that runs. It gives running transfers `drain` of its configuration to end by themselves; a second
#: signal ends that wait. As all of them go on with the new version, they get three seconds here, and the new version is
#: there within ten. `{restart}` is the command that restarts the service.
RESTART = """\
{restart} >/dev/null 2>&1 &
restart=$!
for second in 1 2 3; do
    sleep 1
    kill -0 $restart 2>/dev/null || break
done
if [ "$(systemctl show --property=ActiveState --value farhaul.service)" = deactivating ]; then
    kill -TERM "$(systemctl show --property=MainPID --value farhaul.service)" 2>/dev/null || true
fi
wait $restart || true
"""


def indented(script: str, spaces: int) -> str:
    return textwrap.indent(script, " " * spaces)


DEB = {
    "postinst": """\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
"""
    + MAKE_USER.format(sysusers="systemd-sysusers farhaul.conf")
    + MAKE_STATE
    + """\
fi
# Nothing is started or enabled that the operator has not: `systemctl enable --now farhaul`. An upgrade gives units that were
# enabled the links of the new version.
if command -v deb-systemd-helper >/dev/null; then
    for unit in farhaul.service farhaul.socket; do
        if deb-systemd-helper debian-installed $unit; then
            deb-systemd-helper unmask $unit >/dev/null || true
            if deb-systemd-helper --quiet was-enabled $unit; then
                deb-systemd-helper enable $unit >/dev/null || true
            fi
        fi
        deb-systemd-helper update-state $unit >/dev/null || true
    done
fi
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
    # After an upgrade a service that runs goes on with the new version.
    if [ "$1" = configure ] && [ -n "$2" ] && systemctl is-active --quiet farhaul.service; then
"""
    + indented(RESTART.format(restart="deb-systemd-invoke restart farhaul.service"), 8)
    + """\
    fi
fi
""",
    "prerm": """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop farhaul.service farhaul.socket >/dev/null || true
fi
""",
    "postrm": """\
#!/bin/sh
set -e
if [ "$1" = remove ]; then
    # The unit keeps it for the socket's unit while it runs and when it does not.
    rm -rf /run/farhaul
    if [ -d /run/systemd/system ]; then
        systemctl --system daemon-reload >/dev/null || true
    fi
fi
if [ "$1" = purge ]; then
    if command -v deb-systemd-helper >/dev/null; then
        deb-systemd-helper purge farhaul.service farhaul.socket >/dev/null || true
    fi
    # Jobs, history and keys of the service. Keys that the operator has put into /etc/farhaul stay, and so does the
    # user, who may own files elsewhere.
    rm -rf /var/lib/farhaul
    rmdir --ignore-fail-on-non-empty /etc/farhaul 2>/dev/null || true
fi
""",
}

RPM = {
    "pre": MAKE_USER.format(
        sysusers="printf 'u farhaul - \"Farhaul data transfer node\" /var/lib/farhaul /usr/sbin/nologin\\n' | systemd-sysusers -"
    ),
    "post": MAKE_STATE
    + """\
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null 2>&1 || :
    if [ "$1" -gt 1 ] && systemctl is-active --quiet farhaul.service; then
"""
    + indented(RESTART.format(restart="systemctl try-restart farhaul.service"), 8)
    + """\
    fi
fi
""",
    "preun": """\
if [ "$1" -eq 0 ] && [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now farhaul.service farhaul.socket >/dev/null 2>&1 || :
fi
""",
    "postun": """\
if [ "$1" -eq 0 ]; then
    rm -rf /run/farhaul
fi
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null 2>&1 || :
fi
""",
}
