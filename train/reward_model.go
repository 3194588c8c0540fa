package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/train/reward"
)

// rewardModel is a reward model that judges the answers of a run. It lies beside the run on the same machine.
type rewardModel struct {
	*infer.RewardModel
	title string
	same  bool // it has the tokens of the trained model
	chats bool // prompts are conversations, of text too (dataset.as_chat)
}

// openRewardModels plans the reward models that the run's rewards name. Every rank plans them, so that all agree on
// what is left of the memory; rank 0, which judges, loads them.
func (p *opened) openRewardModels(ctx context.Context) error {
	c, ok := samplesOf(p.spec)
	if !ok {
		return nil
	}
	for i, r := range c.Rewards {
		if r.Type != "model" {
			continue
		}
		bad := func(err error) error {
			return fmt.Errorf("%s.rewards[%d].model: %w", p.spec.Training.Objective, i, err)
		}
		o := session.Options{Device: p.spec.Device, Precision: p.spec.Training.Numbers()}
		longest := r.MaxLength
		if longest == 0 {
			longest = p.spec.Dataset.MaxLength
		}
		m, err := infer.PlanRewardModel(ctx, r.Model, longest, o, p.env.Env, p.On)
		if err != nil {
			return bad(err)
		}
		own := &rewardModel{RewardModel: m, title: r.Title(), same: session.SameTokens(m.Base, p.Base),
			chats: p.spec.Dataset.AsChat == "yes"}
		if p.rewardModels == nil {
			p.rewardModels = map[int]*rewardModel{}
		}
		p.rewardModels[i] = own
	}
	return nil
}

// loadRewardModels loads the reward models on the rank that judges, and returns them by the index of their rewards.
func (p *opened) loadRewardModels(ctx context.Context) (map[int]reward.Scorer, error) {
	all := map[int]reward.Scorer{}
	for i, m := range p.rewardModels {
		all[i] = m
		if !p.env.team.leads() {
			continue
		}
		if err := m.Load(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// closeRewardModels releases the reward models.
func (p *opened) closeRewardModels() error {
	var all []error
	for _, m := range p.rewardModels {
		all = append(all, m.Close())
	}
	p.rewardModels = nil
	return errors.Join(all...)
}

// rewardModelBytes returns the memory that the reward models take beside the run.
func (p *opened) rewardModelBytes() (bytes int64) {
	for _, m := range p.rewardModels {
		bytes += m.Need().Total()
	}
	return bytes
}

// notesOnRewardModels returns what the plan reports of reward models.
func (p *planner) notesOnRewardModels() (notes []string) {
	c, _ := samplesOf(p.spec)
	for i, r := range c.Rewards {
		if m := p.rewardModels[i]; m != nil {
			note := fmt.Sprintf("the reward model %s (reward %s) lies beside the run, in %s that the total leaves out "+
				"and the memory limit leaves free", r.Model, m.title, session.FormatBytes(m.Need().Total()))
			if !m.same {
				note += "; it has other tokens than the trained model and reads the text"
			}
			notes = append(notes, note)
		}
	}
	return notes
}

// Score returns the score of each answer behind its prompt. A model with the tokens of the trained one reads what was
// sampled, token by token. Another reads the conversation as its own chat template writes it, or the text.
func (m *rewardModel) Score(ctx context.Context, answers []reward.Answer) ([]float64, error) {
	all := make([]infer.Exchange, len(answers))
	for i, a := range answers {
		if m.same {
			all[i] = infer.Exchange{Prompt: a.PromptIDs, Answer: a.IDs}
		} else if err := m.write(&all[i], a); err != nil {
			return nil, err
		}
		if n := len(all[i].Prompt) + len(all[i].Answer); n > m.MaxLen() {
			return nil, fmt.Errorf("a prompt with its answer has %d tokens of the reward model, which reads %d: raise "+
				"max_length of the reward", n, m.MaxLen())
		}
	}
	return m.Scores(ctx, all)
}

// write sets the tokens that a model with other tokens reads.
func (m *rewardModel) write(e *infer.Exchange, a reward.Answer) error {
	conv, err := conversationIn(a.Columns)
	if err != nil {
		return err
	}
	if conv == nil && m.chats {
		conv = chat.Dialogue("", a.Prompt)
	}
	if conv == nil {
		*e = infer.Exchange{Prompt: m.Encode(a.Prompt), Answer: m.Encode(a.Completion)}
		return nil
	}
	if *e, err = m.ChatExchange(conv, a.Completion, a.Ended); err != nil {
		return fmt.Errorf("write the conversation as the reward model's chat template does: %w", err)
	}
	return nil
}

// conversationIn returns the messages before the answer of a row of the format prompts; nil = its prompt is a text.
func conversationIn(columns json.RawMessage) (*chat.Conversation, error) {
	var row map[string]json.RawMessage
	if json.Unmarshal(columns, &row) != nil {
		return nil, nil
	}
	for _, key := range []string{"prompt", "messages", "question", "problem", "instruction", "query"} {
		if text := row[key]; len(text) > 0 && text[0] == '[' {
			conv, err := chat.Read(chat.Raw{Key: key, Messages: text})
			if err != nil {
				return nil, err
			}
			if n := len(conv.Messages); n > 1 && conv.Messages[n-1].Role == "assistant" {
				conv = conv.Before(1)
			}
			return conv, nil
		}
	}
	return nil, nil
}
