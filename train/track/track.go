// Package track reports a run to experiment trackers and other programs: TensorBoard, MLflow, Weights & Biases,
// Trackio, Prometheus, Kubeflow, a webhook. A tracker that is slow, unreachable or rejects requests can neither stop
// nor slow the run: each tracker has a bounded queue and a goroutine of its own.
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

// Config is the `tracking:` section of a run's YAML. Credentials come only from the environment.
type Config struct {
	// Experiment groups runs: it is MLflow's experiment, the project of Weights & Biases and Trackio, and a field of
	// webhooks.
	Experiment string `yaml:"experiment,omitempty" resume:"free"`
	// RunName is the run's name in trackers; empty means the name of output_dir.
	RunName string `yaml:"run_name,omitempty" resume:"free"`
	// Tags are names and values that trackers show with the run.
	Tags map[string]string `yaml:"tags,omitempty" resume:"free"`
	// MLflowURL is the address of an MLflow server; empty means MLFLOW_TRACKING_URI from the environment.
	MLflowURL string `yaml:"mlflow_url,omitempty" form:"address" resume:"free"`
	// WebhookURL is the address that receives a POST for each event; empty means TRACKING_WEBHOOK_URL from the
	// environment. A run's files and reports show only its host.
	WebhookURL string `yaml:"webhook_url,omitempty" form:"address" resume:"free"`
	// MetricsFile is the file that report_to: prometheus writes; empty means metrics.prom in output_dir. Its name must
	// end in .prom. An existing file is replaced only if a run wrote it.
	MetricsFile string `yaml:"metrics_file,omitempty" form:"path.prom" resume:"free"`
	// MetricsAddr is a loopback address, such as 127.0.0.1:9400, at which report_to: prometheus also serves /metrics.
	MetricsAddr string `yaml:"metrics_addr,omitempty" form:"loopback" resume:"free"`
}

// Validate returns every problem of the section, each naming its key.
func (c Config) Validate() []error {
	var problems []error
	for _, u := range []struct{ key, text string }{{"tracking.mlflow_url", c.MLflowURL},
		{"tracking.webhook_url", c.WebhookURL}} {
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

// address parses an http or https URL. Its error never repeats the text, which may contain a secret.
func address(from, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%s: is not an address such as https://host:port/path", from)
	case u.User != nil:
		return nil, fmt.Errorf("%s: has a user name or password in it, which would be saved with the run; set them "+
			"in the environment (docs/TRACKERS.md)", from)
	}
	return u, nil
}

// Saved returns the section as it is written to a run's files, which other people may read: addresses of webhooks
// without their paths, tags and names without secrets. A run that resumes from these files takes the address of its
// webhook from the environment.
func (c Config) Saved() Config {
	if c.WebhookURL != "" && !local(c.WebhookURL) {
		c.WebhookURL = safetext.Address(c.WebhookURL)
	}
	c.MLflowURL, c.Experiment, c.RunName = safetext.Mask(c.MLflowURL), safetext.Mask(c.Experiment), safetext.Mask(
		c.RunName)
	c.Tags = maps.Clone(c.Tags)
	for name, value := range c.Tags {
		c.Tags[name] = safetext.Mask(value)
	}
	return c
}

// local reports whether an address is on this machine; the path of a local address reveals nothing to others.
func local(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.RawQuery != "" || u.User != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// hidden reports whether an address was shortened by Saved.
func hidden(address string) bool { return strings.HasSuffix(address, "/"+safetext.Hidden) }

func loopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT, such as 127.0.0.1:9400", addr)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("%q is not a loopback address; write 127.0.0.1:PORT, and put a proxy before it where "+
			"others must read it", addr)
	}
	return nil
}

// Run is what a tracker knows about the run that it follows.
type Run struct {
	Config
	Dir    string                   // output folder
	Total  int                      // optimizer steps of the run
	Done   int                      // steps that were done before this start
	Text   string                   // the effective configuration as YAML
	Params []Param                  // the effective configuration, key by key
	Getenv func(name string) string // reads the environment, which has the credentials
}

// Param is a key of the configuration and its value.
type Param struct{ Key, Value string }

// Metric is a number with its name in metrics.jsonl.
type Metric struct {
	Name  string
	Value float64
}

// Metrics are the numbers of an event. In JSON they are an object, with null for a number that is not finite.
type Metrics []Metric

// MarshalJSON keeps the order of the numbers.
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

// mergeMetrics replaces the values of known names and appends new names.
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
	StatusStopped = "stopped" // stopped by the user; the run can be resumed
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
	Status  string    `json:"status,omitempty"` // how the run ended
	Error   string    `json:"error,omitempty"`
}

// Tracker sends events to another program. One goroutine makes all calls.
type Tracker interface {
	// Send delivers events in order and returns how many it delivered. It ends with ctx. An error is Permanent if a
	// retry cannot succeed.
	Send(ctx context.Context, events []Event) (int, error)
	// Close releases the tracker's resources.
	Close() error
}

// New makes a tracker without using network or disk: an error is about configuration or environment.
type New func(Run) (Tracker, error)

// Permanent is an error after which a retry cannot succeed.
type Permanent struct{ Err error }

func (p *Permanent) Error() string { return p.Err.Error() }
func (p *Permanent) Unwrap() error { return p.Err }

// partly is an error although all events were delivered; it is reported once.
type partly struct{ error }
