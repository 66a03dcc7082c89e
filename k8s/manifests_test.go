// Package k8s holds the manifests, and this test of them and of docker/: that they are what Kubernetes
// takes, and that they name only commands, flags, variables, ports and paths that the program has.
package k8s

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/lienstream/lienstream/cmd/lienstream/roles"
	"github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// program is what the binary says of its commands and flags.
type program struct {
	commands []string
	flags    map[string]string // to their defaults
}

func readProgram(t *testing.T) program {
	t.Helper()
	p := program{commands: roles.Commands(), flags: map[string]string{}}
	for _, f := range roles.Listing() {
		p.flags[f.Name] = f.Default
	}
	return p
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// variable: LIENSTREAM_KAFKA_PREFIX is the flag --kafka-prefix.
func (p program) variable(t *testing.T, where, name string) {
	t.Helper()
	flag, ours := strings.CutPrefix(name, "LIENSTREAM_")
	if !ours {
		return
	}
	if _, ok := p.flags[strings.ToLower(strings.ReplaceAll(flag, "_", "-"))]; !ok {
		t.Errorf("%s: no flag is set by %s", where, name)
	}
}

// args are a command, perhaps with a subcommand, and flags.
func (p program) args(t *testing.T, where string, args []string) {
	t.Helper()
	if len(args) == 0 || !slices.Contains(p.commands, args[0]) {
		t.Fatalf("%s: %v begins with no command of %v", where, args, p.commands)
	}
	for _, arg := range args[1:] {
		name, isFlag := strings.CutPrefix(arg, "--")
		name, _, _ = strings.Cut(name, "=")
		if _, ok := p.flags[name]; isFlag && !ok {
			t.Errorf("%s: there is no flag --%s", where, name)
		}
	}
}

// port is the default of a flag that is an address.
func (p program) port(flag string) string {
	return p.flags[flag][strings.LastIndex(p.flags[flag], ":")+1:]
}

// services are the ports of a serving node: the ops port, and those of all services, by their flags' names. They
// listen on all addresses, as only the read API does besides.
func (p program) services() map[string]string {
	ports := map[string]string{}
	for flag, listen := range p.flags {
		if name, ok := strings.CutSuffix(flag, "-addr"); ok && strings.HasPrefix(listen, ":") && name != "query" {
			ports[name] = p.port(flag)
		}
	}
	return ports
}

// objects decodes every object of the base, strictly: a field that the API has not is an error.
func objects(t *testing.T) map[string]any {
	t.Helper()
	var base struct{ Resources []string }
	if err := yaml.Unmarshal([]byte(read(t, "kustomization.yaml")), &base); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) != len(base.Resources)+1 {
		t.Fatalf("kustomization.yaml names %v, there are %v: %v", base.Resources, files, err)
	}
	all := map[string]any{}
	for _, file := range base.Resources {
		documents := yaml.NewDecoder(strings.NewReader(read(t, file)))
		for {
			var document map[string]any
			if err := documents.Decode(&document); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			kind, _ := document["kind"].(string)
			kinds := map[string]any{
				"v1 Namespace": new(corev1.Namespace), "v1 ConfigMap": new(corev1.ConfigMap), "v1 Service": new(corev1.Service),
				"apps/v1 Deployment": new(appsv1.Deployment), "apps/v1 StatefulSet": new(appsv1.StatefulSet),
				"batch/v1 Job": new(batchv1.Job), "policy/v1 PodDisruptionBudget": new(policyv1.PodDisruptionBudget),
				"networking.k8s.io/v1 NetworkPolicy": new(networkingv1.NetworkPolicy),
			}
			version, _ := document["apiVersion"].(string)
			object := kinds[version+" "+kind]
			if object == nil {
				t.Fatalf("%s: %s %s is not known", file, version, kind)
			}
			text, err := json.Marshal(document)
			if err != nil {
				t.Fatal(err)
			}
			strict := json.NewDecoder(bytes.NewReader(text))
			strict.DisallowUnknownFields()
			if err := strict.Decode(object); err != nil {
				t.Fatalf("%s: %s: %v", file, kind, err)
			}
			name, _ := document["metadata"].(map[string]any)["name"].(string)
			all[kind+"/"+name] = object
		}
	}
	return all
}

