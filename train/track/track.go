// Package track tells other programs of a run: TensorBoard, MLflow, Prometheus, Kubeflow, a webhook. A tracker that is
// slow, dead or refuses can neither stop nor slow the run: each has a bounded queue and a goroutine of its own.
package track

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/tierlora/tierlora/internal/safetext"
)

// Config is the `tracking:` section of a run's YAML. Credentials are read from the environment alone.
type Config struct {
	// Experiment is what the run is filed under: MLflow's experiment, the project of Weights & Biases and Trackio, a
	// field of webhooks.
	Experiment string `yaml:"experiment,omitempty" resume:"free"`
	// RunName is the run's name in trackers; empty is the name of output_dir.
	RunName string `yaml:"run_name,omitempty" resume:"free"`
	// Tags are names and values that trackers show with the run.
	Tags map[string]string `yaml:"tags,omitempty" resume:"free"`
	// MLflowURL is the address of an MLflow server; empty takes MLFLOW_TRACKING_URI from the environment.
	MLflowURL string `yaml:"mlflow_url,omitempty" form:"address" resume:"free"`
	// WebhookURL gets a POST for each event; empty takes TRACKING_WEBHOOK_URL from the environment. A run's files and
	// reports show its host alone.
	WebhookURL string `yaml:"webhook_url,omitempty" form:"address" resume:"free"`
	// MetricsFile is the file that report_to: prometheus writes; empty is metrics.prom in output_dir. Its name ends in
	// .prom, and a file that is there is replaced only where a run wrote it.
	MetricsFile string `yaml:"metrics_file,omitempty" form:"path.prom" resume:"free"`
	// MetricsAddr is a loopback address, such as 127.0.0.1:9400, where report_to: prometheus serves /metrics besides.
	MetricsAddr string `yaml:"metrics_addr,omitempty" form:"loopback" resume:"free"`
}

// Validate returns every problem of the section, each naming its key.
func (c Config) Validate() []error {
	var problems []error
	for _, u := range []struct{ key, text string }{{"tracking.mlflow_url", c.MLflowURL}, {"tracking.webhook_url", c.WebhookURL}} {
		if u.text == "" {
			continue
		}
		if _, err := address(u.key, u.text); err != nil {
			problems = append(problems, err)
		}
	}
	if c.MetricsFile != "" {
		if err := checkMetricsFile(c.MetricsFile); err != nil {
			problems = append(problems, fmt.Errorf("tracking.metrics_file: %w", err))
		}
	}
	if c.MetricsAddr != "" {
		if err := loopback(c.MetricsAddr); err != nil {
			problems = append(problems, fmt.Errorf("tracking.metrics_addr: %w", err))
		}
	}
	return problems
}

// address reads an http or https URL. The error never repeats the text, which may hold a secret.
func address(from, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%s: is not an address such as https://host:port/path", from)
	case u.User != nil:
		return nil, fmt.Errorf("%s: has a user name or password in it, which would be saved with the run; set them in the environment (docs/TRACKERS.md)", from)
	}
	return u, nil
}

// Saved is the section as a run's files show it, which are read, reported and pushed by others: addresses of webhooks
// without their paths, tags and names without secrets. A run that is resumed from it takes the address of its webhook from
// the environment.
func (c Config) Saved() Config {
	if c.WebhookURL != "" && !local(c.WebhookURL) {
		c.WebhookURL = safetext.Address(c.WebhookURL)
	}
	c.MLflowURL, c.Experiment, c.RunName = safetext.Mask(c.MLflowURL), safetext.Mask(c.Experiment), safetext.Mask(c.RunName)
	c.Tags = maps.Clone(c.Tags)
	for name, value := range c.Tags {
		c.Tags[name] = safetext.Mask(value)
	}
	return c
}

// local tells whether an address is one of this machine, whose path tells others nothing.
func local(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.RawQuery != "" || u.User != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// hidden tells whether an address is what Saved left of one.
func hidden(address string) bool { return strings.HasSuffix(address, "/"+safetext.Hidden) }

func loopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT, such as 127.0.0.1:9400", addr)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("%q is not a loopback address; write 127.0.0.1:PORT, and put a proxy before it where others must read it", addr)
	}
	return nil
}

// Run is what a tracker knows of the run that it follows.
type Run struct {
	Config
	Dir    string                   // its output folder
	Total  int                      // optimizer steps
	Done   int                      // of them, before this start
	Text   string                   // the effective configuration, YAML
	Params []Param                  // the same, key by key
	Getenv func(name string) string // the environment, where credentials are
}

// Param is a key of the configuration and its value.
type Param struct{ Key, Value string }

// Metric is a number with its name in metrics.jsonl.
type Metric struct {
	Name  string
	Value float64
}

// Metrics are the numbers of an event; in JSON they are an object, with null for what is not finite.
type Metrics []Metric

// MarshalJSON keeps the order.
func (m Metrics) MarshalJSON() ([]byte, error) {
	b := bytes.NewBufferString("{")
	for i, x := range m {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(x.Name)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		value := []byte("null")
		if finite(x.Value) {
			if value, err = json.Marshal(x.Value); err != nil {
				return nil, err
			}
		}
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// mergeMetrics replaces the values of known names and adds new ones behind.
func mergeMetrics(all, newer Metrics) Metrics {
next:
	for _, m := range newer {
		for i := range all {
			if all[i].Name == m.Name {
				all[i].Value = m.Value
				continue next
			}
		}
		all = append(all, m)
	}
	return all
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// The kinds of events.
const (
	KindStart = "start"
	KindStep  = "step" // a line of metrics.jsonl about steps
	KindEval  = "eval"
	KindSave  = "save"
	KindEnd   = "end"
)

// How a run ended.
const (
	StatusDone    = "done"
	StatusStopped = "stopped" // by the user; it can be resumed
	StatusFailed  = "failed"
)

// Event is something that happened in a run.
type Event struct {
	Kind    string    `json:"event"`
	Time    time.Time `json:"time"`
	Step    int       `json:"step"`
	Total   int       `json:"max_steps"`
	Metrics Metrics   `json:"metrics,omitempty"`
	Path    string    `json:"checkpoint,omitempty"`
	Status  string    `json:"status,omitempty"` // of the end
	Error   string    `json:"error,omitempty"`
}

// Tracker sends events somewhere. Its calls come from one goroutine.
type Tracker interface {
	// Send delivers events in their order and returns how many it did. It ends with ctx. An error that trying again
	// cannot mend is Permanent.
	Send(ctx context.Context, events []Event) (int, error)
	// Close frees what the tracker holds.
	Close() error
}

// New makes a tracker, without touching network or disk: an error is one of configuration or environment.
type New func(Run) (Tracker, error)

// Permanent is an error that trying again cannot mend.
type Permanent struct{ Err error }

func (p *Permanent) Error() string { return p.Err.Error() }
func (p *Permanent) Unwrap() error { return p.Err }

// partly is an error beside which all events were delivered; it is said once.
type partly struct{ error }
