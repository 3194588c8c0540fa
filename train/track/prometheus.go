package track

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/rescue"
)

// MetricsPromFile is the default name of the file that report_to: prometheus writes to a run's output folder.
const MetricsPromFile = "metrics.prom"

// promEvery is the least time between two versions of the file. The last version is always written.
const promEvery = time.Second

// prometheus publishes the newest numbers in Prometheus' text format 0.0.4: as a file for node_exporter's textfile
// collector, and at /metrics on a loopback address.
type prometheus struct {
	run     Run
	path    string
	written time.Time
	values  Metrics
	step    int
	status  string
	listen  net.Listener
	server  *http.Server
	deaf    bool // listening on the address has failed

	mu   sync.Mutex
	text string
}

// NewPrometheus returns the tracker of report_to: prometheus.
func NewPrometheus(r Run) (Tracker, error) {
	if r.MetricsAddr != "" {
		if err := loopback(r.MetricsAddr); err != nil {
			return nil, fmt.Errorf("tracking.metrics_addr: %w", err)
		}
	}
	p := &prometheus{run: r, path: r.MetricsFile}
	if p.path == "" {
		p.path = filepath.Join(r.Dir, MetricsPromFile)
	}
	return p, nil
}

// promMark is the beginning of the file, which distinguishes a file of an earlier run from other files.
const promMark = "# HELP tierlora_step "

// CheckFiles returns an error if tracking.metrics_file names a file that must not be replaced.
func (p *prometheus) CheckFiles() error {
	if p.run.MetricsFile == "" {
		return atomicfile.Check(p.path)
	}
	if err := checkMetricsFile(p.run.MetricsFile); err != nil {
		return fmt.Errorf("tracking.metrics_file: %w", err)
	}
	if err := atomicfile.CheckOwn(p.path, "a file of metrics", promMark); err != nil {
		return fmt.Errorf("tracking.metrics_file: %w", err)
	}
	return nil
}

// checkMetricsFile rejects names that node_exporter does not read. metrics.prom is the only file of a run with such a
// name.
func checkMetricsFile(path string) error {
	if filepath.Ext(path) != ".prom" {
		return fmt.Errorf("%s: the file's name must end in .prom, as node_exporter's textfile collector wants it", path)
	}
	return nil
}

func (p *prometheus) Send(_ context.Context, events []Event) (int, error) {
	urgent := false
	for _, e := range events {
		p.note(e)
		urgent = urgent || e.Kind != KindStep
	}
	text := p.render()
	p.mu.Lock()
	p.text = text
	p.mu.Unlock()
	var deaf error
	if p.run.MetricsAddr != "" && p.server == nil && !p.deaf {
		if err := p.serve(); err != nil {
			p.deaf, deaf = true, partly{fmt.Errorf("%w; %s is written all the same", err, p.path)}
		}
	}
	if urgent || time.Since(p.written) >= promEvery {
		err := p.CheckFiles()
		if err == nil {
			err = atomicfile.Write(p.path, []byte(text))
		}
		if err != nil {
			return 0, &Permanent{fmt.Errorf("write %s: %w", p.path, err)}
		}
		p.written = time.Now()
	}
	return len(events), deaf
}

func (p *prometheus) note(e Event) {
	p.step = max(p.step, e.Step)
	if e.Status != "" {
		p.status = e.Status
	}
	p.values = mergeMetrics(p.values, e.Metrics)
}

// render returns the text of the file; every sample has the run's name as its label.
func (p *prometheus) render() string {
	var b strings.Builder
	label := `{run="` + labelText(p.run.RunName) + `"}`
	gauge := func(name, help string, value float64) {
		fmt.Fprintf(&b, "# HELP tierlora_%s %s\n# TYPE tierlora_%s gauge\ntierlora_%s%s %s\n", name, help, name, name,
			label, promNumber(value))
	}
	gauge("step", "Optimizer steps done.", float64(p.step))
	gauge("max_steps", "Optimizer steps of the whole run.", float64(p.run.Total))
	ended := 0.0
	if p.status != "" {
		ended = 1
	}
	gauge("ended", "1 when the run has ended.", ended)
	failed := 0.0
	if p.status == StatusFailed {
		failed = 1
	}
	gauge("failed", "1 when the run has ended with an error.", failed)
	for _, m := range p.values {
		gauge(promName(m.Name), "The newest "+m.Name+" of metrics.jsonl.", m.Value)
	}
	return b.String()
}

// promName returns a metric's name with an underscore in place of every character that Prometheus's names lack, such as
// the slash of rewards/chosen.
func promName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

// promNumber formats a value. Prometheus also spells NaN, +Inf and -Inf like this.
func promNumber(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

func labelText(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "?"))
}

func (p *prometheus) serve() error {
	l, err := net.Listen("tcp", p.run.MetricsAddr)
	if err != nil {
		return fmt.Errorf("serve /metrics: %w; choose another tracking.metrics_addr", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		text := p.text
		p.mu.Unlock()
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Write([]byte(text)) // the reader has disconnected
	})
	p.listen, p.server = l, &http.Server{Handler: mux, ReadTimeout: requestTime, WriteTimeout: requestTime,
		MaxHeaderBytes: 1 << 14}
	rescue.Go(func() { p.server.Serve(l) }) // ends with Close
	return nil
}

func (p *prometheus) Close() error {
	if p.server == nil {
		return nil
	}
	return p.server.Close()
}
