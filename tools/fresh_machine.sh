#!/bin/sh
# Proves the two commands of the README on a machine that has nothing: a clean Debian 12 root made by debootstrap.
#
#   tools/fresh_machine.sh [FOLDER]       (root; about 2 GB of disk)
#
# In that root: `make serve`, the printed curl line, whose answer must say Paris, then `make test`. Prints the minutes
# that each took and fails above 25.
set -eu
cd "$(dirname "$0")/.."
root=${1:-/tmp/sluice-fresh}
mirror=${SLUICE_MIRROR:-$(awk '/^(deb|URIs:)/ {for (i = 1; i <= NF; ++i) if ($i ~ /^https?:/) {print $i; exit}}' \
  /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null)}

command -v debootstrap >/dev/null || { echo "error: debootstrap is missing: apt-get install debootstrap" >&2; exit 2; }
cleanup() {
  for point in proc dev; do umount "$root/$point" 2>/dev/null || true; done
}
trap cleanup EXIT
cleanup
rm -rf "$root"
debootstrap --variant=minbase --include=make,git,curl,ca-certificates bookworm "$root" "$mirror" >/dev/null
cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
cp /etc/apt/sources.list "$root/etc/apt/sources.list" 2>/dev/null || true
rm -rf "$root/etc/apt/sources.list.d"
cp -r /etc/apt/sources.list.d "$root/etc/apt/" 2>/dev/null || true
mkdir -p "$root/etc/pip" && [ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/pip.conf"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
git clone -q . "$root/src/sluice"

in_root() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
  $(env | grep -iE '^(https?_proxy|no_proxy|pip_[a-z_]+)=' || true) chroot "$root" sh -c "cd /src/sluice && $1"; }
minutes() { echo "$(( ($(date +%s) - $1 + 59) / 60 ))"; }

start=$(date +%s)
in_root 'make serve >/tmp/serve.log 2>&1 & echo $! >/tmp/serve.pid
  for i in $(seq 1 1500); do
    curl -sf http://127.0.0.1:30000/ready >/dev/null && break
    kill -0 "$(cat /tmp/serve.pid)" 2>/dev/null || { cat /tmp/serve.log; exit 1; }
    sleep 1
  done
  grep -o "curl http.*" /tmp/serve.log | head -1 >/tmp/line.sh
  cat /tmp/line.sh
  sh /tmp/line.sh | tee /tmp/answer.json; echo
  pkill -TERM -x sluice || kill "$(cat /tmp/serve.pid)"
  grep -q Paris /tmp/answer.json'
serve=$(minutes "$start")
echo "make serve: right answer after $serve minutes"

start=$(date +%s)
in_root 'make test'
tests=$(minutes "$start")
echo "make test: passed in $tests minutes"
[ "$serve" -le 25 ] && [ "$tests" -le 25 ]
