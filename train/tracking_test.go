package train

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/train/track"
)

// TestTrackersChangeNothing: with trackers, one of which is refused, a run trains the same adapter and ends well; what
// could not be delivered is said once at its time and once at the end, and no file of the run has the credentials.
func TestTrackersChangeNothing(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	defer refusing.Close()
	t.Setenv("TRACKING_WEBHOOK_URL", refusing.URL+"/path-that-is-a-secret")
	t.Setenv("TRACKING_WEBHOOK_SECRET", "token-that-is-a-secret")
	plain := testSpec(t, 4)
	mustStart(t, plain, Env{})
	s := plain
	s.OutputDir = filepath.Join(t.TempDir(), "run")
	s.Training.ReportTo = []string{"tensorboard", "prometheus", "webhook"}
	var said []string
	env := Env{}
	env.Log = func(line string) {
		if strings.HasPrefix(line, "tracking: ") {
			said = append(said, line)
		}
	}
	if err := CheckTrackers(s); err != nil {
		t.Fatal(err)
	}
	mustStart(t, s, env)
	if !bytes.Equal(golden.ReadFile(t, plain.OutputDir, adapter.WeightsFile),
		golden.ReadFile(t, s.OutputDir, adapter.WeightsFile)) {
		t.Error("trackers change the adapter")
	}
	n := len(said)
	if n < 1 || n > 2 || !strings.Contains(said[n-1], "webhook: 7 of 7 events were not delivered: ") ||
		!strings.Contains(said[n-1], "refuses the credentials") {
		t.Errorf("said %q", said)
	}
	if text := string(golden.ReadFile(t, s.OutputDir, "webhook_unsent.jsonl")); strings.Count(text, "\n") != 7 {
		t.Errorf("kept %s", text)
	}
	if text := string(golden.ReadFile(t, s.OutputDir, track.MetricsPromFile)); !strings.Contains(text,
		`tierlora_step{run="run"} 4`) || !strings.Contains(text, `tierlora_ended{run="run"} 1`) {
		t.Errorf("metrics: %s", text)
	}
	err := filepath.WalkDir(s.OutputDir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if bytes.Contains(golden.ReadFile(t, name), []byte("is-a-secret")) {
			t.Errorf("%s has a secret", name)
		}
		return nil
	})
	if err != nil || slices.ContainsFunc(said,
		func(line string) bool { return strings.Contains(line, "is-a-secret") }) {
		t.Errorf("%v; said %q", err, said)
	}
}

// TestParametersOfARun: keys as the configuration has them, without the section that may name servers.
func TestParametersOfARun(t *testing.T) {
	s := testSpec(t, 4)
	s.Tracking.MLflowURL = "http://server"
	got := map[string]string{}
	for _, p := range parameters(s) {
		got[p.Key] = p.Value
	}
	if got["training.max_steps"] != "4" || got["seed"] != "42" || got["tracking.mlflow_url"] != "" ||
		got["quantization.bits"] == "" && s.Quantization != nil {
		t.Errorf("%v", got)
	}
}
