// Package tasks asks a model questions with known answers and scores its replies. A task defines the questions, the
// prompts and the scoring.
package tasks

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/internal/regular"
)

// Task is a task file in YAML or JSON. In Prompt, Answer and Choices, {{ field }} is replaced by a field of the row, {{
// meta.topic }} by a field inside another.
type Task struct {
	Name string `yaml:"name"` // name in reports; empty = the file's
	Kind string `yaml:"kind"` // one of Kinds
	Data string `yaml:"data"` // file, folder, pattern, hub data set or embedded:NAME
	// in the notation of the datasets library; empty = train, or the only split
	Split      string   `yaml:"split"`
	System     string   `yaml:"system"`        // system message, for chat only
	Prompt     string   `yaml:"prompt"`        // the question
	Answer     string   `yaml:"answer"`        // the right answer, also for examples
	Chat       string   `yaml:"chat"`          // ChatAuto, ChatAlways or ChatNever; empty = auto
	FewShot    int      `yaml:"few_shot"`      // solved examples before each question
	FewData    string   `yaml:"few_shot_data"` // source of the examples; empty = other rows of Data
	Seed       uint64   `yaml:"few_shot_seed"`
	Limit      int      `yaml:"limit"`      // ask only the first questions; 0 = all
	MaxTokens  int      `yaml:"max_tokens"` // most tokens of an answer; 0 = DefaultMaxTokens
	Stop       []string `yaml:"stop"`       // texts that end an answer
	IgnoreCase bool     `yaml:"ignore_case"`
	Regex      string   `yaml:"regex"`         // of the kind regex: its first group, or all of it, is the answer
	Choices    []string `yaml:"choices"`       // of the kind multiple_choice
	ChoiceKey  string   `yaml:"choices_field"` // instead of Choices: a field with a list of texts
	Gold       string   `yaml:"gold_field"`    // field with the right choice: its index from 0, its letter, or its text
	// Images is a field with the images of the question: a path beside the data, a data: URI, or a list of them. They
	// come before the prompt, or in the places of its <image> marks. Empty = the questions have no images.
	Images string `yaml:"images_field"`
}

// Values of Task.Chat.
const (
	ChatAuto   = "auto"   // by the model's chat template where it has one
	ChatAlways = "always" // an error where it has none
	ChatNever  = "never"
)

const (
	// DefaultMaxTokens is Task.MaxTokens where a task says none.
	DefaultMaxTokens = 256
	maxFewShot       = 64
	maxFile          = 1 << 20
	maxQuestions     = 1 << 20
)

// Kind is how answers are scored.
type Kind struct {
	About  string
	Check  func(t *Task) error                          // more than every task needs; nil = nothing
	Score  func(t *Task, expected, answer string) Score // nil: choices are compared by their likelihood
	Expect func(t *Task, expected string) error         // refuses an expected answer that cannot be matched; nil = none
}

// Score is what became of an answer.
type Score struct {
	Extracted string             // what was compared
	Metrics   map[string]float64 // 0 to 1
}

// Kinds lists what a task can be.
var Kinds = map[string]Kind{
	"exact_match":     exactMatch,
	"contains":        contains,
	"regex":           regex,
	"gsm8k":           gsm8k,
	"multiple_choice": multipleChoice,
}

func known[V any](table map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(table)), ", ")
}

// Find is a built-in task, or that of a file: a name that ends in .yaml, .yml or .json, or has a path separator.
func Find(name string) (*Task, error) {
	ext := strings.ToLower(filepath.Ext(name))
	if ext != ".yaml" && ext != ".yml" && ext != ".json" && !strings.ContainsAny(name, `/\`) {
		text, ok := builtIn[name]
		if !ok {
			return nil,
				fmt.Errorf("there is no task %q: the built-in ones are %s; a task of your own is a .yaml or .json file",
					name, known(builtIn))
		}
		return Parse(name, []byte(text))
	}
	f, err := regular.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the task: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the task: %w", err)
	case len(text) > maxFile:
		return nil, fmt.Errorf("task %s: the file is larger than %d bytes", name, maxFile)
	}
	return Parse(name, text)
}

// Parse reads a task file; name is what errors call it.
func Parse(name string, text []byte) (*Task, error) {
	t := &Task{Chat: ChatAuto, Seed: 42, MaxTokens: DefaultMaxTokens}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(t); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("task %s: the file is empty", name)
	} else if err != nil {
		return nil, fmt.Errorf("task %s: %s", name, strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "),
			" in type tasks.Task", ": no task has this key"))
	}
	if t.Name == "" {
		t.Name = strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	}
	if err := t.Check(); err != nil {
		return nil, fmt.Errorf("task %s: %w", name, err)
	}
	return t, nil
}

// Check tells all that is wrong with a task.
func (t *Task) Check() error { return errors.Join(t.problems()...) }

func (t *Task) problems() (problems []error) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	kind, ok := Kinds[t.Kind]
	if !ok {
		bad("kind: %q is not one of %s", t.Kind, known(Kinds))
	}
	if t.Data == "" {
		bad("data is missing: name a file, a hub data set or embedded:NAME")
	}
	if t.Prompt == "" {
		bad("prompt is missing: write the question, such as \"Question: {{ question }}\\nAnswer:\"")
	}
	if !slices.Contains([]string{ChatAuto, ChatAlways, ChatNever}, t.Chat) {
		bad("chat: %q is not one of auto, always, never", t.Chat)
	}
	if t.Images != "" && t.Chat == ChatNever {
		bad("images_field: images need the model's chat template: remove chat: never")
	}
	if t.FewShot < 0 || t.FewShot > maxFewShot {
		bad("few_shot: %d must lie in 0 to %d", t.FewShot, maxFewShot)
	}
	if t.Limit < 0 {
		bad("limit: %d must be 0 or more", t.Limit)
	}
	if t.MaxTokens < 1 {
		bad("max_tokens: %d must be at least 1", t.MaxTokens)
	}
	if err := infer.CheckStops(t.Stop); err != nil {
		bad("stop: %w", err)
	}
	for _, text := range append([]string{t.Prompt, t.Answer, t.System}, t.Choices...) {
		if err := checkTemplate(text); err != nil {
			problems = append(problems, err)
		}
	}
	if !ok {
		return problems
	}
	if kind.Score != nil {
		if t.Answer == "" {
			bad("answer is missing: write the right answer, such as \"{{ answer }}\"")
		}
		if len(t.Choices) > 0 || t.ChoiceKey != "" || t.Gold != "" {
			bad("choices, choices_field and gold_field do nothing in a task of kind %s: remove them", t.Kind)
		}
	}
	if t.Regex != "" && t.Kind != "regex" {
		bad("regex does nothing in a task of kind %s: remove it", t.Kind)
	}
	if kind.Check != nil {
		if err := kind.Check(t); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}
