# What the scripts here have in common. Sourced, never run.
# shellcheck shell=bash

set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

# One line on stderr, and the end.
die() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# Go keeps its caches below HOME; services and containers may start without it.
if [[ -z ${HOME:-} ]]; then
	unset HOME
	export HOME=~
fi

# Tools and downloads of this repository; never inside the checkout.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/streams-sidecar

# Where Go's own archive is usually unpacked, on machines that did not put it on the PATH.
if ! command -v go >/dev/null && [[ -x /usr/local/go/bin/go ]]; then
	PATH=$PATH:/usr/local/go/bin
fi

# go.mod names the Go that it needs, and any Go from 1.21 on fetches that one
# by itself, except where a distribution has switched that off by default.
export GOTOOLCHAIN=${GOTOOLCHAIN:-auto}

# The linter refuses code of a newer Go than it was built with, so its file
# name carries both versions: changing either builds it anew.
golangci_version=v2.15.0
go_minor=$(awk '$1 == "go" { split($2, v, "."); print v[1] "." v[2]; exit }' go.mod)
# shellcheck disable=SC2034 # used where this is sourced
golangci=$cache/bin/golangci-lint-$golangci_version-go$go_minor

# What is built for: this machine, or that of GOARCH, with Debian's compiler for it.
machine=$(uname -m)
case ${GOARCH:-} in
amd64) machine=x86_64 ;;
arm64) machine=aarch64 ;;
esac
if [[ $machine != "$(uname -m)" ]]; then
	export CC=${CC:-$machine-linux-gnu-gcc}
fi

# RocksDB's library and header, and how the one package that needs them finds
# them. No flag for this machine has an absolute path, so that Go's build cache
# holds for every checkout. The program looks for librocksdb.so beside itself, and
# no path of this machine gets into it.
rocksdb_version=10.10.1
rocksdb=$cache/rocksdb-$rocksdb_version-$machine
with_rocksdb() {
	local flags='-lrocksdb -Wl,-rpath,$ORIGIN'
	# Only gcc for its own machine looks at LIBRARY_PATH.
	[[ $machine == "$(uname -m)" ]] || flags="-L$rocksdb/lib $flags"
	CGO_ENABLED=1 C_INCLUDE_PATH=$rocksdb/include${C_INCLUDE_PATH:+:$C_INCLUDE_PATH} \
		LIBRARY_PATH=$rocksdb/lib${LIBRARY_PATH:+:$LIBRARY_PATH} \
		CGO_LDFLAGS=$flags "$@"
}
# The second is the binding's own: it adds no libraries to the linker's list.
# shellcheck disable=SC2034 # used where this is sourced
rocksdb_tags=rocksdb,grocksdb_no_link

# Prints "package name" for each test function of the module with that prefix.
targets() {
	go test -vet=off -list "^$1" ./... | awk -v prefix="^$1" '
		NF == 1 && $1 ~ prefix { names[n++] = $1 }
		$1 == "ok" { for (i = 0; i < n; i++) print $2, names[i]; n = 0 }'
}

# Installs packages where that needs no question: as root, or with a sudo that
# asks for no password.
apt_install() {
	command -v apt-get >/dev/null || return 1
	local as_root=()
	if ((EUID != 0)); then
		{ command -v sudo >/dev/null && sudo -n true; } 2>/dev/null || return 1
		as_root=(sudo -n)
	fi
	local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120)
	printf '%s: installing %s\n' "${0##*/}" "$*" >&2
	{ "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "$@"; } </dev/null >&2
}
