//go:build gpu

package train

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/internal/gputest"
	"github.com/tierlora/tierlora/kernel/gpu/libcuda"
	"github.com/tierlora/tierlora/train/checkpoint"
)

// faultAt makes a driver function fail from after a step on; 0 is before the run, -1 from the capture of its graphs on.
type faultAt struct {
	Silent
	t      testing.TB
	step   int
	symbol string
	code   int
}

// hangs as a code makes the function not return.
const hangs = -1

func (f *faultAt) fail() {
	if f.code == hangs {
		if _, err := libcuda.Hang(f.symbol); err != nil {
			f.t.Fatal(err)
		}
		return
	}
	arm := libcuda.Fail
	if f.step < 0 {
		arm = libcuda.FailCapturing
	}
	if _, err := arm(f.symbol, f.code); err != nil { // nobody restores it: the process ends
		f.t.Fatal(err)
	}
}

func (f *faultAt) Step(i StepInfo) error {
	if i.Step == f.step {
		f.fail()
	}
	return nil
}

// TestGPUFaultsInARun: a device that fails in the middle of a run, or while it is set up, ends it with an error that
// names what was done, the call and the code. The newest checkpoint stays whole, and the run that resumes from it
// gives the adapter of one that nothing happened to. The driver is made to answer the error; the device is unharmed.
func TestGPUFaultsInARun(t *testing.T) {
	gputest.Need(t)
	const steps, every = 12, 3
	spec := func(dir string) Spec {
		s := testSpec(t, steps)
		s.Device, s.OutputDir = "cuda", dir
		s.Training.SaveSteps, s.Training.Resume, s.Training.DeviceTimeout = every, "auto", 10
		return s
	}
	if dir := os.Getenv("TRAINER_TEST_RUN"); dir != "" { // the child
		f := &faultAt{t: t}
		if _, err := fmt.Sscan(os.Getenv("TRAINER_TEST_FAULT"), &f.step, &f.symbol, &f.code); err != nil {
			t.Fatal(err)
		}
		if f.step <= 0 {
			f.fail()
		}
		_, err := Start(context.Background(), spec(dir), Env{Observers: []Observer{f}})
		fmt.Printf("ended: %v\n", err)
		return
	}
	whole := filepath.Join(t.TempDir(), "whole")
	mustStart(t, spec(whole), Env{})
	want := golden.ReadFile(t, whole, adapter.WeightsFile)
	for _, c := range []struct {
		name   string
		step   int
		symbol string
		code   int
		saved  int // the newest checkpoint then
		want   []string
	}{
		{"a kernel while weights are loaded", 0, "cuLaunchKernel", 700, 6,
			[]string{"base model ", ": cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS (700)"}},
		{"a kernel while the graph is captured", -1, "cuLaunchKernel", 700, 6,
			[]string{"model.embed_tokens: embedding: embedding_gather: cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS " +
				"(700)"}},
		{"end of capture", 0, "cuStreamEndCapture", 719, 6,
			[]string{"segments ", "kernels (last ", "cuStreamEndCapture: CUDA_ERROR_LAUNCH_FAILED (719)"}},
		{"making the graph", 0, "cuGraphInstantiateWithFlags", 2, 6,
			[]string{"segments ", "graph of ", "cuGraphInstantiate: CUDA_ERROR_OUT_OF_MEMORY (2)"}},
		{"the batch", 7, "cuMemcpyHtoDAsync_v2", 700, 6,
			[]string{"after step 7 of 12: copy to the device: cuMemcpyHtoDAsync: CUDA_ERROR_ILLEGAL_ADDRESS (700)"}},
		{"replay", 7, "cuGraphLaunch", 719, 6, []string{"after step 7 of 12: segments ", ": replay a graph of ",
			"cuGraphLaunch: CUDA_ERROR_LAUNCH_FAILED (719): a kernel failed"}},
		{"the loss", 7, "cuMemcpyDtoHAsync_v2", 214, 6,
			[]string{"after step 7 of 12: read loss, gradient norm: copy from the device: cuMemcpyDtoHAsync: " +
				"CUDA_ERROR_ECC_UNCORRECTABLE (214)"}},
		{"the wait for what was sent", 7, "cuEventSynchronize", 700, 6,
			[]string{"after step 7 of 12: wait for an event: cuEventSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)"}},
		{"the wait for a checkpoint", 6, "cuStreamSynchronize", 719, 3,
			[]string{"after step 6 of 12: ", "cuStreamSynchronize: CUDA_ERROR_LAUNCH_FAILED (719)"}},
		{"a checkpoint's download", 6, "cuMemcpyDtoH_v2", 700, 3,
			[]string{"after step 6 of 12: save step 6: read the adapter: fetch model.layers.0",
				"cuMemcpyDtoH: CUDA_ERROR_ILLEGAL_ADDRESS (700)"}},
		{"a driver that hangs", 7, "cuGraphLaunch", hangs, 6,
			[]string{"the device does not answer: in step ", "(training.device_timeout: 10)"}},
		{"all of the driver", 7, "*", 700, 6, []string{"after step 7 of 12: ", "CUDA_ERROR_ILLEGAL_ADDRESS (700)"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "run")
			if c.step <= 0 {
				stop := stopping(c.saved)
				mustStart(t, spec(dir), Env{Observers: []Observer{stop}, Interrupted: stop.stop})
			}
			child := childTest(t, "TestGPUFaultsInARun", "TRAINER_TEST_RUN="+dir,
				fmt.Sprintf("TRAINER_TEST_FAULT=%d %s %d", c.step, c.symbol, c.code))
			out, err := child.CombinedOutput()
			at := bytes.Index(out, []byte("ended: "))
			if err != nil || at < 0 {
				t.Fatalf("the child did not return: %v\n%s", err, out)
			}
			text, _, _ := strings.Cut(string(out[at:]), "\n")
			t.Log(text)
			wants := c.want
			if c.step > 0 {
				wants = append(wants, checkpoint.Name(c.saved)+" is whole: --resume auto continues from it")
			}
			if c.code != 2 && c.code != hangs {
				wants = append(wants, "the device context is lost, restart the program")
			}
			for _, w := range wants {
				if !strings.Contains(text, w) {
					t.Errorf("the error does not say %q: %s", w, text)
				}
			}
			path, damaged, err := checkpoint.Latest(dir)
			if err != nil || len(damaged) > 0 || filepath.Base(path) != checkpoint.Name(c.saved) {
				t.Fatalf("the newest checkpoint is %s (%v), damaged %v; want step %d", path, err, damaged, c.saved)
			}
			if _, err := os.Stat(filepath.Join(dir, adapter.WeightsFile)); err == nil {
				t.Error("the failed run left an adapter as if it had ended")
			}
			if r := mustStart(t, spec(dir), Env{}); r.Resumed != c.saved || r.Steps != steps {
				t.Errorf("resumed after %d to %d, want %d to %d", r.Resumed, r.Steps, c.saved, steps)
			}
			if !bytes.Equal(want, golden.ReadFile(t, dir, adapter.WeightsFile)) {
				t.Error("the resumed run trains another adapter")
			}
		})
	}
}
