//go:build e2e

package docs

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
)

// prepare is what the pages say must be there, in bash. It runs in namespaces of its own: the
// directories of the system and the ports are those of a new host. today has the date that the
// pages show.
const prepare = `
set -euo pipefail
mount -t tmpfs none "$SCRATCH"
mkdir "$SCRATCH"/{upper,work,today}
mount -t overlay -o lowerdir=/etc,upperdir="$SCRATCH/upper",workdir="$SCRATCH/work" none /etc
mkdir -p /etc/petgate && printf '127.0.0.1 localhost db\n' >/etc/hosts
mount -t tmpfs none /var/backups
printf '#!/bin/sh\necho 2026-03-01\n' >"$SCRATCH/today/date" && chmod +x "$SCRATCH/today/date"
PATH="$SCRATCH/today:$PATH"
cd "$PETGATE"
ready() { for _ in $(seq 3000); do "$@" && return; sleep 0.1; done; echo "not ready: $*"; exit 1; }
`

// The commands of the pages are executed as they are written, from top to bottom, each block in a
// shell of its own.
func TestCommands(t *testing.T) {
	all, ran := pages(t), map[string]bool{}
	tree := t.TempDir()
	copying := exec.Command("sh", "-c",
		`tar -C ../.. --exclude=./.git --exclude=./var --exclude=./bin --exclude=./dist -c . | tar -C "$0" -x`, tree)
	if out, err := copying.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	path := os.Getenv("PATH")
	for _, program := range []string{"gateway", "petsvc", "keyadmin"} {
		path = filepath.Dir(testkit.Build(t, "petgate/"+program)) + ":" + path
	}
	run := func(namespaces, script string, pages ...string) {
		t.Helper()
		postgres := testkit.StartPostgres(t)
		at := must.Get[*url.URL](t)(url.Parse(postgres.URL))
		show := exec.Command("psql", "-Atc", "SHOW unix_socket_directories", postgres.URL)
		socket := strings.TrimSpace(string(must.Get[[]byte](t)(show.Output())))
		text := prepare + script
		for _, page := range pages {
			ran[page] = true
			for _, b := range commands(all["../../"+page]) {
				if !b.isRun() {
					continue
				}
				in := `"$(mktemp -d)" && ln -s "$PETGATE"/* .`
				usesTree := strings.Contains(b.text, "make ") || strings.Contains(b.text, "bin/keyadmin")
				if usesTree || page == "README.md" {
					in = `"$PETGATE"`
				}
				end := "\n)\n"
				if strings.HasPrefix(b.text, "make run") { // until all blocks were run
					end = "\n) & ready sh -c 'curl -fs 127.0.0.1:9090/readyz && test -x bin/keyadmin' >/dev/null\n"
				}
				text += "echo '== " + page + "'\n( cd " + in + "\n" + b.text + end
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		text += "kill -TERM -1 || true\nwait || true\necho everything was run"
		arguments := append(strings.Fields(namespaces), "--kill-child", "bash", "-c", text)
		cmd := exec.CommandContext(ctx, "unshare", arguments...)
		cmd.Env = append(os.Environ(), "PATH="+path, "PETGATE="+tree, "PETGATE_URL=http://127.0.0.1:8080",
			"SCRATCH="+t.TempDir(), "USER=anna", "HOME="+os.Getenv("HOME"),
			"PGSOCKET="+socket+"/.s.PGSQL."+at.Port(), "PGHOST="+at.Hostname(),
			"PGPORT="+at.Port(), "PGUSER=postgres", "PGSSLMODE=disable")
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil || !strings.Contains(string(out), "everything was run") {
			t.Fatalf("%s: %v", pages, err)
		}
	}
	run("--map-root-user --mount --net --pid --fork", `ip link set lo up`+"\n", "README.md", "docs/api.md",
		"shared/api/clients/go/README.md", "shared/api/clients/typescript/README.md")
	run("--map-root-user --mount --pid --fork", `
export DATABASE_URL="sqlite:$PETGATE/var/petgate.db"
for role in petgate petsvc; do psql -qc "CREATE ROLE $role LOGIN" postgres; done
createdb -O petgate petgate && createdb -O petsvc pets
DATABASE_URL=postgres://petgate@db/petgate keyadmin migrate
DATABASE_URL=postgres://petsvc@db/pets PETSVC_LISTEN=unix:$SCRATCH/pets PETSVC_ADMIN_LISTEN=unix:$SCRATCH/admin \
	petsvc >"$SCRATCH/pets.log" 2>&1 &
ready psql -qc 'SELECT FROM pets' pets 2>/dev/null
kill %1
openssl rand -hex 32 > /etc/petgate/backup_key
keyadmin backup "$PETGATE/petgate.backup"
# A person at a terminal, who says yes.
printf '#!/bin/sh\necho y | script -qefc "%s $*" /dev/null\n' "$(command -v keyadmin)" >"$SCRATCH/today/keyadmin"
chmod +x "$SCRATCH/today/keyadmin" && hash -r
`, "docs/backup.md")
	run("--map-root-user --mount --net --pid --fork", "ip link set lo up; rm -r var; cp shared/api/openapi.yaml .\n",
		"docs/your-api.md")
	run("--map-root-user --mount --net --pid --fork", "ip link set lo up; rm -rf var\n", "docs/operators-api.md")
	run("--map-root-user --mount --net --pid --fork", ". deploy/docs/testdata/newhost\n", "docs/day-one.md")
	for path, text := range all {
		for _, b := range commands(text) {
			if page := strings.TrimPrefix(path, "../../"); b.isRun() && !ran[page] {
				t.Errorf("%s has commands that this test does not run:\n%s", page, b.text)
			}
		}
	}
}
