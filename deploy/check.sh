#!/usr/bin/env bash
# Checks the files of this folder with the tools that will read them. A tool that
# is missing is a failure, not a skip:
#
#   apt-get install prometheus yamllint systemd shellcheck
#   go build -o /tmp/nats-server github.com/nats-io/nats-server/v2
#   NATS_SERVER=/tmp/nats-server deploy/check.sh
set -euo pipefail
cd "$(dirname "$0")"

for tool in promtool yamllint systemd-analyze "${NATS_SERVER:=nats-server}"; do
	command -v "$tool" >/dev/null || { echo "deploy/check.sh: $tool is missing" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "== promtool"
promtool check config prometheus/prometheus.yml
promtool check rules prometheus/rules.yml
promtool test rules prometheus/rules_test.yml

echo "== yamllint"
yamllint --strict -d '{extends: default, rules: {line-length: {max: 220}}}' .

echo "== systemd-analyze"
# Its exit code is 0 whatever it finds, so any output is a failure. The binary
# is not installed here; another one stands in its place.
sed 's#^ExecStart=.*#ExecStart=/bin/true#' opledger.service >"$work/opledger.service"
findings=$(systemd-analyze verify --man=no "$work/opledger.service" 2>&1)
if [ -n "$findings" ]; then
	echo "$findings" >&2
	exit 1
fi
systemd-analyze security --offline=true --threshold=20 --no-pager "$work/opledger.service" >"$work/security" ||
	{ cat "$work/security" >&2; exit 1; }
tail -n 1 "$work/security"

echo "== nats-server"
while read -r name; do export "$name=pcheck"; done < <(sed -n 's/^\([A-Z_]*\)=$/\1/p' env.example)
"$NATS_SERVER" -t -c nats.conf

echo "deploy/check.sh: all checks passed"
