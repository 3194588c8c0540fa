package adapter

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/nn"
)

// PEFT's values of task_type for tasks other than predicting the next token.
const (
	SequenceClassification = "SEQ_CLS"
	TokenClassification    = "TOKEN_CLS"
	FeatureExtraction      = "FEATURE_EXTRACTION"
	causal                 = "CAUSAL_LM"
)

// Task is what an adapter is for. The zero value predicts the next token over the vocabulary.
type Task struct {
	// Type is PEFT's task_type; "" = CAUSAL_LM. A task of another type has no vocabulary head.
	Type string
	// Labels is the number of scores of a classification head [Labels,C], which is trained beside the adapter.
	Labels int
}

// HasScores reports whether the task has a classification head.
func (t Task) HasScores() bool {
	return t.Type == SequenceClassification || t.Type == TokenClassification
}

// Biased reports whether the classification head has a bias, as transformers' heads over tokens do.
func (t Task) Biased() bool { return t.Type == TokenClassification }

// Names of the tensors of a classification head, which is called score in transformers.
const (
	ScoreWeight = "score.weight"
	ScoreBias   = "score.bias"
)

// scoreModules are the modules_to_save that PEFT writes for a classification task: the names that heads may have.
var scoreModules = []string{"classifier", "score"}

// CheckWrites refuses a task whose model writes no text.
func (t Task) CheckWrites() error {
	if t.Type == "" {
		return nil
	}
	return fmt.Errorf("the adapter has task_type %s: it gives scores or vectors of texts, and no tokens; "+
		"only an adapter with task_type CAUSAL_LM can write text", t.Type)
}

// CheckScores refuses a task whose model gives no scores or vectors of texts.
func (t Task) CheckScores() error {
	if t.Type != "" {
		return nil
	}
	return errors.New("the adapter has task_type CAUSAL_LM: it writes text, and gives no scores or vectors of texts")
}

// modulesToSave returns the modules_to_save of adapter_config.json.
func (t Task) modulesToSave() []string {
	if t.HasScores() {
		return scoreModules
	}
	return nil
}

// taskType returns the task_type of adapter_config.json.
func (t Task) taskType() string {
	if t.Type == "" {
		return causal
	}
	return t.Type
}

// readTask returns the task of an adapter's file by its task_type and modules_to_save, and those of modules_to_save
// that are no head of the task. bad receives what is wrong.
func readTask(taskType string, saved []string, bad func(format string, args ...any)) (t Task, other []string) {
	switch taskType {
	case SequenceClassification, TokenClassification, FeatureExtraction:
		t.Type = taskType
	}
	own := t.modulesToSave()
	for _, name := range saved {
		if !slices.Contains(own, name) {
			other = append(other, name)
		}
	}
	if t.HasScores() && !slices.Contains(saved, "score") {
		bad("modules_to_save %v: an adapter with task_type %s has its head there, under the name score", saved, t.Type)
	}
	return t, other
}

// Scores declares the weight [Labels,C] of a task's head over a width of C and its bias [Labels], nil if there is none,
// as trained tensors of a network.
func (t Task) Scores(n *nn.Net, width int) (weight, bias *nn.Value) {
	weight = n.Train(n, ScoreWeight, kernel.T(n.Float(), t.Labels, width))
	if t.Biased() {
		bias = n.Train(n, ScoreBias, kernel.T(n.Float(), t.Labels))
	}
	return weight, bias
}

// peftTensor returns the name of a trained tensor in PEFT's files for a task. For FEATURE_EXTRACTION PEFT wraps the
// model without its head, whose names lack the first part.
func (t Task) peftTensor(name string) string {
	if t.Type == FeatureExtraction {
		name = strings.TrimPrefix(name, "model.")
	}
	return peftPrefix + name
}

// headShape reads the number of labels of a saved head. An adapter with task_type FEATURE_EXTRACTION whose tensors have
// the names of a whole model was trained on one, and predicts tokens.
func (s *Saved) headShape() error {
	if s.Config.Task.Type == FeatureExtraction && slices.ContainsFunc(s.file.Names(), func(name string) bool {
		return strings.HasPrefix(name, peftPrefix+"model.")
	}) {
		s.Config.Task = Task{}
	}
	if !s.Config.Task.HasScores() {
		return nil
	}
	t, ok := s.file.Tensor(peftPrefix + ScoreWeight)
	if !ok || len(t.Shape) != 2 || t.Shape[0] < 1 {
		return fmt.Errorf("its task_type is %s, and it has no tensor %s [labels, width]", s.Config.Task.Type,
			peftPrefix+ScoreWeight)
	}
	s.Config.Task.Labels = t.Shape[0]
	return nil
}

// ofHead reports whether a trained tensor is one of a classification head.
func ofHead(p Param) bool { return p.Name == ScoreWeight || p.Name == ScoreBias }

// headStd is the standard deviation of a fresh head's weight, transformers' initializer_range.
const headStd = 0.02

// fillHead gives the tensors of a fresh head, which the checkpoint lacks, their first numbers: normal ones, and a bias
// of zero.
func (s *Start) fillHead(n *nn.Net, t *Trained, params []Param) {
	if !slices.Contains(t.base, ScoreWeight) {
		return
	}
	for _, p := range params {
		if _, loaded := n.Weight(p.Name); p.Name != ScoreWeight || loaded {
			continue
		}
		next := Fresh{seed: s.seed}.Uniform(p.Name)
		for i := range p.Data {
			p.Data[i] = float32(headStd * math.Sqrt(-2*math.Log(1-next())) * math.Cos(2*math.Pi*next()))
		}
	}
}
