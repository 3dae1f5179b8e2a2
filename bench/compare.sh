#!/usr/bin/env bash
# Measures the ledger beside a PostgreSQL outbox, the same without a queue, and
# SQLite: builds all, starts everything on loopback in a temporary folder, runs
# the cells in turn, and prints per cell the ratio to the outbox.
#
#   bench/compare.sh --json
#   bench/compare.sh --rounds 1 --systems pg-outbox,opledger --callers 128
#   bench/compare.sh --help
#
# Needs Go, a C compiler (for SQLite) and PostgreSQL; root installs the latter
# from Debian if it is missing. --dir chooses the disk.
set -euo pipefail
cd "$(dirname "$0")"

# The distribution keeps the server's programs out of PATH.
postgres_bin() {
	local dir
	for dir in "$(dirname "$(command -v initdb || echo /none)")" $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV); do
		if [[ -x $dir/initdb && -x $dir/postgres ]]; then
			printf '%s\n' "$dir"
			return 0
		fi
	done
	return 1
}

if ! postgres=$(postgres_bin); then
	if [[ $EUID -ne 0 ]] || ! command -v apt-get >/dev/null; then
		echo "bench/compare.sh: PostgreSQL is missing: apt-get install postgresql" >&2
		exit 2
	fi
	apt-get update -qq >&2
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >&2
	postgres=$(postgres_bin)
fi

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/" ./cmd/...
(cd .. && go build -o "$bin/" ./cmd/opledger)
"$bin/compare" -bin "$bin" -contract provider.yaml -postgres "$postgres" "$@"
