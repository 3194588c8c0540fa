package track

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPrometheusAddressInUse: a run whose address another one has writes its file all the same, and says so once.
func TestPrometheusAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // only a port
	dir := t.TempDir()
	p, err := NewPrometheus(Run{Config: Config{RunName: "a", MetricsAddr: l.Addr().String()}, Dir: dir, Total: 2, Getenv: environ()})
	if err != nil {
		t.Fatal(err)
	}
	q := NewQueue("prometheus", p, filepath.Join(dir, "unsent.jsonl"), DefaultLimits)
	for step := range 3 {
		q.Put(Event{Kind: KindEval, Step: step, Metrics: Metrics{{"eval_loss", float64(step)}}})
	}
	q.Finish()
	if lost := q.Wait(); lost != "" {
		t.Error(lost)
	}
	if said := q.Message(); !strings.Contains(said, "address already in use") && !strings.Contains(said, "Only one usage") || !strings.HasSuffix(said, "; "+filepath.Join(dir, MetricsPromFile)+" is written all the same") {
		t.Errorf("said %q", said)
	}
	if text, err := os.ReadFile(filepath.Join(dir, MetricsPromFile)); err != nil || !strings.Contains(string(text), `tierlora_eval_loss{run="a"} 2`) {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestPrometheusNames checks that every line has a name that Prometheus takes: names of metrics may have slashes.
func TestPrometheusNames(t *testing.T) {
	p := &prometheus{run: Run{Config: Config{RunName: "a"}},
		values: Metrics{{"rewards/chosen", 0.5}, {"eval_rewards/margins", 1}, {"memory/max_allocated (GiB)", 2}}}
	text := p.render()
	line := regexp.MustCompile(`^(# (HELP|TYPE) )?[a-zA-Z_:][a-zA-Z0-9_:]*[ {]`)
	for one := range strings.Lines(text) {
		if !line.MatchString(one) {
			t.Errorf("not a line of Prometheus: %s", one)
		}
	}
	if !strings.Contains(text, `tierlora_rewards_chosen{run="a"} 0.5`) {
		t.Errorf("no rewards in\n%s", text)
	}
}
