//go:build e2e

// Package kubernetes_test checks the kustomization, as the module render prints it.
package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"petgate/gateway/app"
	"petgate/shared/service"
	"petgate/shared/testkit"
	"petgate/shared/testkit/must"
	"petgate/shared/trace"
)

// partOf is the label of every pod.
const partOf = "app.kubernetes.io/part-of"

// object has the fields that the tests look at. The module render has checked all fields.
type object struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Data map[string]string
	Spec struct {
		Replicas       int
		Selector       json.RawMessage // a Service has labels here, a Deployment matchLabels
		Template       struct{ pod }
		MaxUnavailable *int

		PodSelector struct{ MatchLabels map[string]string }
		PolicyTypes []string
		Ingress     []struct {
			From  []any
			Ports []struct{ Port any }
		}
		Egress []any
	}
}

type pod struct {
	Metadata struct{ Labels map[string]string }
	Spec     podSpec
}

type podSpec struct {
	AutomountServiceAccountToken, EnableServiceLinks *bool
	TerminationGracePeriodSeconds                    int
	SecurityContext                                  map[string]any
	TopologySpreadConstraints                        []struct{ TopologyKey string }
	Containers                                       []container
	Volumes                                          []struct {
		Name   string
		Secret *struct{ SecretName string }
	}
}

type container struct {
	Name, Image     string
	Args            []string
	Ports           []struct{ Name, ContainerPort any }
	Env             []struct{ Name, Value string }
	EnvFrom         []struct{ ConfigMapRef struct{ Name string } }
	SecurityContext map[string]any
	VolumeMounts    []struct {
		Name, MountPath string
		ReadOnly        bool
	}
	StartupProbe, ReadinessProbe, LivenessProbe *probe
}

type probe struct {
	HTTPGet                                         struct{ Path, Port string }
	PeriodSeconds, TimeoutSeconds, FailureThreshold int
}

// notices is how long a failure takes to be noticed, in the worst case.
func (p *probe) notices() time.Duration {
	return time.Duration(p.PeriodSeconds*p.FailureThreshold+max(p.TimeoutSeconds, 1)) * time.Second
}

// render returns the objects of a kustomization. Unknown kinds and fields are errors.
func render(t *testing.T, path string) []byte {
	t.Helper()
	cmd := exec.Command("go", "run", "-C", "../../shared/testkit/render", ".",
		filepath.Join("../../../deploy/kubernetes", path))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("render %s: %v", path, err)
	}
	return out
}

func objects(t *testing.T, path string) []object {
	t.Helper()
	var all []object
	must.Do(t, json.Unmarshal(render(t, path), &all))
	return all
}

func named(all []object, kind, name string) (found *object) {
	for i, o := range all {
		if o.Kind == kind && (o.Metadata.Name == name || strings.HasPrefix(o.Metadata.Name, name+"-")) {
			found = &all[i]
		}
	}
	return found
}

func TestKustomizations(t *testing.T) {
	for path, gateways := range map[string]int{"base": 1, "example": 3} {
		all := objects(t, path)
		for _, program := range []string{"gateway", "petsvc"} {
			deployment := named(all, "Deployment", "petgate-"+program)
			config := named(all, "ConfigMap", "petgate-"+program)
			if deployment == nil || config == nil {
				t.Fatalf("%s has no Deployment or no ConfigMap of %s", path, program)
			}
			checkDeployment(t, path+": "+program, program, deployment, config)
			checkBudget(t, path, all, deployment)
		}
		if g := named(all, "Deployment", "petgate-gateway"); g.Spec.Replicas != gateways {
			t.Errorf("%s: %d gateways, want %d", path, g.Spec.Replicas, gateways)
		}
		job := named(all, "Job", "petgate-migrate")
		if job == nil || !slices.Equal(job.Spec.Template.Spec.Containers[0].Args, []string{"migrate"}) {
			t.Fatalf("%s has no Job that migrates", path)
		}
		checkSafe(t, path+": migrate", job.Spec.Template.Spec)
		checkNetwork(t, path, all)
	}
}

func TestPodOfKeyadmin(t *testing.T) {
	var pods []pod
	must.Do(t, json.Unmarshal(render(t, "keyadmin.json"), &pods))
	checkSafe(t, "keyadmin.json", pods[0].Spec)
}

