package reward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
)

// EnvironmentConfig is the section environment: a program that answers the model's answers, so that a conversation has
// several turns.
type EnvironmentConfig struct {
	// Command is the program of the environment with its arguments. It reads a JSON line after each answer of the
	// model, with id, turn, last, prompt, messages, completion and columns, and writes {"messages": [...]}, which the
	// model answers next, or {"done": true, "reward": number or null}. Empty = a conversation ends with the first
	// answer.
	Command []string `yaml:"command" resume:"fixed"`
	// MaxTurns is the most answers of the model in a conversation.
	MaxTurns int `yaml:"max_turns" default:"8" range:"[1,1000]" resume:"fixed"`
	// MaxTurnLength is the most tokens of one answer in a conversation; 0 = what max_completion_length leaves.
	MaxTurnLength int `yaml:"max_turn_length" range:"[0,1048576]" resume:"fixed"`
	// Workers is how many copies of the program run at a time, on each rank. A conversation stays with one copy.
	Workers int `yaml:"workers" default:"1" range:"[1,256]" resume:"free"`
	// Timeout is how many seconds the program may take for a line, after which it is killed and started anew.
	Timeout float64 `yaml:"timeout" default:"10" range:"(0,3600]" resume:"free"`
	// MemoryMiB bounds the address space of each copy of the program; 0 = unbounded.
	MemoryMiB int `yaml:"memory_mib" range:"[0,1048576]" resume:"free"`
	// OnError says what becomes of a conversation that the program fails on: error ends the run, zero counts it and
	// ends the conversation with a reward of 0.
	OnError string `yaml:"on_error" default:"error" choices:"error zero" resume:"steers"`
}

// Turn is what the program of an environment sees after an answer of the model.
type Turn struct {
	// ID names the conversation: the epoch, the prompt's row and the answer's number. A line with turn 1 begins it
	// anew.
	ID   string `json:"id"`
	Turn int    `json:"turn"` // answers of the model so far
	// Last says that the model answers no more, because the turns or the tokens are used up.
	Last     bool              `json:"last"`
	Prompt   string            `json:"prompt"`
	Messages []json.RawMessage `json:"messages"` // all messages behind the prompt; the last is the model's answer
	// Completion is the model's last answer.
	Completion string          `json:"completion"`
	Columns    json.RawMessage `json:"columns"`
	Number     int             `json:"-"` // the conversation's place among those of the rank, which chooses its worker
}

// Reply is what the program says to a Turn: messages that the model answers, or the end with a reward.
type Reply struct {
	Messages []json.RawMessage // nil = the conversation is over
	Reward   float64           // NaN = none was given
}

// Environment is the open program of an EnvironmentConfig.
type Environment struct {
	config  Config
	workers []*worker
	zeros   int
}

// OpenEnvironment returns the environment of a configuration; nil if it has no command. Its programs start with the
// first turn.
func OpenEnvironment(c EnvironmentConfig) *Environment {
	if len(c.Command) == 0 {
		return nil
	}
	own := Config{Command: c.Command, Workers: c.Workers, Timeout: c.Timeout, MemoryMiB: c.MemoryMiB,
		OnError: c.OnError}
	return &Environment{config: own, workers: newProgram(own, nil).workers}
}

// Zeros is how many conversations ended with a reward of 0 because the program failed on them.
func (e *Environment) Zeros() int { return e.zeros }

// Close ends the programs.
func (e *Environment) Close() error {
	if e != nil {
		for _, w := range e.workers {
			w.end()
		}
	}
	return nil
}

// Step returns the replies to turns of different conversations. A worker gets its conversations in their order.
func (e *Environment) Step(ctx context.Context, turns []Turn) ([]Reply, error) {
	replies, problems := make([]Reply, len(turns)), make([]error, len(turns))
	_, err := e.config.inParallel(ctx, len(e.workers), func(own, _ int) error {
		for i, t := range turns {
			if t.Number%len(e.workers) != own || ctx.Err() != nil {
				continue
			}
			text, err := e.workers[own].reply(ctx, t, "line")
			if err == nil {
				replies[i], err = parseTurn(text, t.Last)
			}
			if problems[i] = err; err != nil && e.config.OnError != "zero" {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, err := range problems {
		if err == nil {
			continue
		}
		if e.config.OnError != "zero" {
			return nil, fmt.Errorf("%s on turn %d, the answer %q: %w; on_error: zero would count it and go on",
				e.config.Command[0], turns[i].Turn, words.Clip(turns[i].Completion, 80), err)
		}
		replies[i] = Reply{}
		e.zeros++
	}
	return replies, nil
}

// parseTurn reads a line of the program. last says that no answer follows, so that messages are left out.
func parseTurn(line string, last bool) (r Reply, err error) {
	var read struct {
		Messages []json.RawMessage `json:"messages"`
		Done     bool              `json:"done"`
		Reward   *float64          `json:"reward"`
	}
	r.Reward = math.NaN()
	d := json.NewDecoder(strings.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&read); err != nil || d.More() {
		return r, fmt.Errorf(`it wrote %q, want {"messages": [...]} or {"done": true, "reward": number or null}`,
			words.Clip(line, 80))
	}
	if read.Reward != nil {
		r.Reward = *read.Reward
	}
	switch {
	case last:
		return r, nil
	case read.Done && len(read.Messages) > 0:
		return r, errors.New("it wrote done and messages: write messages to go on, or done to end")
	case read.Done:
		return r, nil
	case len(read.Messages) == 0:
		return r, errors.New("it wrote neither messages nor done: write messages to go on, or done to end")
	case read.Reward != nil:
		return r, errors.New("it wrote a reward with messages: a reward is given at the end, with done")
	}
	for i, raw := range read.Messages {
		var m struct {
			Role    string  `json:"role"`
			Content *string `json:"content"`
		}
		err := json.Unmarshal(raw, &m)
		if err != nil || m.Content == nil || !slices.Contains([]string{"tool", "user", "system"}, m.Role) {
			return r, fmt.Errorf("messages[%d] is %s, want an object with role (tool, user or system) and content, a "+
				"text", i, words.Clip(string(raw), 80))
		}
	}
	r.Messages = read.Messages
	return r, nil
}
