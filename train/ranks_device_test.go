//go:build gpu

package train

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/kernel/gpu"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/train/ranks"
)

// needGPUs skips where there are fewer devices, or no NCCL.
func needGPUs(t testing.TB, n int) {
	t.Helper()
	skip := t.Skipf
	if os.Getenv("TRAINER_GPU") == "require-several" {
		skip = t.Fatalf
	}
	if there, reason := graph.GPUs(); there < n {
		skip("%d GPUs, %d are needed. %s", there, n, reason)
	}
	if _, err := gpu.OpenNCCL(""); err != nil {
		skip("no NCCL: %v", err)
	}
}

// TestGPURanksAreAccumulation: N GPUs with accumulation A train, byte for byte, what one does with N x A, with epochs
// whose last window is short, and stopped and resumed on another number of GPUs.
func TestGPURanksAreAccumulation(t *testing.T) {
	needGPUs(t, 2)
	there, _ := graph.GPUs()
	for name, edit := range map[string]func(s *Spec){
		"qlora":     func(s *Spec) { s.LoRA.Dropout = 0.05 },
		"lora":      func(s *Spec) { s.Adapter, s.Quantization = "lora", nil },
		"packed":    func(s *Spec) { s.Dataset.Packing = true },
		"evaluated": func(s *Spec) { s.Dataset.ValSplit, s.Training.EvalSteps, s.Training.EvalOnStart = 0.1, 2, true },
		"fp16":      func(s *Spec) { s.Training.Precision, s.Training.LossScale = "fp16", 1<<24 },
		"fp32":      func(s *Spec) { s.Training.Precision, s.Training.GradNormSteps = "fp32", 1 },
	} {
		t.Run(name, func(t *testing.T) {
			one := testSpec(t, 8)
			one.Device = "cuda"
			one.Training.GradientAccumulationSteps, one.Training.BatchSize = 4, 1
			one.Dataset.Path = fewRows(t, one.Dataset.Path, 9)
			edit(&one)
			want := mustStart(t, one, Env{})
			for _, world := range []int{2, 4} {
				if world > there {
					continue
				}
				s := over(t, one, world)
				got := mustStart(t, s, Env{})
				if want.EvalLoss != nil && *got.EvalLoss != *want.EvalLoss {
					t.Errorf("%d GPUs: evaluation %v, want %v", world, *got.EvalLoss, *want.EvalLoss)
				}
				sameRun(t, fmt.Sprintf("%d GPUs", world), one.OutputDir, s.OutputDir)
				plan, err := PlanRun(context.Background(), s, Env{})
				if err != nil || plan.TotalBytes != got.HeldBytes {
					t.Errorf("%d GPUs hold %d bytes each, the plan says %d: %v", world,
						got.HeldBytes, plan.TotalBytes, err)
				}
			}
		})
	}
	t.Run("resumed", func(t *testing.T) {
		whole := testSpec(t, 8)
		whole.Device, whole.Training.GradientAccumulationSteps = "cuda", 2
		mustStart(t, whole, Env{})
		parts := over(t, whole, 2)
		stop := stopping(3)
		if r := mustStart(t, parts, Env{Observers: []Observer{stop}, Interrupted: stop.stop}); !r.Stopped {
			t.Fatalf("it was not stopped: %+v", r)
		}
		last := over(t, whole, 1)
		last.OutputDir, last.Training.Resume = parts.OutputDir, "auto"
		mustStart(t, last, Env{})
		sameRun(t, "two GPUs, then one", whole.OutputDir, parts.OutputDir)
	})
}

// TestGPURanksSmolLM2: the same of a real model, with all its linear layers in 4 bits.
func TestGPURanksSmolLM2(t *testing.T) {
	needGPUs(t, 2)
	one := smolLM2Spec(t, 10)
	one.Training.GradientAccumulationSteps = 2
	mustStart(t, one, Env{})
	two := over(t, one, 2)
	began := time.Now()
	r := mustStart(t, two, Env{})
	sameRun(t, "two GPUs", one.OutputDir, two.OutputDir)
	t.Logf("10 steps on two GPUs in %v, %.2f ms a step in the median",
		time.Since(began).Round(time.Millisecond), r.StepMs.Median)
}