func TestManifests(t *testing.T) {
	p := readProgram(t)
	all := objects(t)
	for name := range all["ConfigMap/lienstream"].(*corev1.ConfigMap).Data {
		p.variable(t, "ConfigMap/lienstream", name)
	}
	ingest := all["Deployment/ingest"].(*appsv1.Deployment)
	serving := all["Deployment/serving"].(*appsv1.Deployment)
	processors := all["StatefulSet/processors"].(*appsv1.StatefulSet)
	job := all["Job/topics"].(*batchv1.Job)
	pods := map[string]*corev1.PodTemplateSpec{
		"ingest": &ingest.Spec.Template, "serving": &serving.Spec.Template, "processors": &processors.Spec.Template, "topics": &job.Spec.Template,
	}
	ports := map[string]map[string]string{
		"ingest":     {"ops": p.port("ops-addr")},
		"serving":    p.services(),
		"processors": {"ops": p.port("ops-addr"), "query": p.port("query-addr")},
		"topics":     {},
	}
	if share := fmt.Sprintf("--agent-nodes=%d", *serving.Spec.Replicas); !slices.Contains(serving.Spec.Template.Spec.Containers[0].Args, share) {
		t.Errorf("serving has %v, not %s", serving.Spec.Template.Spec.Containers[0].Args, share)
	}
	for name, pod := range pods {
		hardened(t, name, pod.Spec)
		c := pod.Spec.Containers[0]
		if c.Args[0] != name {
			t.Errorf("%s runs %v", name, c.Args)
		}
		p.args(t, name, c.Args)
		for _, env := range c.Env {
			p.variable(t, name, env.Name)
		}
		for _, port := range c.Ports {
			if want := ports[name][port.Name]; want != itoa(port.ContainerPort) {
				t.Errorf("%s: port %s is %d, the program has %s", name, port.Name, port.ContainerPort, want)
			}
		}
		if len(c.Ports) != len(ports[name]) {
			t.Errorf("%s: ports %v, the program has %v", name, c.Ports, ports[name])
		}
		if name == "topics" {
			continue
		}
		probed(t, name, c)
		if pdb, ok := all["PodDisruptionBudget/"+name].(*policyv1.PodDisruptionBudget); !ok || pdb.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != name {
			t.Errorf("%s has no budget", name)
		}
	}
	for _, name := range []string{"processors", "serving"} {
		service := all["Service/"+name].(*corev1.Service)
		if name == "serving" && len(service.Spec.Ports) != len(ports[name])-1 {
			t.Errorf("service %s has %d ports, the program %v without ops", name, len(service.Spec.Ports), ports[name])
		}
		for _, port := range service.Spec.Ports {
			if ports[name][port.TargetPort.String()] != itoa(port.Port) {
				t.Errorf("service %s: port %d to %s", name, port.Port, port.TargetPort.String())
			}
		}
	}
	for _, name := range []string{"ingest", "serving", "processors"} {
		policed(t, name, all["NetworkPolicy/"+name], ports[name])
	}
	headless(t, p, processors, all["Service/processors"].(*corev1.Service))
	config := all["ConfigMap/lienstream"].(*corev1.ConfigMap).Data
	for name, pod := range map[string]corev1.PodSpec{"processors": processors.Spec.Template.Spec, "serving": serving.Spec.Template.Spec} {
		notifies(t, name, pod, config)
	}
	takesReports(t, &serving.Spec.Template.Spec, &processors.Spec.Template.Spec, config, all)
}

// takesReports: the files of the support service are where the pods that read them have them mounted, and who may answer
// is a list that the processors have.
func takesReports(t *testing.T, serving, processors *corev1.PodSpec, config map[string]string, all map[string]any) {
	t.Helper()
	for flag, pod := range map[string]*corev1.PodSpec{
		"SUPPORT_TOKEN_KEYS_FILE": serving, "SUPPORT_TEXT_KEYS_FILE": serving, "RELAYER_KEY_FILE": serving, "SUPPORT_STAFF_FILE": processors,
	} {
		file := config["LIENSTREAM_"+flag]
		i := slices.IndexFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.ReadOnly && filepath.Dir(file) == m.MountPath
		})
		if i < 0 {
			t.Errorf("%s: %q is mounted nowhere: %v", flag, file, pod.Containers[0].VolumeMounts)
			continue
		}
		named := pod.Containers[0].VolumeMounts[i].Name
		v := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == named })]
		switch {
		case v.Secret != nil:
			if v.Secret.SecretName != "lienstream-support" || v.Secret.Optional == nil || !*v.Secret.Optional {
				t.Errorf("%s comes from %v", flag, v.Secret)
			}
		default:
			list, ok := all["ConfigMap/"+v.ConfigMap.Name].(*corev1.ConfigMap)
			if !ok {
				t.Fatalf("%s comes from %s, which is not there", flag, v.ConfigMap.Name)
			}
			text, ok := list.Data[filepath.Base(file)]
			if staff, err := support.ParseRoster(text); !ok || err != nil || staff == nil || len(staff) > 0 {
				t.Errorf("the staff of the base are %q: %v %v", text, staff, err)
			}
		}
	}
}