func checkDeployment(t *testing.T, what, program string, deployment, config *object) {
	t.Helper()
	spec := deployment.Spec.Template.Spec
	checkSafe(t, what, spec)
	if len(spec.TopologySpreadConstraints) != 2 {
		t.Errorf("%s: pods are not spread over hosts and zones", what)
	}
	c := spec.Containers[0]
	must.Equal(t, c.EnvFrom[0].ConfigMapRef.Name, config.Metadata.Name, "%s: the settings come from", what)
	if c.StartupProbe == nil || c.ReadinessProbe == nil || c.LivenessProbe == nil {
		t.Fatalf("%s: a probe is missing", what)
	}
	for path, probes := range map[string][]*probe{
		"/healthz": {c.StartupProbe, c.LivenessProbe},
		"/readyz":  {c.ReadinessProbe},
	} {
		for _, p := range probes {
			if p.HTTPGet.Path != path || p.HTTPGet.Port != "admin" {
				t.Errorf("%s: a probe gets %s at the port %s, want %s at admin", what, p.HTTPGet.Path, p.HTTPGet.Port,
					path)
			}
		}
	}

	prefix := strings.ToUpper(program) + "_"
	settings := service.Settings{
		DrainDelay: duration(t, config, prefix+"DRAIN_DELAY"),
		DrainLimit: duration(t, config, prefix+"DRAIN_LIMIT"),
	}
	least := settings.DrainMax() + trace.CloseMax
	if program == "gateway" {
		least = settings.DrainMax() + app.SignOffMax
	}
	if grace := time.Duration(spec.TerminationGracePeriodSeconds) * time.Second; grace <= least {
		t.Errorf("%s: killed after %v, and may need %v to drain and end", what, grace, least)
	}
	if notices := c.ReadinessProbe.notices(); notices >= settings.DrainDelay {
		t.Errorf("%s: the readiness probe may take %v, which is not less than the drain delay %v", what, notices,
			settings.DrainDelay)
	}
	checkSettings(t, what, program, c, config)
}

func duration(t *testing.T, config *object, name string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(config.Data[name])
	if err != nil {
		t.Fatalf("%s: %s: %v", config.Metadata.Name, name, err)
	}
	return d
}

