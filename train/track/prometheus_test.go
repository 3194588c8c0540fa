package track

import (
	"net"
	"os"
	"path/filepath"
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
