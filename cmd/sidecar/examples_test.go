package main

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v2"

	"streams-sidecar/internal/server"
	"streams-sidecar/internal/shutdown"
)

// manifest is what the tests need of a Kubernetes object.
type manifest struct {
	Kind     string
	Metadata struct {
		Name string
	}
	StringData map[string]string `yaml:"stringData"` // of a Secret
	Spec       struct {
		ServiceName string `yaml:"serviceName"`
		Ports       []struct {
			Port string
		}
		Template struct {
			Metadata struct {
				Annotations map[string]string
			}
			Spec pod
		}
		VolumeClaimTemplates []struct {
			Metadata struct {
				Name string
			}
		} `yaml:"volumeClaimTemplates"`
	}
}

type pod struct {
	Grace           string `yaml:"terminationGracePeriodSeconds"`
	ShareProcesses  bool   `yaml:"shareProcessNamespace"`
	SecurityContext struct {
		RunAsNonRoot bool `yaml:"runAsNonRoot"`
		RunAsUser    int  `yaml:"runAsUser"`
		FSGroup      int  `yaml:"fsGroup"`
		Seccomp      struct {
			Type string
		} `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	InitContainers []container `yaml:"initContainers"`
	Containers     []container
	Volumes        []struct {
		Name   string
		Secret struct {
			SecretName string `yaml:"secretName"`
		}
	}
}

type container struct {
	RestartPolicy string `yaml:"restartPolicy"`
	Args          []string
	Lifecycle     struct {
		PreStop call `yaml:"preStop"`
	}
	Startup   *call `yaml:"startupProbe"`
	Liveness  *call `yaml:"livenessProbe"`
	Readiness *call `yaml:"readinessProbe"`
	Resources struct {
		Requests, Limits map[string]string
	}
	SecurityContext struct {
		RunAsUser       *int  `yaml:"runAsUser"`
		ReadOnly        bool  `yaml:"readOnlyRootFilesystem"`
		AllowEscalation *bool `yaml:"allowPrivilegeEscalation"`
		Capabilities    struct {
			Drop, Add []string
		}
	} `yaml:"securityContext"`
	Mounts []struct {
		Name string
		Path string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

// call is what the kubelet asks, as a hook or as a probe.
type call struct {
	Get struct {
		Path    string
		Port    string // of a number the text
		Headers []struct {
			Name, Value string
		} `yaml:"httpHeaders"`
	} `yaml:"httpGet"`
}

func (c *container) mount(volume string) string {
	for _, m := range c.Mounts {
		if m.Name == volume {
			return m.Path
		}
	}
	return ""
}

// inComments are the lines of the example that somebody may bring to life.
var inComments = regexp.MustCompile(`(?m)^( *)# ((?:- --|traffic\.|config\.| *(?:startupProbe|livenessProbe|httpGet|path|port|periodSeconds|failureThreshold):).*)$`)

// TestExample: the StatefulSet in deploy/examples agrees with itself and with
// the command line, as it is and with what stands in its comments.
func TestExample(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", "examples", "statefulset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const signal = "- --prestop-trigger=signal\n"
	text := string(data)
	if strings.Count(text, signal) != 1 || len(inComments.FindAllString(text, -1)) != 16 {
		t.Fatalf("the example has other options than this test knows: %q", inComments.FindAllString(text, -1))
	}
	other := inComments.ReplaceAllString(strings.Replace(text, signal, "\n", 1), "$1$2")
	for _, c := range []struct {
		name, text, trigger string
	}{{"as it is", text, shutdown.TriggerSignal}, {"with its comments", other, shutdown.TriggerHTTP}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := parseExample(t, c.text)
			e.checkPod(t)
			run := e.checkSidecar(t, c.trigger)
			e.checkCalls(t, run)
		})
	}
}

type example struct {
	secret, service, set manifest
	pod                  pod
	app, sidecar         container
}

func parseExample(t *testing.T, text string) *example {
	t.Helper()
	e := &example{}
	kinds := map[string]*manifest{"Secret": &e.secret, "Service": &e.service, "StatefulSet": &e.set}
	strict, loose := yaml.NewDecoder(strings.NewReader(text)), yaml.NewDecoder(strings.NewReader(text))
	strict.SetStrict(true)
	for n := 0; ; n++ {
		var any map[string]any // with SetStrict, no key may be there twice
		var m manifest
		err := strict.Decode(&any)
		if errors.Is(err, io.EOF) {
			if n != len(kinds) {
				t.Fatalf("%d documents", n)
			}
			break
		}
		if err := errors.Join(err, loose.Decode(&m)); err != nil {
			t.Fatal(err)
		}
		if kinds[m.Kind] == nil {
			t.Fatalf("a document of kind %q", m.Kind)
		}
		*kinds[m.Kind] = m
	}
	e.pod = e.set.Spec.Template.Spec
	if len(e.pod.Containers) != 1 || len(e.pod.InitContainers) != 1 || len(e.set.Spec.VolumeClaimTemplates) != 1 {
		t.Fatalf("%+v", e.pod)
	}
	e.app, e.sidecar = e.pod.Containers[0], e.pod.InitContainers[0]
	return e
}

