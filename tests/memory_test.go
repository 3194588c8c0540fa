package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/internal/golden"
)

var anonymous = regexp.MustCompile(`(?m)^RssAnon:\s+(\d+) kB$`)

// TestMemoryStaysNearThePlan: what a QLoRA run on a CPU takes of memory besides mapped files, loading and saving too, is
// at most 1.3 times its plan.
func TestMemoryStaysNearThePlan(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the memory of a process is read from /proc, which Linux alone has")
	}
	model := golden.SmolLM2(t)
	dir := t.TempDir()
	cmd := command(t, dir, "train", "--config", "cpu_stories_quick.yaml", "--quiet", "--json", "--set", "base_model="+model, "--set", "dataset.max_length=128",
		"--set", "training.batch_size=1", "--set", "training.max_steps=2", "--set", "training.save_steps=1", "--set", "expect.loss_decrease=0")
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	status, peak, reads := filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "status"), int64(0), 0
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%v\n%s", err, errOut.String())
			}
			var result struct {
				Held int64 `json:"held_bytes"`
			}
			if err := json.Unmarshal([]byte(out.String()), &result); err != nil || result.Held == 0 {
				t.Fatalf("%v in %s", err, out.String())
			}
			t.Logf("at most %d bytes of the process in %d looks, the plan holds %d: %.3f times", peak, reads, result.Held, float64(peak)/float64(result.Held))
			if reads < 50 || peak < result.Held/2 {
				t.Errorf("%d looks saw %d bytes at most: too few", reads, peak)
			}
			if float64(peak) > 1.3*float64(result.Held) {
				t.Errorf("the process took %d bytes, 1.3 times the plan are %d", peak, result.Held*13/10)
			}
			return
		case <-time.After(5 * time.Millisecond):
			raw, _ := os.ReadFile(status)
			if m := anonymous.FindSubmatch(raw); m != nil {
				kb, _ := strconv.ParseInt(string(m[1]), 10, 64)
				peak = max(peak, kb<<10)
				reads++
			}
		}
	}
}
