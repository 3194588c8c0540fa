package train

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/tokenizer"
	"github.com/tierlora/tierlora/train/reward"
)

// talk is an answer that is being sampled. With an environment it goes on in turns: the model writes one, the
// environment replies with messages, whose tokens are not trained.
type talk struct {
	asked  askedPrompt
	answer int // number of the answer to its prompt
	place  int // index among the talks of the rank
	turns  int // answers of the model so far
	over   bool
	sampledAnswer
}

// converse samples answers until all are over. The environment sees the talks in their order.
func (w *sampledWindows) converse(ctx context.Context, all []*talk, how drawing) error {
	open := slices.Clone(all)
	for len(open) > 0 {
		if err := w.takeTurns(ctx, open, how); err != nil {
			return err
		}
		if w.environment == nil {
			return nil
		}
		if err := w.reply(ctx, open); err != nil {
			return err
		}
		open = slices.DeleteFunc(open, func(t *talk) bool { return t.over })
	}
	return nil
}

// takeTurns samples the model's next turn of each talk.
func (w *sampledWindows) takeTurns(ctx context.Context, open []*talk, how drawing) error {
	var questions []infer.Question
	for _, t := range open {
		most := w.MaxCompletionLength - len(t.IDs)
		if n := w.Environment.MaxTurnLength; n > 0 && w.environment != nil {
			most = min(most, n)
		}
		o := infer.GenerateOptions{MaxTokens: most, Temperature: how.temperature,
			Seed: answerSeed(w.run.spec.Seed, t.asked.epoch, t.asked.row, t.answer, t.turns)}
		ids := slices.Concat(t.asked.prompt.IDs, t.IDs)
		questions = append(questions, infer.Question{Prompt: infer.Prompt{IDs: ids}, Options: o})
	}
	answers, err := w.answers.Answer(ctx, questions, func() error {
		if w.run.interrupted() {
			return errInterrupted
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, t := range open {
		a := answers[i]
		t.IDs, t.Old = append(t.IDs, a.IDs...), append(t.Old, a.Logprobs...)
		t.Text, t.Ended, t.turns = a.Text, a.Ended, t.turns+1
	}
	return nil
}

// reply gives the environment the model's last turns and appends its messages. A talk is over when the environment says
// so, or when its turns or tokens are used up; then the environment gives the reward.
func (w *sampledWindows) reply(ctx context.Context, open []*talk) error {
	for _, t := range open {
		text, err := json.Marshal(map[string]string{"role": "assistant", "content": t.Text})
		if err != nil {
			return err
		}
		t.Messages = append(t.Messages, text)
	}
	replies, err := w.turn(ctx, open, func(t *talk) bool {
		return t.turns >= w.Environment.MaxTurns || len(t.IDs) >= w.MaxCompletionLength
	})
	if err != nil {
		return err
	}
	var long []*talk // what the environment said has no place, or leaves none for an answer
	for i, t := range open {
		if t.over {
			continue
		}
		given, err := w.tokensOf(t, replies[i].Messages)
		if err != nil {
			return fmt.Errorf("environment: %s on turn %d, the answer to %q: %w", w.Environment.Command[0], t.turns,
				w.run.Base.Tokenizer.Decode(t.asked.prompt.IDs, true), err)
		}
		if len(t.IDs)+len(given) >= w.MaxCompletionLength {
			long = append(long, t)
			continue
		}
		t.Messages = append(t.Messages, replies[i].Messages...)
		t.Given = append(t.Given, [2]int{len(t.IDs), len(t.IDs) + len(given)})
		t.IDs, t.Old = append(t.IDs, given...), append(t.Old, make([]float32, len(given))...)
	}
	_, err = w.turn(ctx, long, func(*talk) bool { return true })
	return err
}

// turn gives the environment a line for each talk and returns its replies. It ends the talks that are over, with their
// rewards.
func (w *sampledWindows) turn(ctx context.Context, open []*talk, last func(*talk) bool) ([]reward.Reply, error) {
	if len(open) == 0 {
		return nil, nil
	}
	var turns []reward.Turn
	for _, t := range open {
		turns = append(turns, reward.Turn{ID: fmt.Sprintf("%d.%d.%d", t.asked.epoch, t.asked.row, t.answer),
			Turn: t.turns, Last: last(t), Prompt: w.run.Base.Tokenizer.Decode(t.asked.prompt.IDs, true),
			Messages: t.Messages, Completion: t.Text, Columns: t.asked.prompt.Columns, Number: t.place})
	}
	replies, err := w.environment.Step(ctx, turns)
	if err != nil {
		return nil, fmt.Errorf("environment: %w", err)
	}
	for i, t := range open {
		if t.over = turns[i].Last || replies[i].Messages == nil; t.over {
			t.Reward = orNull(replies[i].Reward)
		}
	}
	return replies, nil
}

// tokensOf returns the tokens between the model's last turn and its next one: messages as the chat template writes
// them, or their texts where the prompt is a text.
func (w *sampledWindows) tokensOf(t *talk, messages []json.RawMessage) ([]int32, error) {
	conv, err := conversationIn(t.asked.prompt.Columns)
	if err != nil {
		return nil, err
	}
	list, err := json.Marshal(messages)
	if err != nil {
		return nil, err
	}
	if conv == nil && w.run.spec.Dataset.AsChat != "yes" {
		return plainTokens(w.run.Base.Tokenizer, list)
	}
	by, err := w.run.data.Chat()
	if err != nil {
		return nil, err
	}
	var row struct {
		Tools json.RawMessage `json:"tools"`
		Vars  json.RawMessage `json:"chat_template_kwargs"`
	}
	if err := json.Unmarshal(t.asked.prompt.Columns, &row); err != nil {
		return nil, err
	}
	ids, err := by.Continue(chat.Raw{Key: "messages", Messages: list, Tools: row.Tools, Vars: row.Vars})
	if err != nil {
		return nil, err
	}
	if t.Ended && len(ids) > 0 && ids[0] == t.IDs[len(t.IDs)-1] { // the model wrote the end of the turn itself
		ids = ids[1:]
	}
	return ids, nil
}

// plainTokens returns the tokens of the texts of messages, in which no special token is read.
func plainTokens(tok *tokenizer.Tokenizer, list []byte) ([]int32, error) {
	var messages []struct {
		Content string `json:"content"`
	}
	if err := json.Unmarshal(list, &messages); err != nil {
		return nil, err
	}
	var text strings.Builder
	for _, m := range messages {
		text.WriteString(m.Content)
	}
	whole := tokenizer.LocateOptions{Plain: [][2]int{{0, text.Len()}}}
	return tok.Locate(text.String(), whole).IDs, nil
}

// shown returns the text of an answer, of a conversation with the roles before the texts.
func (a sampledAnswer) shown() string {
	if len(a.Messages) < 2 {
		return a.Text
	}
	var text strings.Builder
	for _, raw := range a.Messages {
		var m struct{ Role, Content string }
		if json.Unmarshal(raw, &m) == nil {
			fmt.Fprintf(&text, "[%s] %s\n", m.Role, m.Content)
		}
	}
	return strings.TrimSuffix(text.String(), "\n")
}
