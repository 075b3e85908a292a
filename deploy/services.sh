#!/bin/sh
# Makes sure that the tests have what they need, then runs the command given to it, if any:
#
#	deploy/services.sh                        check, and install what is missing
#	deploy/services.sh go test -race ./...    the same, then the tests
#
# Needed: Go as new as go.mod says, a C compiler (for -race), Postgres and Redis. The servers come
# from TEST_DATABASE_URL and TEST_REDIS_URL, from installed binaries, from apt (as root or `sudo
# -n`), from brew, or from a Docker engine: the first of these that works. It asks no questions, and
# says what it is about to install. It does not start the installed servers as system services or
# enable them at boot: the tests start private servers (shared/testkit). If nothing is missing, this
# takes no noticeable time. A Ctrl-C leaves nothing behind.
#
# TEST_PROGRAMS names programs that only some tests need, such as haproxy and chromium. Their
# packages must have the same names.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

say() { echo "services: $*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

fail() {
	say "$1"
	shift
	for line in "$@"; do echo "    $line" >&2; done
	exit 1
}

# cleanup also runs after a signal. sh runs no EXIT trap when a signal kills it, so the signals
# exit.
log='' containers=''
cleanup() {
	[ -z "$log" ] || rm -f "$log"
	[ -z "$containers" ] || docker rm --force --volumes $containers >/dev/null 2>&1
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# go_is_new reports whether the go command is as new as go.mod says. With GOTOOLCHAIN=auto, an older
# go command fetches a new toolchain, and `go env GOVERSION` prints the version of that toolchain.
go_is_new() {
	want=$(sed -n 's/^go //p' "$root/go.mod")
	have go || fail "Go $want or newer is needed and there is none. Install it from https://go.dev/dl/, for example:" \
		"curl -fsSL https://go.dev/dl/go$want.linux-amd64.tar.gz | tar -C \$HOME -xz" \
		"export PATH=\$HOME/go/bin:\$PATH"
	got=$(cd "$root" && go env GOVERSION | sed 's/^go//; s/[ -].*//')
	[ "$(printf '%s\n%s\n' "$want" "$got" | sort -V | head -n 1)" = "$want" ] ||
		fail "Go $want or newer is needed; this is $got. Install it from https://go.dev/dl/, or paste:" \
			"go env -w GOTOOLCHAIN=auto"
}

has_compiler() { have "$(go env CC)"; }

# shared/testkit searches the same directories besides PATH.
has_postgres() {
	[ -n "${TEST_DATABASE_URL:-}" ] && return
	{ have initdb && have postgres; } && return
	for dir in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql*/bin \
		/usr/local/opt/postgresql*/bin; do
		[ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] && return
	done
	return 1
}

has_redis() { [ -n "${TEST_REDIS_URL:-}" ] || have redis-server; }

# missing_programs also searches the directories in which Debian keeps programs for root.
missing_programs() {
	for name in ${TEST_PROGRAMS:-}; do
		(PATH=$PATH:/usr/sbin && have "$name") || echo "$name"
	done
}

# missing prints the Debian packages that are still needed.
missing() {
	has_compiler || echo gcc libc6-dev
	has_postgres || echo postgresql
	has_redis || echo redis-server
	missing_programs
}

# as_root runs its arguments as root without ever asking for a password.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi
}

quietly() {
	log=$(mktemp)
	status=0
	"$@" >"$log" 2>&1 || status=$?
	[ "$status" -eq 0 ] || tail -n 15 "$log" >&2
	rm -f "$log"
	log=
	return "$status"
}

# as_root_install runs as root: POLICY PACKAGES… . policy-rc.d keeps the packages' services from
# starting, which would take ports 5432 and 6379. Packages also enable their services at boot; the
# services installed here are disabled again. In Debian, a server's package and its service have the
# same name.
as_root_install='
	[ -e "$0" ] || {
		trap "rm -f $0" EXIT
		trap "exit 129" HUP
		trap "exit 130" INT
		trap "exit 143" TERM
		printf "#!/bin/sh\nexit 101\n" >"$0"
		chmod 755 "$0"
	}
	status=0
	export DEBIAN_FRONTEND=noninteractive
	apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@" || status=$?
	for service; do
		update-rc.d "$service" disable || true
		deb-systemd-helper disable "$service.service" || true
	done 2>/dev/null
	exit "$status"'

# Another apt may be at work: it is waited for.
apt_install() {
	quietly as_root apt-get -o DPkg::Lock::Timeout=300 update ||
		say "apt-get update failed; trying with the lists at hand"
	quietly as_root sh -c "$as_root_install" "${POLICY_RC_D:-/usr/sbin/policy-rc.d}" "$@" ||
		say "apt-get install failed"
}

brew_install() {
	has_postgres || quietly brew install postgresql@17 || say "brew install postgresql@17 failed"
	has_redis || quietly brew install redis || say "brew install redis failed"
	for name in $(missing_programs); do
		quietly brew install "$name" || say "brew install $name failed"
	done
}

# docker_run starts a container that ends with this script: docker_run NAME PORT ARGUMENTS… . It
# leaves the address in $address.
docker_run() {
	name=$1-$$ port=$2
	shift 2
	containers="$containers $name"
	quietly docker run --detach --rm --name "$name" --publish "127.0.0.1::$port" "$@" || return 1
	address=$(docker port "$name" "$port/tcp" | head -n 1)
}

docker_servers() {
	if ! has_postgres; then
		docker_run petgate-test-postgres 5432 --env POSTGRES_HOST_AUTH_METHOD=trust postgres:17-alpine \
			-c fsync=off -c max_connections=400 || return 1
		tries=0
		until docker exec "$name" pg_isready -h 127.0.0.1 -q; do
			tries=$((tries + 1))
			[ "$tries" -lt 60 ] || return 1
			sleep 1
		done
		export TEST_DATABASE_URL="postgres://postgres@$address/postgres?sslmode=disable"
	fi
	if ! has_redis; then
		docker_run petgate-test-redis 6379 redis:7-alpine || return 1
		export TEST_REDIS_URL="redis://$address"
	fi
}

go_is_new
packages=$(missing)

if [ -n "$packages" ] && have apt-get && { [ "$(id -u)" -eq 0 ] || { have sudo && sudo -n true 2>/dev/null; }; }; then
	say "about to install $(echo $packages) with apt-get, as root; no service of them starts now or at boot"
	apt_install $packages
fi
if [ -n "$(missing)" ] && have brew; then
	say "about to install $(echo $(missing)) (Debian's names) with brew"
	brew_install
fi
if { ! has_postgres || ! has_redis; } && have docker && docker version >/dev/null 2>&1; then
	say "about to start containers of postgres:17-alpine and redis:7-alpine, as needed, until this command ends"
	docker_servers || say "the Docker engine could not start the servers"
fi

packages=$(missing)
if [ -n "$packages" ]; then
	if have brew; then
		fail "still missing: $(echo $packages). Paste:" \
			"xcode-select --install; brew install postgresql@17 redis${TEST_PROGRAMS:+ $TEST_PROGRAMS}"
	elif have apt-get; then
		fail "missing: $(echo $packages), and neither root, sudo without a password nor Docker to get it. Paste:" \
			"sudo apt-get update && sudo apt-get install -y --no-install-recommends $(echo $packages)"
	fi
	fail "missing (Debian's names): $(echo $packages). Install them with your package manager, or set" \
		"export TEST_DATABASE_URL=postgres://user:password@host/postgres TEST_REDIS_URL=redis://host:6379"
fi

[ $# -gt 0 ] || exit 0
cd "$root"
[ -n "$containers" ] || exec "$@" # nothing is left to clean up, so the command itself gets the signals
"$@"