// checkSettings lets the program check the settings of its pod.
func checkSettings(t *testing.T, what, program string, c container, config *object) {
	t.Helper()
	settings := maps.Clone(config.Data)
	for _, variable := range c.Env {
		settings[variable.Name] = strings.ReplaceAll(variable.Value, "$(POD_IP)", "10.0.0.1")
	}
	delete(settings, "POD_IP")
	contents := map[string]string{
		"database_url": "postgres://db/petgate", "redis_url": "redis://redis:6379", "upstream_secret": "0123456789abcdef0123456789abcdef",
	}
	dir := t.TempDir()
	var env []string
	for name, value := range settings {
		if file, ok := strings.CutPrefix(value, "/run/petgate/"); ok {
			value = filepath.Join(dir, file)
			must.Do(t, os.WriteFile(value, []byte(contents[file]), 0o600))
		}
		env = append(env, name+"="+value)
	}
	path := testkit.Build(t, "petgate/"+program)
	check := testkit.Start(t, path, env, "--check", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0")
	if code := check.ExitCode(t); code != 0 {
		t.Errorf("%s: --check of its settings: exit code %d\n%s", what, code, check.Stderr)
	}
	help := testkit.Start(t, path, nil, "--help")
	help.ExitCode(t)
	for name := range settings {
		if !regexp.MustCompile(`\b` + strings.TrimSuffix(name, "_FILE") + `\b`).MatchString(help.Stdout.String()) {
			t.Errorf("%s: %s is not a setting of %s", what, name, program)
		}
	}
	ports := map[any]any{}
	for _, port := range c.Ports {
		ports[port.Name] = port.ContainerPort
	}
	prefix := strings.ToUpper(program)
	for name, setting := range map[string]string{"http": prefix + "_LISTEN", "admin": prefix + "_ADMIN_LISTEN"} {
		if _, port, err := net.SplitHostPort(settings[setting]); err != nil || fmt.Sprint(ports[name]) != port {
			t.Errorf("%s: the port %s is %v, and %s is %s", what, name, ports[name], setting, settings[setting])
		}
	}
}

// checkSafe checks that a pod has no more rights than its program needs, and no user of its own:
// some clusters choose the user.
func checkSafe(t *testing.T, what string, spec podSpec) {
	t.Helper()
	got := must.Get[[]byte](t)(json.Marshal([]any{spec.SecurityContext, spec.Containers[0].SecurityContext}))
	want := `[{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},` +
		`{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"readOnlyRootFilesystem":true}]`
	if string(got) != want {
		t.Errorf("%s: the security contexts are\n%s, want\n%s", what, got, want)
	}
	for _, given := range []*bool{spec.AutomountServiceAccountToken, spec.EnableServiceLinks} {
		if given == nil || *given {
			t.Errorf("%s: it gets a token of the cluster, or variables of other services", what)
		}
	}
	for _, mount := range spec.Containers[0].VolumeMounts {
		if mount.Name == "secrets" && !mount.ReadOnly {
			t.Errorf("%s: the secrets can be written", what)
		}
	}
}

func checkBudget(t *testing.T, path string, all []object, deployment *object) {
	t.Helper()
	budget, srv := named(all, "PodDisruptionBudget", deployment.Metadata.Name), named(all, "Service",
		deployment.Metadata.Name)
	if budget == nil || budget.Spec.MaxUnavailable == nil || *budget.Spec.MaxUnavailable != 1 || srv == nil {
		t.Fatalf("%s: %s has no Service, or its pods may all be evicted at a time", path, deployment.Metadata.Name)
	}
	labels := deployment.Spec.Template.Metadata.Labels
	for _, selector := range []json.RawMessage{budget.Spec.Selector, deployment.Spec.Selector, srv.Spec.Selector} {
		var inner struct{ MatchLabels map[string]string }
		_ = json.Unmarshal(selector, &inner) // a Service has labels without matchLabels
		if inner.MatchLabels == nil {
			_ = json.Unmarshal(selector, &inner.MatchLabels)
		}
		if len(inner.MatchLabels) != 2 {
			t.Errorf("%s: %s: the selector %s", path, deployment.Metadata.Name, selector)
		}
		for name, value := range inner.MatchLabels {
			if labels[name] != value {
				t.Errorf("%s: %s selects %s=%s, and its pods have %v", path, deployment.Metadata.Name, name, value,
					labels)
			}
		}
	}
}

// checkNetwork checks that every pod is closed, and that an admin port is open to named pods or
// namespaces only.
func checkNetwork(t *testing.T, path string, all []object) {
	t.Helper()
	closed := named(all, "NetworkPolicy", "petgate-closed")
	if closed == nil || len(closed.Spec.PolicyTypes) != 2 || len(closed.Spec.Ingress)+len(closed.Spec.Egress) != 0 ||
		len(closed.Spec.PodSelector.MatchLabels) != 1 {
		t.Fatalf("%s: no policy closes the pods: %+v", path, closed)
	}
	observed := false
	for _, o := range all {
		if o.Kind == "Deployment" || o.Kind == "Job" {
			if got := o.Spec.Template.Metadata.Labels[partOf]; got != closed.Spec.PodSelector.MatchLabels[partOf] ||
				got == "" {
				t.Errorf("%s: %s is not closed: %s=%s", path, o.Metadata.Name, partOf, got)
			}
		}
		for _, ingress := range o.Spec.Ingress {
			if len(ingress.Ports) != 1 {
				t.Errorf("%s: %s opens %v", path, o.Metadata.Name, ingress.Ports)
				continue
			}
			if ingress.Ports[0].Port == "admin" && len(ingress.From) != 1 {
				t.Errorf("%s: %s opens an admin port to all", path, o.Metadata.Name)
			}
			observed = observed || o.Metadata.Name == "petgate-observe" && ingress.Ports[0].Port == "admin"
		}
	}
	if wanted := path == "example"; observed != wanted {
		t.Errorf("%s: the monitoring reaches the admin ports: %t, want %t", path, observed, wanted)
	}
}
