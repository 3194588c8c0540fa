package tests

import (
	"encoding/json"
	"os"
	"os/exec"
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

// TestMemoryStaysNearThePlan: what a QLoRA run on a CPU takes of memory besides mapped files, loading, saving and
// resuming too, is at most 1.3 times its plan.
func TestMemoryStaysNearThePlan(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the memory of a process is read from /proc, which Linux alone has")
	}
	model := golden.SmolLM2(t)
	dir := t.TempDir()
	for _, rank := range []string{"8", "64"} {
		args := []string{"train", "--config", "cpu_stories_quick.yaml", "--quiet", "--json", "--set", "base_model=" + model, "--set", "dataset.max_length=128",
			"--set", "training.batch_size=1", "--set", "training.max_steps=2", "--set", "training.save_steps=1", "--set", "expect.loss_decrease=0",
			"--set", "lora.r=" + rank, "--set", "output_dir=rank" + rank}
		for what, more := range [][]string{nil, {"--resume", "auto", "--set", "training.max_steps=3"}} {
			if what == 1 && rank == "8" {
				continue // the larger adapter shows what reading one takes
			}
			peak, looks, held := memoryOf(t, command(t, dir, append(args, more...)...))
			t.Logf("rank %s, %s: at most %d bytes of the process in %d looks, the plan holds %d: %.3f times",
				rank, []string{"new", "resumed"}[what], peak, looks, held, float64(peak)/float64(held))
			if looks < 50 || peak < held/2 {
				t.Errorf("%d looks saw %d bytes at most: too few", looks, peak)
			}
			if float64(peak) > 1.3*float64(held) {
				t.Errorf("the process took %d bytes, 1.3 times the plan are %d", peak, held*13/10)
			}
		}
	}
}

// memoryOf is the most anonymous memory that a run had whenever it was looked at, and what its plan holds.
func memoryOf(t *testing.T, cmd *exec.Cmd) (peak int64, looks int, held int64) {
	t.Helper()
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	status := filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "status")
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
			return peak, looks, result.Held
		case <-time.After(2 * time.Millisecond):
			raw, _ := os.ReadFile(status)
			if m := anonymous.FindSubmatch(raw); m != nil {
				kb, _ := strconv.ParseInt(string(m[1]), 10, 64)
				peak = max(peak, kb<<10)
				looks++
			}
		}
	}
}
