# Two hosts in one guest: the guest itself, and a network namespace `far` behind 10 ms of round trip. `far` has a daemon that
# serves /srv/data as the user `mover`, and sshd. Run again after each boot: what lies on the disk stays.
# The program is /share/farhaul; it is kept at the place that the first argument names, by default in the PATH.
set -e
program=${1:-/usr/local/bin/farhaul}
[ -x "$program" ] || install -m 755 /share/farhaul "$program"

ip link set lo up
ip netns add far
ip link add near0 type veth peer name far0 netns far
ip addr add 10.9.0.1/24 dev near0
ip link set near0 up
ip -n far addr add 10.9.0.2/24 dev far0
ip -n far link set far0 up
ip -n far link set lo up
tc qdisc add dev near0 root netem delay 10ms limit 10000

if ! [ -e /srv/keys ]; then
    echo "10.9.0.2 far" >>/etc/hosts
    useradd --system --create-home mover
    install -d -o mover /srv/data
    "$program" keygen 2>/dev/null
    ssh-keygen -q -t ed25519 -N "" -f /root/.ssh/id_ed25519
    cp /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys
    printf 'Host far\nStrictHostKeyChecking accept-new\nLogLevel ERROR\n' >/root/.ssh/config
    install -m 644 /root/.config/farhaul/id_ed25519.pub /srv/keys
    sync
fi

within="-p NetworkNamespacePath=/run/netns/far"
systemd-run -q --unit=far-daemon -p Type=notify -p User=mover $within \
    "$program" serve --root /srv/data --authorized-keys /srv/keys --state /home/mover/state --mask 000
systemd-run -q --unit=far-sshd -p RuntimeDirectory=sshd $within /usr/sbin/sshd -D
