package checkpoint

import (
	"encoding/json"
	"fmt"
	"math"
)

// State is the content of trainer_state.json: the fields of transformers' file of that name, and our cursor.
type State struct {
	GlobalStep          int               `json:"global_step"` // number of finished optimizer steps
	Epoch               float64           `json:"epoch"`
	MaxSteps            int               `json:"max_steps"`
	TokensSeen          int64             `json:"num_input_tokens_seen"`
	BestMetric          *float64          `json:"best_metric"`           // metric of the best evaluation; null before the first
	BestModelCheckpoint string            `json:"best_model_checkpoint"` // folder name of the best checkpoint, or ""
	LogHistory          []json.RawMessage `json:"log_history"`           // lines of metrics.jsonl
	Cursor              json.RawMessage   `json:"data_cursor,omitempty"` // position of the next batch in the data
}

// Better records the metric of an evaluation at the state's step and reports whether it is the best so far: the lowest,
// or the highest if higherIsBetter. If so, this step's checkpoint is the best one and must be saved.
func (s *State) Better(metric float64, higherIsBetter bool) bool {
	if math.IsNaN(metric) || math.IsInf(metric, 0) {
		return false
	}
	if was := s.BestMetric; was != nil && (higherIsBetter && metric <= *was || !higherIsBetter && metric >= *was) {
		return false
	}
	s.BestMetric, s.BestModelCheckpoint = &metric, Name(s.GlobalStep)
	return true
}

// Bytes returns the state as the content of trainer_state.json.
func (s State) Bytes() ([]byte, error) {
	if s.LogHistory == nil {
		s.LogHistory = []json.RawMessage{}
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", StateFile, err)
	}
	return append(data, '\n'), nil
}