// checkPod: the restricted Pod Security Standard, one user, one volume.
func (e *example) checkPod(t *testing.T) {
	t.Helper()
	s := e.pod.SecurityContext
	if !s.RunAsNonRoot || s.RunAsUser == 0 || s.FSGroup == 0 || s.Seccomp.Type != "RuntimeDefault" || !e.pod.ShareProcesses {
		t.Errorf("the pod has %+v", s)
	}
	for name, c := range map[string]container{"application": e.app, "sidecar": e.sidecar} {
		s := c.SecurityContext
		if !s.ReadOnly || s.RunAsUser != nil || s.AllowEscalation == nil || *s.AllowEscalation ||
			!slices.Equal(s.Capabilities.Drop, []string{"ALL"}) || s.Capabilities.Add != nil {
			t.Errorf("the %s has %+v", name, s)
		}
		if len(c.Resources.Limits) == 0 || !maps.Equal(c.Resources.Requests, c.Resources.Limits) {
			t.Errorf("the %s has %+v", name, c.Resources)
		}
	}
	state := e.set.Spec.VolumeClaimTemplates[0].Metadata.Name
	if at := e.app.mount(state); at == "" || at != e.sidecar.mount(state) {
		t.Errorf("the volume is at %q in the application and at %q in the sidecar", at, e.sidecar.mount(state))
	}
	if e.sidecar.RestartPolicy != "Always" || e.sidecar.Readiness != nil || e.sidecar.Startup == nil || e.set.Spec.ServiceName != e.service.Metadata.Name {
		t.Errorf("%+v, service %s", e.sidecar, e.set.Spec.ServiceName)
	}
}

// checkSidecar gives its arguments to the command line itself, with the token's
// file where the test can read it.
func (e *example) checkSidecar(t *testing.T, trigger string) *runCmd {
	t.Helper()
	// The Secret as the kubelet mounts it.
	var secret string
	for _, v := range e.pod.Volumes {
		if v.Secret.SecretName == e.secret.Metadata.Name {
			secret = e.sidecar.mount(v.Name)
		}
	}
	if secret == "" || len(e.secret.StringData) != 1 || e.app.mount("prestop-token") != "" {
		t.Fatalf("the sidecar, and it alone, must mount the Secret: %+v", e.sidecar.Mounts)
	}
	mounted := t.TempDir()
	for key, value := range e.secret.StringData {
		write(t, filepath.Join(mounted, key), value)
	}
	args := slices.Clone(e.sidecar.Args)
	for i, a := range args {
		args[i] = strings.Replace(a, "="+secret+"/", "="+mounted+"/", 1)
	}
	var c cli
	parser, err := kong.New(&c, kong.Exit(func(int) {}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		t.Fatalf("%q: %v", e.sidecar.Args, err)
	}
	if err := c.Run.check(); err != nil {
		t.Fatal(err)
	}
	cfg, err := c.Run.gate(c.Run.paths())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Trigger != trigger || (cfg.HTTP != nil) != (trigger == shutdown.TriggerHTTP) || cfg.Token == nil {
		t.Errorf("trigger %s, URL %v, token %v; want %s", cfg.Trigger, cfg.HTTP, cfg.Token, trigger)
	}
	headers := e.app.Lifecycle.PreStop.Get.Headers
	if len(headers) != 1 || headers[0].Name != server.TokenHeader || !cfg.Token.Matches(headers[0].Value) {
		t.Errorf("the hook's headers %+v do not carry the Secret's %+v", headers, e.secret.StringData)
	}
	if d, err := time.ParseDuration(e.pod.Grace + "s"); err != nil || d != cfg.Grace {
		t.Errorf("the pod's grace period is %s s, the sidecar's %v", e.pod.Grace, cfg.Grace)
	}
	if paths := c.Run.paths(); len(paths) != 1 || paths[0] != e.app.mount(e.set.Spec.VolumeClaimTemplates[0].Metadata.Name) {
		t.Errorf("the sidecar looks at %q", paths)
	}
	p := newPrestopAdvice(&cfg, c.Run.PrestopTokenFile)
	if advice := p.atStart(); len(advice) > 0 {
		t.Errorf("the sidecar would warn: %+v", advice)
	}
	return &c.Run
}

// checkCalls: whatever the kubelet and Prometheus ask is there.
func (e *example) checkCalls(t *testing.T, run *runCmd) {
	t.Helper()
	a := startAgent(t, "--state-dir", t.TempDir())
	asks := func(what, listen, base, port, path string) {
		t.Helper()
		if _, p, err := net.SplitHostPort(listen); err != nil || p != port {
			t.Errorf("%s asks port %s, the sidecar listens on %s", what, port, listen)
		}
		resp, err := http.Get(base + path) //nolint:noctx // bounded by the test
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s answers %d", what, path, resp.StatusCode)
		}
	}
	for what, c := range map[string]*call{
		"the hook": &e.app.Lifecycle.PreStop, "the sidecar's startupProbe": e.sidecar.Startup, "its livenessProbe": e.sidecar.Liveness,
		"the application's startupProbe": e.app.Startup, "its own livenessProbe": e.app.Liveness,
	} {
		if c != nil {
			asks(what, run.HookListen, a.hook, c.Get.Port, c.Get.Path)
		}
	}
	notes := e.set.Spec.Template.Metadata.Annotations
	asks("Prometheus", run.Listen, strings.TrimSuffix(a.metrics, "/metrics"), notes["prometheus.io/port"], notes["prometheus.io/path"])
	if len(e.service.Spec.Ports) != 1 || e.service.Spec.Ports[0].Port != notes["prometheus.io/port"] || notes["prometheus.io/scrape"] != "true" {
		t.Errorf("the Service has %+v, the pod %+v", e.service.Spec.Ports, notes)
	}
	for _, mesh := range []string{"traffic.sidecar.istio.io/excludeInboundPorts", "config.linkerd.io/skip-inbound-ports"} {
		if port, ok := notes[mesh]; ok && port != e.app.Lifecycle.PreStop.Get.Port {
			t.Errorf("%s is %s", mesh, port)
		}
	}
}
