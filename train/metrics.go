package train

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"

	"github.com/tierlora/tierlora/train/objective"
)

// MetricsFile is the name of the metrics in a run's output folder: JSON lines.
const MetricsFile = "metrics.jsonl"

// StepMetrics is a line about training. Steps count from 1; the line is written after the update.
type StepMetrics struct {
	Step  int     `json:"step"`
	Epoch float64 `json:"epoch"`
	// Loss is the mean over the trained tokens since the last line.
	Loss float64 `json:"loss"`
	// Numbers are the objective's numbers over the same steps as Loss.
	Numbers Values `json:"-"`
	// GradNorm is the global norm before clipping, GradNormClipped the norm after it.
	GradNorm        float64 `json:"grad_norm"`
	GradNormClipped float64 `json:"grad_norm_clipped"`
	LearningRate    float64 `json:"learning_rate"`
	TokensSeen      int64   `json:"num_input_tokens_seen"`
	// TokensPerSecond is the mean throughput of the process's steps, without evaluations, samples and saves.
	TokensPerSecond float64 `json:"tokens/train_per_sec_per_gpu"`
	// Seconds is the time since the process began its first step, including evaluations and saves. ResumedFrom is the
	// step that the process resumed after; 0 = it began from the start.
	Seconds     float64 `json:"train_seconds"`
	ResumedFrom int     `json:"resumed_from"`
	// DataMs is the mean of the host's time to make a step's batches since the last line, in ms. A GPU computes during
	// that time.
	DataMs          float64 `json:"data_ms"`
	TokensTotal     int64   `json:"tokens/total"`
	TokensTrainable int64   `json:"tokens/trainable"`
	MemoryGiB       float64 `json:"memory/max_allocated (GiB)"`
	*LossScaling            // nil = no loss scaling
	*SkippedSteps           // nil = no step was skipped
}

// Values are the named numbers of an objective. A line of metrics.jsonl has each number under its own name.
type Values []objective.Value

// evalPrefix is the prefix of the names of an evaluation's numbers.
const evalPrefix = "eval_"

// of returns the same values with a prefix before their names.
func (all Values) of(prefix string) Values {
	named := make(Values, len(all))
	for i, v := range all {
		named[i] = objective.Value{Name: prefix + v.Name, Value: v.Value}
	}
	return named
}

// LossScaling is the loss scale after a step, with the number of steps so far whose gradient overflowed.
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

// SkippedSteps is the number of steps so far that training.on_nonfinite: skip left out.
type SkippedSteps struct {
	Count int `json:"nonfinite_steps"`
}

func skippedMetrics(n int) *SkippedSteps {
	if n == 0 {
		return nil
	}
	return &SkippedSteps{n}
}

// EvalMetrics is a line about the validation rows.
type EvalMetrics struct {
	Step  int     `json:"step"`
	Epoch float64 `json:"epoch"`
	Loss  float64 `json:"eval_loss"`
	// The objective's numbers over the same rows as Loss; their names begin with eval_.
	Numbers          Values  `json:"-"`
	Runtime          float64 `json:"eval_runtime"` // time of the evaluation in seconds
	SamplesPerSecond float64 `json:"eval_samples_per_second"`
	StepsPerSecond   float64 `json:"eval_steps_per_second"`
}

// TaskMetrics is a line about a metric of one of training.eval_tasks.
type TaskMetrics struct {
	Step      int     `json:"step"`
	Epoch     float64 `json:"epoch"`
	Task      string  `json:"task"`
	Metric    string  `json:"metric"`
	Value     float64 `json:"value"` // mean over the questions of the task
	StdErr    float64 `json:"stderr"`
	Questions int     `json:"questions"`
}

// EndMetrics is the last line of a finished run.
type EndMetrics struct {
	Step             int     `json:"step"`
	Epoch            float64 `json:"epoch"`
	Loss             float64 `json:"train_loss"`    // mean loss over the trained tokens of the whole run
	Runtime          float64 `json:"train_runtime"` // time of the run in seconds
	SamplesPerSecond float64 `json:"train_samples_per_second"`
	StepsPerSecond   float64 `json:"train_steps_per_second"`
	DataSeconds      float64 `json:"train_data_runtime"` // seconds of the run in which the host made batches
}

// encodeLine encodes a flat struct as JSON in the order of its fields, with null for NaN and infinity.
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

// encodeFields writes a struct's fields. An embedded pointer contributes the fields of the struct that it points to.
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
		if values, ok := f.Interface().(Values); ok {
			for _, v := range values {
				if err := encodeField(b, v.Name, reflect.ValueOf(v.Value)); err != nil {
					return err
				}
			}
			continue
		}
		name, _, _ := strings.Cut(t.Tag.Get("json"), ",")
		if err := encodeField(b, name, f); err != nil {
			return err
		}
	}
	return nil
}

// encodeField writes a key and its value.
func encodeField(b *bytes.Buffer, name string, f reflect.Value) error {
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
	return nil
}
