package infer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/graph"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
)

// RewardModel scores answers to prompts: an adapter or a whole model with one score a text, such as training.objective:
// reward gives. It is not safe for concurrent use: one goroutine owns it.
type RewardModel struct {
	*Predictor
	dir   string
	lends bool       // the machine belongs to another session
	chat  *chat.Chat // template of the model; nil = not read yet
}

// Exchange is a prompt with an answer, in tokens of the reward model's tokenizer (RewardModel.Base.Tokenizer).
type Exchange struct{ Prompt, Answer []int32 }

// OpenRewardModel opens the reward model in a folder: an adapter's, or a whole model's. o.Model is the base model of an
// adapter; "" = the one that the adapter names. maxLen is the most tokens of prompt and answer together; 0 = as
// PredictorOptions.MaxLen.
func OpenRewardModel(ctx context.Context, dir string, maxLen int, o session.Options,
	env session.Env) (*RewardModel, error) {
	on, err := session.OpenMachine(o.Device, o.Precision, env)
	if err != nil {
		return nil, err
	}
	r, err := PlanRewardModel(ctx, dir, maxLen, o, env, on)
	if err != nil {
		return nil, errors.Join(err, on.Close())
	}
	r.lends = false
	if err := r.Load(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// PlanRewardModel is OpenRewardModel on a machine that another session owns, without memory: Need says what Load will
// allocate.
func PlanRewardModel(ctx context.Context, dir string, maxLen int, o session.Options, env session.Env,
	on graph.Machine) (*RewardModel, error) {
	po := PredictorOptions{Name: dir, MaxLen: maxLen}
	if _, err := os.Stat(filepath.Join(dir, adapter.ConfigFile)); err != nil {
		o.Model = dir
	} else if po.Adapters = []NamedAdapter{{dir, dir}}; o.Model == "" {
		if o.Model, err = adapter.BaseModel(dir); err != nil {
			return nil, fmt.Errorf("open reward model %s: %w", dir, err)
		}
	}
	s, err := session.OpenOn(ctx, o, env, nil)
	if err != nil {
		return nil, fmt.Errorf("open reward model %s: %w", dir, err)
	}
	s.On = on
	p, err := predictorOn(s, po)
	if err != nil {
		s.On = nil
		return nil, fmt.Errorf("open reward model %s: %w", dir, errors.Join(err, s.Close()))
	}
	r := &RewardModel{Predictor: p, dir: dir, lends: true}
	if task := p.models[0].Task; task.Type != adapter.SequenceClassification || task.Labels != 1 {
		err := fmt.Errorf("open reward model %s: it has task_type %s and %d labels, want %s and 1", dir, task.Type,
			task.Labels, adapter.SequenceClassification)
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// Load allocates the memory of a planned reward model and loads its weights.
func (r *RewardModel) Load(ctx context.Context) error {
	if err := r.hold(ctx); err != nil {
		return fmt.Errorf("load reward model %s: %w", r.dir, err)
	}
	return nil
}

// Close releases the memory and the mapped weights, and the machine unless another session owns it.
func (r *RewardModel) Close() error {
	if !r.lends {
		return r.Predictor.Close()
	}
	err := r.release()
	r.On = nil
	return errors.Join(err, r.Session.Close())
}

// Encode returns the tokens of a text.
func (r *RewardModel) Encode(text string) []int32 { return r.Base.Tokenizer.Encode(text, false).IDs }

// ChatExchange returns a conversation and the answer that continues it as the model's chat template writes them. ended
// says that the answer is complete, so that the template's end of a turn follows it.
func (r *RewardModel) ChatExchange(conv *chat.Conversation, answer string, ended bool) (e Exchange, err error) {
	if r.chat == nil {
		dir := ""
		if r.dir != r.Base.Dir {
			dir = r.dir
		}
		if r.chat, err = readChat(r.Session, dir, ""); err != nil {
			return e, err
		}
	}
	prompt, err := ChatPrompt(r.chat, r.Base.Tokenizer, conv)
	if err != nil {
		return e, err
	}
	e = Exchange{Prompt: prompt.IDs, Answer: r.Encode(answer)}
	if ended && len(prompt.Ends) > 0 {
		e.Answer = append(e.Answer, prompt.Ends[0])
	}
	return e, nil
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