// notifies: the secrets that the configuration names files of are where the pod has them mounted.
func notifies(t *testing.T, name string, pod corev1.PodSpec, config map[string]string) {
	t.Helper()
	mounted := slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == "notifier" && m.ReadOnly && strings.HasPrefix(config["LIENSTREAM_NOTIFY_KEYS_FILE"], m.MountPath+"/")
	})
	if !mounted {
		t.Errorf("%s mounts %v, the keys are %s", name, pod.Containers[0].VolumeMounts, config["LIENSTREAM_NOTIFY_KEYS_FILE"])
	}
	for _, v := range pod.Volumes {
		if v.Name != "notifier" {
			continue
		}
		if v.Secret == nil || v.Secret.SecretName != "lienstream-notifier" {
			t.Errorf("%s: the notifier's secrets come from %v", name, v)
		}
		if name == "serving" && (len(v.Secret.Items) != 1 || v.Secret.Items[0].Path != "notify-keys") {
			t.Errorf("serving gets %v, and needs the keys alone", v.Secret.Items)
		}
	}
}

// policed: a policy of the pods opens ports that they have, and to strangers none but the services'.
func policed(t *testing.T, name string, object any, ports map[string]string) {
	t.Helper()
	policy, ok := object.(*networkingv1.NetworkPolicy)
	if !ok || policy.Spec.PodSelector.MatchLabels["app.kubernetes.io/name"] != name || !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
		t.Fatalf("%s has no policy of who may connect", name)
	}
	closed := maps.Clone(ports)
	for _, rule := range policy.Spec.Ingress {
		for _, port := range rule.Ports {
			opened := port.Port.String()
			delete(closed, opened)
			if ports[opened] == "" {
				t.Errorf("policy %s opens %s, which is no port", name, opened)
			}
			if inside := opened == "ops" || opened == "query"; inside && len(rule.From) == 0 {
				t.Errorf("policy %s opens %s to everybody", name, opened)
			}
		}
	}
	if len(closed) > 0 {
		t.Errorf("policy %s opens %v to nobody", name, closed)
	}
}

func itoa(n int32) string { b, _ := json.Marshal(n); return string(b) }

// hardened: not root, nothing to gain, nothing to write to but what is mounted.
func hardened(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	s, c := pod.SecurityContext, pod.Containers[0].SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 || s.SeccompProfile == nil {
		t.Errorf("%s may run as root: %v", name, s)
	}
	if c == nil || c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem || c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation ||
		c.Capabilities == nil || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("%s may do more than it needs: %v", name, c)
	}
	if pod.Containers[0].Resources.Limits.Memory().IsZero() {
		t.Errorf("%s has no limit of memory", name)
	}
}

// probed: by the paths that the ops port has.
func probed(t *testing.T, name string, c corev1.Container) {
	t.Helper()
	ops := httpapi.NewOps(prometheus.NewRegistry())
	for what, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
		want := "/healthz"
		if what == "readiness" {
			want = "/readyz"
		}
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != want || probe.HTTPGet.Port.String() != "ops" {
			t.Errorf("%s: %s probe is %v", name, what, probe)
		}
		answer := httptest.NewRecorder()
		if ops.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, want, nil)); answer.Code != http.StatusOK {
			t.Errorf("the ops port answers %s with %d", want, answer.Code)
		}
	}
}

