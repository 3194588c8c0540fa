package tier

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/train"
)

// metrics is the content of metrics.jsonl.
type metrics struct {
	steps  []Step
	evals  []Evaluation
	memory []float64 // memory of each step in GiB
	broken string    // first value that is not a number
}

const (
	maxLine = 1 << 16 // bytes of a line of metrics.jsonl
	most    = 1e100   // largest number in it, so that sums stay finite
)

// readMetrics reads metrics.jsonl, in which null is a number that is not finite.
func readMetrics(path string) (m metrics, err error) {
	f, err := regular.Open(path)
	if err != nil {
		return m, err
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxOutput))
	lines.Buffer(make([]byte, 0, maxLine), maxLine)
	for n := 1; lines.Scan(); n++ {
		var keys map[string]*float64
		if err := json.Unmarshal(lines.Bytes(), &keys); err != nil {
			return m, fmt.Errorf("line %d of %s is damaged: %w", n, filepath.Base(path), err)
		}
		number := func(key string) float64 {
			if x := keys[key]; x != nil && math.Abs(*x) < most {
				return *x
			}
			if m.broken == "" {
				m.broken = fmt.Sprintf("line %d of %s: %s is no number", n, filepath.Base(path), key)
			}
			return 0 // NaN is no JSON; broken records it
		}
		if _, ok := keys["loss"]; ok {
			s := Step{Step: whole(keys["step"]), Loss: number("loss"), GradNorm: number("grad_norm"), Rate: number("learning_rate"), Tokens: int64(whole(keys["num_input_tokens_seen"]))}
			if speed := number("tokens/train_per_sec_per_gpu"); speed > 0 {
				s.Seconds = float64(s.Tokens) / speed
			}
			m.steps, m.memory = append(m.steps, s), append(m.memory, number("memory/max_allocated (GiB)"))
		} else if _, ok := keys["eval_loss"]; ok {
			m.evals = append(m.evals, Evaluation{whole(keys["step"]), number("eval_loss")})
		}
	}
	return m, lines.Err()
}

// whole returns a count; -1 if the value is none.
func whole(x *float64) int {
	if x == nil || *x != math.Trunc(*x) || math.Abs(*x) > 1<<53 {
		return -1
	}
	return int(*x)
}

// judgeAdapter reads the adapter's files, and compares every tensor with its initial value, which follows from the
// seed.
func (a *attempt) judgeAdapter() {
	moved, err := a.adapter()
	if err != nil {
		a.check("the adapter", false, "%v", err)
		return
	}
	a.check("the adapter", true, "%d tensors, every A and B moved from its start", moved)
	if a.Manifest == nil {
		return
	}
	text, err := regular.ReadFile(filepath.Join(a.run, adapter.WeightsFile))
	if err != nil {
		a.check("the adapter", false, "%v", err)
		return
	}
	sum := hash(text)
	a.check("the adapter's bytes are the manifest's", sum == a.Manifest.Adapter(), "%s", sum)
}

func (a *attempt) adapter() (moved int, err error) {
	saved, err := adapter.Open(a.run)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, saved.Close()) }()
	if saved.Config.R != a.tier.Rank {
		return 0, fmt.Errorf("adapter_config.json has rank %d, the tier %d", saved.Config.R, a.tier.Rank)
	}
	f, err := weights.Open(filepath.Join(a.run, "adapter_model.safetensors"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	const prefix, suffixA, suffixB = "base_model.model.", ".lora_A.weight", ".lora_B.weight"
	start := adapter.NewStart(adapter.Methods["lora"], adapter.Default(), a.seed())
	count := int64(0)
	for _, name := range f.Names() {
		t, _ := f.Tensor(name)
		now := make([]float32, t.Len())
		if err := weights.Float32s(t, now); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		for i, x := range now {
			if x != x || math.IsInf(float64(x), 0) {
				return 0, fmt.Errorf("%s: number %d is %v", name, i, x)
			}
		}
		layer, ok := strings.CutSuffix(name, suffixA)
		partner := layer + suffixB
		if !ok {
			if layer, ok = strings.CutSuffix(name, suffixB); !ok {
				return 0, fmt.Errorf("%s is neither A nor B of a layer", name)
			}
			partner = layer + suffixA
		}
		other, there := f.Tensor(partner)
		if !there {
			return 0, fmt.Errorf("%s has no %s", name, partner)
		}
		was := make([]adapter.Param, 2)
		for i, x := range []weights.Tensor{t, other} {
			was[i] = adapter.Param{Name: strings.TrimPrefix(x.Name, prefix), Shape: x.Shape, Data: make([]float32, x.Len())}
		}
		fresh := &adapter.Trained{Layers: []string{strings.TrimPrefix(layer, prefix)}}
		if err := start.Fill(nil, nil, fresh, was); err != nil {
			return 0, err
		}
		if slices.Equal(was[0].Data, now) {
			return 0, fmt.Errorf("%s is what it was at the start: it was not trained", name)
		}
		moved++
		count += int64(len(now))
	}
	if moved == 0 {
		return 0, errors.New("it has no tensors")
	}
	if count != a.Plan.TrainedParameters {
		return 0, fmt.Errorf("it has %d numbers, the plan trains %d", count, a.Plan.TrainedParameters)
	}
	return moved, nil
}

// seed returns the run's seed.
func (a *attempt) seed() uint64 {
	if a.Manifest == nil {
		return train.DefaultSpec().Seed
	}
	return a.Manifest.Seed
}
