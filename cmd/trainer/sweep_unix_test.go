//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// A signal ends the run on its way with a checkpoint, and the next sweep goes on from there.
func TestSweepStops(t *testing.T) {
	dir := t.TempDir()
	args := []string{"sweep", "cpu_stories_quick", "--seeds", "2", "--out", "sw", "--set", "training.max_steps=100000",
		"--set", "training.batch_size=2", "--set", "training.save_steps=1",
		"--set", "training.save_total_limit=2", "--set", "dataset.max_length=128", "--set", "expect.loss_decrease=0"}
	cmd := program(dir, args...)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 600 { // until the run has begun
		if exists(dir + "/sw/seed=42/metrics.jsonl") {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(said.String(),
		"stopped; the same command goes on") || exists(dir+"/sw/seed=43") {
		t.Errorf("exit code %d, %v\n%s", code, err, said.String())
	}
}