// standIn writes a model of Llama's shape with 1.1 billion random numbers in bf16, and stories260K's tokenizer.
func standIn(t testing.TB, s Spec, layers int) string {
	t.Helper()
	dir := t.TempDir()
	const config = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632,
"num_hidden_layers": %d, "num_attention_heads": 32, "num_key_value_heads": 4, "hidden_act": "silu", "rms_norm_eps": 1e-05, "rope_theta": 10000,
"max_position_embeddings": 2048, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), fmt.Appendf(nil, config, layers), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"),
		golden.ReadFile(t, golden.StoriesDir(t), "tokenizer.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.BaseModel, s.Device, s.Adapter, s.Quantization = dir, "cpu", "lora", nil
	env := Env{Env: session.Env{WithoutWeights: true}}
	p, err := open(context.Background(), s, env)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close() //nolint:errcheck // read only
	net, _, err := p.Net.Declared()
	if err != nil {
		t.Fatal(err)
	}
	var tensors []weights.Tensor
	for _, w := range net.Weights() {
		if w.Name != "" {
			tensors = append(tensors, weights.Tensor{Name: w.Name, DType: weights.BF16, Shape: w.Shape})
		}
	}
	fill := func(x weights.Tensor, w io.Writer) error {
		numbers := 1
		for _, d := range x.Shape {
			numbers *= d
		}
		one, state := strings.Contains(x.Name, "norm"), uint64(len(x.Name))<<32|uint64(numbers)
		raw := make([]byte, 2*numbers)
		for k := range numbers {
			state = state*6364136223846793005 + 1442695040888963407
			bits := uint16(0x3f80) // 1
			if !one {
				bits = 0x3c00 | uint16(state>>33)&0x80ff // about 0.01, of either sign
			}
			binary.LittleEndian.PutUint16(raw[2*k:], bits)
		}
		_, err := w.Write(raw)
		return err
	}
	if err := weights.WriteDir(dir, tensors, nil, 1<<40, fill); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestGPURanks1B: the same of a model of 1.1 billion parameters, in 4 bits and in bf16.
func TestGPURanks1B(t *testing.T) {
	needGPUs(t, 2)
	one := testSpec(t, 4)
	one.Device, one.Dataset.MaxLength, one.Training.BatchSize,
		one.Training.GradientAccumulationSteps = "cuda", 512, 4, 2
	one.LoRA.R, one.Training.LearningRate = 16, 1e-4
	model := standIn(t, one, 22)
	for _, adapter := range []string{"qlora", "lora"} {
		one.BaseModel, one.Adapter, one.OutputDir = model, adapter, filepath.Join(t.TempDir(), adapter)
		if adapter == "lora" {
			one.Quantization = nil
		}
		a := mustStart(t, one, Env{})
		two := over(t, one, 2)
		b := mustStart(t, two, Env{})
		sameRun(t, adapter+" on two GPUs", one.OutputDir, two.OutputDir)
		t.Logf("%s: %.2f ms a step of two micro-batches on one GPU, %.2f ms on two", adapter,
			a.StepMs.Median, b.StepMs.Median)
	}
}

// TestGPUSumIsInTheGraph: a step of two GPUs is one captured graph with the exchange in it, the same on both, and runs.
func TestGPUSumIsInTheGraph(t *testing.T) {
	needGPUs(t, 2)
	s := testSpec(t, 4)
	s.Device, s.Devices = "cuda", "2"
	on, err := s.placed(0)
	if err != nil {
		t.Fatal(err)
	}
	nodes := make([]int, 2)
	problems := make([]error, 2)
	eachRank(context.Background(), s, Env{}, on, ranks.NewLocal(2), func(ctx context.Context, i int, env Env) error {
		o, err := Open(ctx, s, env)
		if err != nil {
			problems[i] = err
			return err
		}
		defer o.Close()   //nolint:errcheck // the numbers were read
		defer o.Release() //nolint:errcheck
		nodes[i], problems[i] = o.Pipeline().Queued()
		for range 3 {
			w, err := o.Next()
			if err == nil {
				err = errors.Join(o.Pipeline().Gradients(w), o.Pipeline().Update())
			}
			if err == nil {
				_, err = o.Pipeline().Numbers()
			}
			problems[i] = errors.Join(problems[i], err)
		}
		return problems[i]
	})
	if err := errors.Join(problems...); err != nil || nodes[0] < 20 || nodes[0] != nodes[1] {
		t.Errorf("%v nodes a step: %v", nodes, err)
	}
	t.Logf("%v launches, copies and fills a step, the exchange among them", nodes)
}

// silentRank is a rank that leaves its device waiting in a step, or that goes, while the other exchanges gradients.
type silentRank struct {
	Silent
	at int
}

func (s silentRank) Step(i StepInfo) error {
	if i.Step == s.at {
		time.Sleep(3 * time.Second) // rank 1 waits on its device for the next step's gradients meanwhile
		return errors.New("rank 0 goes")
	}
	return nil
}

// TestGPULostRankEndsTheOthers: where a rank fails while another's device waits for its gradients, the other's wait is
// ended: nothing hangs, and both name the cause.
func TestGPULostRankEndsTheOthers(t *testing.T) {
	needGPUs(t, 2)
	s := testSpec(t, 40)
	s.Device, s.Devices, s.OutputDir = "cuda", "2", filepath.Join(t.TempDir(), "lost")
	s.Training.LoggingSteps, s.Training.AllowZeroGradients = 1, true
	began := time.Now()
	_, err := Start(context.Background(), s, Env{Observers: []Observer{silentRank{at: 10}}})
	if err == nil || !strings.Contains(err.Error(), "rank 0 goes") {
		t.Errorf("it ended with %v", err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	// The devices serve the next run.
	next := testSpec(t, 3)
	next.Device, next.Devices = "cuda", "2"
	mustStart(t, next, Env{})
}

// standingRank is a rank whose host stands for a while in a step.
type standingRank struct {
	Silent
	at   int
	time time.Duration
}

func (s standingRank) Step(i StepInfo) error {
	if i.Step == s.at {
		time.Sleep(s.time)
	}
	return nil
}

// TestGPUStandingRank: where a rank stands and the other's device waits for it in a captured graph, which no host sees,
// the wait is ended within the timeout, and both name the rank that stood.
func TestGPUStandingRank(t *testing.T) {
	needGPUs(t, 2)
	s := testSpec(t, 40)
	s.Device, s.Devices, s.OutputDir = "cuda", "2", filepath.Join(t.TempDir(), "standing")
	s.Training.LoggingSteps, s.Training.AllowZeroGradients, s.Training.SaveSteps, s.Training.DDPTimeout = 1, true, 5, 5
	began := time.Now()
	r, err := Start(context.Background(), s, Env{Observers: []Observer{standingRank{at: 12, time: 15 * time.Second}}})
	var lost *ranks.LostError
	if !errors.As(err, &lost) || lost.Rank != 0 || !strings.Contains(err.Error(),
		"it alone did not answer when the exchange was ended") {
		t.Errorf("it ended with %v", err)
	}
	if took := time.Since(began); took > time.Minute || filepath.Base(r.Checkpoint) != "checkpoint-10" {
		t.Errorf("it took %v, the newest checkpoint is %s", took, r.Checkpoint)
	}
	// The devices serve the next run.
	next := testSpec(t, 3)
	next.Device, next.Devices = "cuda", "2"
	mustStart(t, next, Env{})
}
