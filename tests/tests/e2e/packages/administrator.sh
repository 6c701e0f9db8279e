# What an administrator does with the packages, without systemd. Ends at the first thing that is not as it should be.
set -eux
export HOME=/root DEBIAN_FRONTEND=noninteractive
mount -t proc proc /proc

service='setpriv --reuid holdfast --regid holdfast --init-groups env HOME=/'

serve() {
    # What an earlier one said must not count.
    : > /tmp/server.log
    $service holdfast-server serve >> /tmp/server.log 2>&1 &
    server=$!
    for _ in $(seq 600); do
        if grep -q '^ready$' /tmp/server.log; then return; fi
        kill -0 "$server" || { cat /tmp/server.log; exit 1; }
        sleep 0.2
    done
    cat /tmp/server.log
    exit 1
}

stop() {
    kill "$server"
    wait "$server"
}

# Install: user and folder are there without systemd, and secrets are root's.
dpkg --install /packages/first/holdfast-server_*.deb /packages/first/holdfast_*.deb > /tmp/install.log
cat /tmp/install.log
grep -q 'systemd does not run here' /tmp/install.log
test "$(stat -c '%U %a' /var/lib/holdfast)" = 'holdfast 700'
test "$(stat -c '%U %a' /etc/holdfast/server.env)" = 'root 600'
test -f /usr/lib/systemd/system/holdfast-server.service

# Start, join, back up, restore: no command is told where anything is.
serve
grep -q 'gRPC listening on 0.0.0.0:7440' /tmp/server.log
line=$($service holdfast-server token create --join --name hv1 --namespace default)
$line > /tmp/join.log 2>&1
test "$(stat -c '%U %a' /etc/holdfast/profile.toml)" = 'root 600'
grep -q '192.0.2.1:7440' /etc/holdfast/profile.toml
head -c 5000000 /dev/urandom > /disk.raw
holdfast backup --vm web /disk.raw
holdfast list --vm web | grep -q web
holdfast restore latest --vm web --to /restored.raw
cmp /disk.raw /restored.raw

# The agent by the clock: joining wrote its file and said what to start, for systemd does not run here.
test -f /usr/lib/systemd/system/holdfast-agent.service
test "$(stat -c '%U %a' /etc/holdfast/agent.toml)" = 'root 600'
grep -q "holdfast agent run" /tmp/join.log
printf '[[vm]]\nname = "*"\ndisks = ["/*.raw"]\n' >> /etc/holdfast/agent.toml
holdfast agent check
holdfast agent run --once
holdfast list --vm disk | grep -q disk

# Root's commands use the same settings, and leave the folder to its owner.
holdfast-server token list | grep -q hv1
holdfast-server health --ready
test -z "$(find /var/lib/holdfast ! -user holdfast)"
stop

# Upgrade: settings that were changed stay, as does the repository.
echo 'lease_secs = 77' >> /etc/holdfast/server.toml
dpkg --install --force-confold /packages/second/holdfast-server_*.deb /packages/second/holdfast_*.deb
dpkg-query --show | grep -q '^holdfast-server.0.1.1'
grep -q 'lease_secs = 77' /etc/holdfast/server.toml
serve
holdfast list --vm web | grep -q web
stop

# Removed, it leaves all that it did not bring. Installed again, it goes on.
dpkg --remove holdfast-server holdfast
test ! -e /usr/bin/holdfast-server
test -f /etc/holdfast/server.toml
test -f /var/lib/holdfast/catalog.db
dpkg --install /packages/second/holdfast-server_*.deb /packages/second/holdfast_*.deb
serve
holdfast restore latest --vm web --to /again.raw
cmp /disk.raw /again.raw
stop

# Purged, settings go, and the repository does not, until that is asked for in so many words.
dpkg --purge holdfast holdfast-server > /tmp/purge.log
cat /tmp/purge.log
test ! -e /etc/holdfast
grep -q 'is kept' /tmp/purge.log
test -f /var/lib/holdfast/catalog.db
dpkg --install /packages/second/holdfast-server_*.deb
touch /var/lib/holdfast/DELETE-ON-PURGE
dpkg --purge holdfast-server
test ! -e /var/lib/holdfast

# A volume elsewhere stays, and is named.
dpkg --install /packages/second/holdfast-server_*.deb
mkdir /elsewhere
touch /elsewhere/container
ln -s /elsewhere /var/lib/holdfast/blobs
touch /var/lib/holdfast/DELETE-ON-PURGE
dpkg --purge holdfast-server > /tmp/purge.log
grep -q 'rm -r /elsewhere' /tmp/purge.log
test ! -e /var/lib/holdfast
test -f /elsewhere/container

# Without a repository nothing stays.
dpkg --install /packages/second/holdfast-server_*.deb
dpkg --purge holdfast-server
test ! -e /var/lib/holdfast
echo 'ALL DONE'
