package infer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/session"
)

// RewardModel scores answers to prompts: an adapter or a whole model with one score a text, such as training.objective:
// reward gives. It is not safe for concurrent use: one goroutine owns it.
type RewardModel struct{ *Predictor }

// Exchange is a prompt with an answer, in tokens of the reward model's tokenizer (RewardModel.Base.Tokenizer).
type Exchange struct{ Prompt, Answer []int32 }

// OpenRewardModel opens the reward model in a folder: an adapter's, or a whole model's. o.Model is the base model of an
// adapter; "" = the one that the adapter names. maxLen is the most tokens of prompt and answer together; 0 = as
// PredictorOptions.MaxLen.
func OpenRewardModel(ctx context.Context, dir string, maxLen int, o session.Options,
	env session.Env) (*RewardModel, error) {
	po := PredictorOptions{Name: dir, MaxLen: maxLen}
	if _, err := os.Stat(filepath.Join(dir, adapter.ConfigFile)); err != nil {
		o.Model = dir
	} else if po.Adapters = []NamedAdapter{{dir, dir}}; o.Model == "" {
		if o.Model, err = adapter.BaseModel(dir); err != nil {
			return nil, fmt.Errorf("open reward model %s: %w", dir, err)
		}
	}
	p, err := NewPredictor(ctx, o, po, env)
	if err != nil {
		return nil, fmt.Errorf("open reward model %s: %w", dir, err)
	}
	if task := p.models[0].Task; task.Type != adapter.SequenceClassification || task.Labels != 1 {
		err := fmt.Errorf("open reward model %s: it has task_type %s and %d labels, want %s and 1", dir, task.Type,
			task.Labels, adapter.SequenceClassification)
		return nil, errors.Join(err, p.Close())
	}
	return &RewardModel{p}, nil
}

// Scores returns the score of each exchange: that of its last token which is not the padding token, prompt and answer
// read as one text.
func (r *RewardModel) Scores(ctx context.Context, all []Exchange) ([]float64, error) {
	passages := make([]Passage, len(all))
	for i, e := range all {
		passages[i].IDs = append(append([]int32{}, e.Prompt...), e.Answer...)
	}
	out, err := r.Predict(ctx, passages)
	if err != nil {
		return nil, err
	}
	scores := make([]float64, len(out))
	for i, p := range out {
		scores[i] = float64(p.Numbers[0])
	}
	return scores, nil
}