// headless: the address that a processor advertises is the one that its service gives it.
func headless(t *testing.T, p program, set *appsv1.StatefulSet, service *corev1.Service) {
	t.Helper()
	if service.Spec.ClusterIP != corev1.ClusterIPNone || set.Spec.ServiceName != service.Name {
		t.Errorf("service %q of the set is not %q without an IP", set.Spec.ServiceName, service.Name)
	}
	env := map[string]string{}
	for _, e := range set.Spec.Template.Spec.Containers[0].Env {
		env[e.Name] = e.Value
	}
	if want := "$(LIENSTREAM_INSTANCE)." + service.Name + ":" + p.port("query-addr"); env["LIENSTREAM_ADVERTISE"] != want {
		t.Errorf("advertises %s, it is reached at %s", env["LIENSTREAM_ADVERTISE"], want)
	}
	mounts := set.Spec.Template.Spec.Containers[0].VolumeMounts // the others are read only
	if len(mounts) == 0 || slices.ContainsFunc(mounts[1:], func(m corev1.VolumeMount) bool { return !m.ReadOnly }) || mounts[0].MountPath != env["LIENSTREAM_DATA_DIR"] || mounts[0].Name != set.Spec.VolumeClaimTemplates[0].Name {
		t.Errorf("data goes to %s, mounted is %v", env["LIENSTREAM_DATA_DIR"], mounts)
	}
}

func TestCompose(t *testing.T) {
	p := readProgram(t)
	var file struct {
		Services map[string]struct {
			Build       struct{ Target string }
			Command     []string
			Environment map[string]any
			ReadOnly    bool `yaml:"read_only"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "../docker/compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	dockerfile := read(t, "../docker/Dockerfile")
	for name, s := range file.Services {
		if s.Build.Target == "" {
			continue // not ours
		}
		if !strings.Contains(dockerfile, " AS "+s.Build.Target+"\n") {
			t.Errorf("%s: the Dockerfile has no stage %s", name, s.Build.Target)
		}
		p.args(t, name, s.Command)
		for variable := range s.Environment {
			p.variable(t, name, variable)
		}
		if !s.ReadOnly {
			t.Errorf("%s may write to its root", name)
		}
	}
	for name, wants := range map[string][]string{
		"processors-0": {"SUPPORT_STAFF_FILE", "NOTIFY_PUBLIC_URL", "APP_URL"}, "processors-1": {"SUPPORT_STAFF_FILE", "NOTIFY_PUBLIC_URL", "APP_URL"},
		"serving": {
			"NOTIFY_PUBLIC_URL",
			"PAYMENT_RPC", "PAYMENT_TO", "SUPPORT_PUBLIC_URL", "SUPPORT_TOKEN_KEYS_FILE", "SUPPORT_TEXT_KEYS_FILE", "RELAYER_KEY_FILE",
			"FACILITATOR", "FACILITATOR_KEY_FILE", "FLOAT_ADDRESS",
		},
	} {
		for _, flag := range wants {
			if _, ok := file.Services[name].Environment["LIENSTREAM_"+flag]; !ok {
				t.Errorf("%s cannot be told %s", name, flag)
			}
		}
	}
	if at := file.Services["processors-0"].Environment["LIENSTREAM_ADVERTISE"]; at != "processors-0:"+p.port("query-addr") {
		t.Errorf("processors-0 advertises %v", at)
	}
}

func TestDockerfile(t *testing.T) {
	p := readProgram(t)
	text := read(t, "../docker/Dockerfile")
	for _, m := range regexp.MustCompile(`LIENSTREAM_[A-Z_]+`).FindAllString(text, -1) {
		p.variable(t, "Dockerfile", m)
	}
	for _, must := range []string{"-extldflags -static", "USER 65532:65532"} {
		if !strings.Contains(text, must) {
			t.Errorf("the Dockerfile has no %s", must)
		}
	}
}

// TestTheAgentAPINamesItsPublicURL: without the variable agent.json names an address that only the pod has.
func TestTheAgentAPINamesItsPublicURL(t *testing.T) {
	var config corev1.ConfigMap
	first, _, _ := strings.Cut(read(t, "config.yaml"), "\n---\n")
	if err := yaml.Unmarshal([]byte(first), &config); err != nil {
		t.Fatal(err)
	}
	if u := config.Data["LIENSTREAM_AGENT_URL"]; !strings.HasPrefix(u, "https://") {
		t.Errorf("LIENSTREAM_AGENT_URL is %q", u)
	}
}
