//go:build gpu

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
)

// TestPlansOfBothBuilds: the program without GPU support prints a plan for a GPU byte by byte as the one with it does.
func TestPlansOfBothBuilds(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	build := exec.Command("go", "build", "-o", plain, "./cmd/trainer")
	build.Dir, build.Env = golden.Root(t), append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	variants := []string{"", "training.precision=fp16", "training.precision=fp32 training.gradient_checkpointing=full",
		"training.gradient_checkpointing=offload dataset.packing=true",
		"training.optimizer=adamw_8bit", "training.optimizer=lion training.grad_norm_steps=1",
		"adapter=lora dataset.val_split=0.1", "quantization.type=int8", "quantization.type=fp4",
		"lora.r=5 lora.dropout=0.1", "lora.use_dora=true", "training.dequantised_weights=never training.batch_size=1",
		"training.strict=true lora.r=5",
		"vram=22000000", "training.gradient_accumulation_steps=4"}
	plans := 0
	for _, chip := range graph.ChipNames() {
		these := variants
		if chip != "h100" && chip != "a10" && chip != "5090" { // one of each generation has them all
			these = variants[:1]
		}
		for _, v := range these {
			args := []string{"plan", "cpu_stories_quick", "--gpu", chip}
			for _, set := range strings.Fields(v) {
				args = append(args, "--set", set)
			}
			code, out, errOut := trainer(t, dir, nil, "", args...)
			cmd := exec.Command(plain, args...)
			cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
			var stderr strings.Builder
			cmd.Stderr = &stderr
			text, err := cmd.Output()
			if cmd.ProcessState == nil {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != code || string(text) != out || stderr.String() != errOut {
				t.Errorf("%s: exit code %d\n%s%s\nwith GPU support %d\n%s%s", strings.Join(args, " "), got, text,
					stderr.String(), code, out, errOut)
			}
			if code == 0 {
				plans++
			}
		}
	}
	if plans < 40 {
		t.Errorf("%d plans were compared", plans)
	}
	t.Logf("%d plans", plans)
}
