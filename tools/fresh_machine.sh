#!/bin/sh
# Proves the two commands of the README on a machine that has nothing: a clean Debian 12 root made by debootstrap.
#
#   tools/fresh_machine.sh [-w] [FOLDER]       (root; about 3 GB of disk; FOLDER is removed first)
#
# In that root: `make serve`, then the curl line that it prints, whose answer must say Paris, then `make test`. Prints the
# minutes that each took and fails above 25. The tree is the last commit; with -w it is the working tree.
set -eu
cd "$(dirname "$0")/.."
working=""
if [ "${1:-}" = "-w" ]; then working=yes; shift; fi
root=${1:-/tmp/sluice-fresh}
mirror=${SLUICE_MIRROR:-http://deb.debian.org/debian}
limit=25

[ "$(id -u)" = 0 ] || { echo "error: debootstrap and chroot need root" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "error: debootstrap is missing: apt-get install debootstrap" >&2; exit 2; }
unmount() {
  for point in dev/pts dev proc; do
    if mountpoint -q "$root/$point"; then umount "$root/$point" 2>/dev/null || umount --lazy "$root/$point"; fi
  done
}
trap unmount EXIT
# Never removes a folder in which something is still mounted.
unmount
rm -rf --one-file-system "$root"

echo "== a clean Debian 12 in $root"
debootstrap --variant=minbase --include=make,git,curl,ca-certificates bookworm "$root" "$mirror" >"$root.log" 2>&1 ||
  { tail -20 "$root.log"; exit 1; }
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -t devpts devpts "$root/dev/pts" 2>/dev/null || mount --bind /dev/pts "$root/dev/pts"

# What this machine's network needs: name service, apt's and pip's settings, certificates of its own.
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
[ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/pip.conf"
if ls /usr/local/share/ca-certificates/*.crt >/dev/null 2>&1; then
  cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/"
  chroot "$root" update-ca-certificates >/dev/null 2>&1
fi
settings=$(env | grep -iE '^(https?_proxy|no_proxy|pip_[a-z_]+)=' || true)

mkdir -p "$root/src/sluice"
if [ -n "$working" ]; then
  git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -cf - | tar -C "$root/src/sluice" -xf -
else
  git archive HEAD | tar -C "$root/src/sluice" -xf -
fi

in_root() {
  # shellcheck disable=SC2086
  env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 $settings chroot "$root" sh -c "cd /src/sluice && $1"
}
minutes() { echo "$(( ($(date +%s) - $1 + 59) / 60 ))"; }

echo "== make serve"
start=$(date +%s)
in_root '
  make serve >/tmp/serve.log 2>&1 &
  make_pid=$!
  for i in $(seq 1 1800); do
    curl -sf http://127.0.0.1:30000/ready >/dev/null && break
    kill -0 "$make_pid" 2>/dev/null || break
    sleep 1
  done
  cat /tmp/serve.log
  grep -o "curl .*http.*" /tmp/serve.log | head -1 >/tmp/line.sh
  [ -s /tmp/line.sh ] || { echo "error: make serve printed no curl line"; kill "$make_pid" 2>/dev/null; exit 1; }
  echo "== the line that it printed"
  cat /tmp/line.sh
  sh /tmp/line.sh | tee /tmp/answer.txt; echo
  # make waits for the server, which is its child.
  for stat in /proc/[0-9]*/stat; do
    read -r pid name state parent rest <"$stat" 2>/dev/null || continue
    [ "$parent" != "$make_pid" ] || kill -TERM "$pid"
  done
  wait "$make_pid" || true
  grep -q Paris /tmp/answer.txt'
serve=$(minutes "$start")
echo "make serve: a right answer within $serve minutes"

echo "== make test"
start=$(date +%s)
in_root 'make test'
tests=$(minutes "$start")
echo "make test: passed within $tests minutes"
[ "$serve" -le "$limit" ] && [ "$tests" -le "$limit" ] || { echo "error: more than $limit minutes" >&2; exit 1; }
