package train

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
)

// MetricsFile is the name of the metrics in a run's output folder: JSON lines.
const MetricsFile = "metrics.jsonl"

// StepMetrics is a line about training. Steps count from 1: a line is written after the update.
type StepMetrics struct {
	Step  int     `json:"step"`
	Epoch float64 `json:"epoch"`
	// Loss is the mean over the trained tokens since the last line.
	Loss float64 `json:"loss"`
	PPL  float64 `json:"ppl"`
	// GradNorm is the global norm before clipping, GradNormClipped after it.
	GradNorm        float64 `json:"grad_norm"`
	GradNormClipped float64 `json:"grad_norm_clipped"`
	LearningRate    float64 `json:"learning_rate"`
	TokensSeen      int64   `json:"num_input_tokens_seen"`
	TokensPerSecond float64 `json:"tokens/train_per_sec_per_gpu"`
	TokensTotal     int64   `json:"tokens/total"`
	TokensTrainable int64   `json:"tokens/trainable"`
	MemoryGiB       float64 `json:"memory/max_allocated (GiB)"`
	*LossScaling            // nil = none
}

// LossScaling is the loss scale after a step, and the steps so far whose gradient overflowed.
type LossScaling struct {
	Scale   float64 `json:"loss_scale"`
	Skipped int     `json:"skipped_steps"`
}

func scalingMetrics(scale float64, skipped int) *LossScaling {
	if scale == 0 {
		return nil
	}
	return &LossScaling{scale, skipped}
}

// EvalMetrics is a line about the validation rows.
type EvalMetrics struct {
	Step             int     `json:"step"`
	Epoch            float64 `json:"epoch"`
	Loss             float64 `json:"eval_loss"`
	PPL              float64 `json:"eval_ppl"`
	Runtime          float64 `json:"eval_runtime"` // seconds
	SamplesPerSecond float64 `json:"eval_samples_per_second"`
	StepsPerSecond   float64 `json:"eval_steps_per_second"`
}

// EndMetrics is the last line of a finished run.
type EndMetrics struct {
	Step             int     `json:"step"`
	Epoch            float64 `json:"epoch"`
	Loss             float64 `json:"train_loss"`    // mean over the trained tokens of the whole run
	Runtime          float64 `json:"train_runtime"` // seconds
	SamplesPerSecond float64 `json:"train_samples_per_second"`
	StepsPerSecond   float64 `json:"train_steps_per_second"`
}

// Metrics writes metrics.jsonl and keeps its lines for trainer_state.json.
type Metrics struct {
	file    *os.File
	history []json.RawMessage
}

// OpenMetrics starts the file with the lines of history and nothing else: nil for a new run, a checkpoint's
// log_history for a resumed one. Lines that a crashed run wrote after its last checkpoint, or half of one,
// are gone then. The file is replaced in one step.
func OpenMetrics(path string, history []json.RawMessage) (*Metrics, error) {
	var text bytes.Buffer
	for i, line := range history {
		if err := json.Compact(&text, line); err != nil {
			return nil, fmt.Errorf("start %s: line %d of the history is no JSON: %w", path, i+1, err)
		}
		text.WriteByte('\n')
	}
	if err := writeFileAtomically(path, text.Bytes()); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return &Metrics{file: f, history: slices.Clone(history)}, nil
}

// Append writes one line: a StepMetrics, EvalMetrics or EndMetrics. A number that JSON lacks, NaN or
// infinite, is written as null.
func (m *Metrics) Append(line any) error {
	data, err := encodeLine(line)
	if err != nil {
		return fmt.Errorf("write %s: %w", m.file.Name(), err)
	}
	m.history = append(m.history, data)
	if _, err := m.file.Write(append(slices.Clip(data), '\n')); err != nil {
		return fmt.Errorf("write %s: %w", m.file.Name(), err)
	}
	return nil
}

// History is every line so far, for State.LogHistory. The caller must not change it.
func (m *Metrics) History() []json.RawMessage { return slices.Clip(m.history) }

// Close makes the lines durable.
func (m *Metrics) Close() error {
	err := m.file.Sync()
	if cerr := m.file.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("close %s: %w", m.file.Name(), err)
	}
	return nil
}

// encodeLine is json.Marshal of a flat struct, in the order of its fields, with null for NaN and infinity.
func encodeLine(line any) ([]byte, error) {
	v := reflect.ValueOf(line)
	if v.Kind() != reflect.Struct {
		return nil, fmt.Errorf("a line is a struct of numbers, not %T", line)
	}
	b := bytes.NewBufferString("{")
	if err := encodeFields(b, v); err != nil {
		return nil, err
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// encodeFields writes a struct's fields, in place of an embedded pointer those of what it points at.
func encodeFields(b *bytes.Buffer, v reflect.Value) error {
	for i := range v.NumField() {
		f, t := v.Field(i), v.Type().Field(i)
		if t.Anonymous {
			if !f.IsNil() {
				if err := encodeFields(b, f.Elem()); err != nil {
					return err
				}
			}
			continue
		}
		name, _, _ := strings.Cut(t.Tag.Get("json"), ",")
		key, err := json.Marshal(name)
		if err != nil {
			return err
		}
		value := []byte("null")
		if !f.CanFloat() || !math.IsNaN(f.Float()) && !math.IsInf(f.Float(), 0) {
			if value, err = json.Marshal(f.Interface()); err != nil {
				return err
			}
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	return nil
}

// writeFileAtomically writes a file that is either the old one or the whole new one, whatever happens.
func writeFileAtomically(path string, data []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	return err
}

// syncDir makes the names in a folder durable, where the system can.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // folders can't be synced there
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
