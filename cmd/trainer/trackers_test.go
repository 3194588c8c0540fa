package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTrackersLack checks that train and validate list the missing settings of all trackers at once.
func TestTrackersLack(t *testing.T) {
	dir := t.TempDir()
	text := "base_model: embedded:stories260K\ndataset: {path: 'embedded:gsm8k_300.jsonl'}\ntraining: {report_to: " +
		"[mlflow, webhook], max_steps: 1}\noutput_dir: o\n"
	if err := os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	want := []string{"mlflow needs tracking.mlflow_url, or MLFLOW_TRACKING_URI in the environment",
		"webhook needs tracking.webhook_url, or TRACKING_WEBHOOK_URL in the environment"}
	for _, c := range []struct {
		args []string
		code int
	}{{[]string{"train", "run.yaml"}, 2}, {[]string{"validate", "run.yaml"}, 0},
		{[]string{"validate", "run.yaml", "--show"}, 0}} {
		code, _, errOut := trainer(t, dir, nil, "", c.args...)
		if code != c.code || !strings.Contains(errOut, want[0]) || !strings.Contains(errOut, want[1]) {
			t.Errorf("%v: exit code %d, want %d\n%s", c.args, code, c.code, errOut)
		}
	}
}
