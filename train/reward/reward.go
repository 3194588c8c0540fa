// Package reward judges sampled answers: each Config names a judge, which gives an answer a number. A judge is built in
// (a regular expression, a count, an exact match, a number, a formula, a choice, a JSON Schema, a length, tags), a
// reward model that the caller opens, a program of the user's, or a server.
package reward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tierlora/tierlora/infer/jsonform"
	"github.com/tierlora/tierlora/internal/words"
)

// Config is one entry of the list rewards.
type Config struct {
	// Name of the reward in metrics and rollouts. Empty means its type.
	Name string `yaml:"name,omitempty" resume:"fixed"`
	// Type is the judge. regex: 1 where the pattern matches the answer, else 0. count: how often it matches.
	// exact_match: 1 where the answer equals the column, blanks at both ends aside. number: 1 where the answer's last
	// number, or that in \boxed{}, equals the column's. math: 1 where the answer's formula equals the column's,
	// however it is written. choice: 1 where the answer's letter is the column's. json_schema: 1 where the answer is
	// JSON that schema allows. length: minus the share by which the answer's characters differ from target. tags: 1
	// where the answer consists of the tags in their order. soft_overlong: 0 for answers that leave
	// soft_punish_cache tokens of max_completion_length, down to -1 at the whole length (DAPO). model: the score that a
	// reward model gives prompt and answer. command: the number that a program gives. http: the number that a server
	// gives. environment: the reward with which the program of the section environment ended the conversation.
	Type string `yaml:"type" choices:"regex count exact_match number math choice json_schema length tags soft_overlong model command http environment" resume:"fixed"`
	// Pattern is the regular expression of regex and count, in Go's syntax.
	Pattern string `yaml:"pattern,omitempty" resume:"fixed"`
	// Column is the column of the row that exact_match, number, math and choice compare with. Empty means answer.
	Column string `yaml:"column,omitempty" resume:"fixed"`
	// Tags are the names of the tags, such as think and answer.
	Tags []string `yaml:"tags" resume:"fixed"`
	// Schema is the JSON Schema of json_schema, as JSON.
	Schema string `yaml:"schema,omitempty" resume:"fixed"`
	// Target is the number of characters that length wants.
	Target int `yaml:"target,omitempty" range:"[0,inf)" resume:"fixed"`
	// SoftPunishCache is the number of tokens at the end of max_completion_length over which soft_overlong falls from 0
	// to -1.
	SoftPunishCache int `yaml:"soft_punish_cache,omitempty" range:"[0,inf)" resume:"fixed"`
	// Model is the folder of the reward model of the type model: a whole model or an adapter with one score a text,
	// such as training.objective: reward trains.
	Model string `yaml:"model,omitempty" resume:"fixed"`
	// MaxLength is the most tokens of prompt and answer together that model reads, in its own tokens; 0 =
	// dataset.max_length.
	MaxLength int `yaml:"max_length,omitempty" range:"[0,1048576]" resume:"fixed"`
	// Command is the program of the type command with its arguments. It reads a JSON line for each answer, with prompt,
	// completion and columns, and writes a line with a number, or null where it cannot judge. It keeps running and gets
	// no variable of the environment but PATH, HOME, LANG and TMPDIR.
	Command []string `yaml:"command" resume:"fixed"`
	// URL is the address that http sends answers to. It gets {"answers": [{"prompt", "completion", "columns"}, ...]}
	// and replies {"rewards": [number or null, ...]}.
	URL string `yaml:"url,omitempty" form:"address" resume:"fixed"`
	// AllowRemote lets http send prompts, answers and columns to another machine; false = loopback addresses only.
	AllowRemote bool `yaml:"allow_remote,omitempty" resume:"free"`
	// Batch is the most answers of a request of http.
	Batch int `yaml:"batch" default:"64" range:"[1,4096]" resume:"free"`
	// Retries is how often http repeats a request that failed with a network error, a timeout, 429 or 5xx.
	Retries int `yaml:"retries" default:"3" range:"[0,100]" resume:"free"`
	// Workers is how many copies of the program run, or requests of http are sent, at a time.
	Workers int `yaml:"workers" default:"1" range:"[1,256]" resume:"free"`
	// Timeout is how many seconds the program may take for an answer, after which it is killed and started anew, or the
	// server for a request.
	Timeout float64 `yaml:"timeout" default:"10" range:"(0,3600]" resume:"free"`
	// MemoryMiB bounds the address space of each copy of the program; 0 = unbounded.
	MemoryMiB int `yaml:"memory_mib,omitempty" range:"[0,1048576]" resume:"free"`
	// OnError says what becomes of an answer that the program or the server fails on: error ends the run, zero counts
	// it and gives 0.
	OnError string `yaml:"on_error" default:"error" choices:"error zero" resume:"steers"`
}

// Title returns the reward's name in metrics.
func (c Config) Title() string {
	if c.Name != "" {
		return c.Name
	}
	return c.Type
}

// Validate returns what is wrong with the values of a reward together. Each error begins with the key.
func (c Config) Validate() (problems []error) {
	bad := func(key, format string, args ...any) {
		problems = append(problems, fmt.Errorf(key+": "+format, args...))
	}
	if strings.ContainsAny(c.Title(), "/ \n") {
		bad("name", "%q is part of the name of a metric: leave out blanks and /", c.Title())
	}
	switch c.Type {
	case "regex", "count":
		if _, err := regexp.Compile(c.Pattern); c.Pattern == "" || err != nil {
			bad("pattern", "%q is no regular expression that matches anything in particular: %v", c.Pattern, err)
		}
	case "length":
		if c.Target == 0 {
			bad("target", "is 0: write how many characters an answer should have")
		}
	case "soft_overlong":
		if c.SoftPunishCache == 0 {
			bad("soft_punish_cache", "is 0: write over how many tokens before max_completion_length the reward falls")
		}
	case "tags":
		if len(c.Tags) == 0 {
			bad("tags", "are missing: name them, such as [think, answer]")
		}
	case "model":
		if c.Model == "" {
			bad("model", "is missing: name the folder of a reward model, such as runs/reward")
		}
	case "command":
		if len(c.Command) == 0 {
			bad("command", "is missing: name a program, such as [python3, reward.py]")
		}
	case "http":
		if problem := endpointProblem(c); problem != "" {
			bad("url", "%s", problem)
		}
	case "json_schema":
		if _, err := jsonform.Parse([]byte(c.Schema)); err != nil {
			bad("schema", "%q: %v", words.Clip(c.Schema, 80), err)
		}
	}
	return problems
}

// Answer is what a judge sees.
type Answer struct {
	Prompt     string          `json:"prompt"`
	Completion string          `json:"completion"`
	Columns    json.RawMessage `json:"columns"`
	// Messages are those behind the prompt, where the answer is a conversation with an environment. Completion is then
	// the model's last answer.
	Messages []json.RawMessage `json:"messages,omitempty"`
	// Environment is the reward that the environment gave; NaN = none.
	Environment float64 `json:"-"`
	Tokens      int     `json:"-"` // tokens of the completion, the end token included
	// PromptIDs and IDs are the tokens of the prompt and of the completion, in the trained model's ids.
	PromptIDs []int32 `json:"-"`
	IDs       []int32 `json:"-"`
	Ended     bool    `json:"-"` // the completion has an end token
}

// Scorer gives answers the scores of a reward model.
type Scorer interface {
	Score(ctx context.Context, answers []Answer) ([]float64, error)
}

// scored is the judge of a Scorer, which its owner closes.
type scored struct{ Scorer }

func (s scored) judge(ctx context.Context, answers []Answer) ([]float64, error) {
	return s.Score(ctx, answers)
}
func (scored) close() error { return nil }

// judge gives answers numbers; NaN = it cannot judge one.
type judge interface {
	judge(ctx context.Context, answers []Answer) ([]float64, error)
	close() error
}

// Rewards are the judges of a run.
type Rewards struct {
	configs []Config
	judges  []judge
	longest int // most tokens of an answer
	zeros   int
}

// Open starts the judges of answers of up to longest tokens. models has a Scorer for each reward of the type model, by
// its index.
func Open(configs []Config, longest int, models map[int]Scorer) (*Rewards, error) {
	r := &Rewards{configs: configs, longest: longest}
	for i, c := range configs {
		if problems := c.Validate(); len(problems) > 0 {
			return nil, errors.Join(problems...)
		}
		for _, other := range configs[:i] {
			if other.Title() == c.Title() {
				return nil, fmt.Errorf("rewards[%d].name: %q names another reward too: give each a name of its own", i,
					c.Title())
			}
		}
		if c.Type != "model" {
			r.judges = append(r.judges, r.judgeOf(c))
			continue
		}
		if models[i] == nil {
			return nil, fmt.Errorf("rewards[%d].model: %s is not open", i, c.Model)
		}
		r.judges = append(r.judges, scored{models[i]})
	}
	return r, nil
}

// judgeOf returns the judge of a configuration that Validate has nothing against.
func (r *Rewards) judgeOf(c Config) judge {
	switch c.Type {
	case "command":
		return newProgram(c, &r.zeros)
	case "http":
		return newEndpoint(c, &r.zeros)
	}
	b := builtIn{Config: c, pattern: patternOf(c), longest: r.longest}
	if c.Type == "json_schema" {
		b.schema, _ = jsonform.Parse([]byte(c.Schema)) // Validate parsed it
	}
	return b
}

// patternOf compiles the pattern of a reward that has one.
func patternOf(c Config) *regexp.Regexp {
	if c.Pattern == "" {
		return nil
	}
	return regexp.MustCompile(c.Pattern) // Validate compiled it
}

// Names are the names of the rewards, in the order of the configuration.
func (r *Rewards) Names() (names []string) {
	for _, c := range r.configs {
		names = append(names, c.Title())
	}
	return names
}

// Zeros is how many answers were given 0 because a program failed on them.
func (r *Rewards) Zeros() int { return r.zeros }

// Close ends the programs.
func (r *Rewards) Close() error {
	var all []error
	for _, j := range r.judges {
		all = append(all, j.close())
	}
	return errors.Join(all...)
}

// Judge returns each answer's rewards in the order of Names. NaN is a reward that could not be given.
func (r *Rewards) Judge(ctx context.Context, answers []Answer) ([][]float64, error) {
	all := make([][]float64, len(answers))
	for i := range all {
		all[i] = make([]float64, len(r.judges))
	}
	for k, j := range r.judges {
		numbers, err := j.judge(ctx, answers)
		if err != nil {
			return nil, fmt.Errorf("rewards[%d] (%s): %w", k, r.configs[k].Title(), err)
		}
		for i, x := range numbers {
			if math.IsInf(x, 0) {
				return nil, fmt.Errorf("rewards[%d] (%s): a reward is %v, want a finite number", k,
					r.configs[k].Title(), x)
			}
			all[i][k] = x
		}
	}
	return all, nil
}

// builtIn is a judge that needs no program.
type builtIn struct {
	Config
	pattern *regexp.Regexp
	schema  *jsonform.Schema
	longest int // most tokens of an answer
}

func (builtIn) close() error { return nil }

func (b builtIn) judge(_ context.Context, answers []Answer) ([]float64, error) {
	all := make([]float64, len(answers))
	for i, a := range answers {
		x, err := b.one(a)
		if err != nil {
			return nil, err
		}
		all[i] = x
	}
	return all, nil
}

// one judges an answer.
func (b builtIn) one(a Answer) (float64, error) {
	switch b.Type {
	case "regex":
		return truth(b.pattern.MatchString(a.Completion)), nil
	case "count":
		return float64(len(b.pattern.FindAllStringIndex(a.Completion, -1))), nil
	case "length":
		n := float64(len([]rune(a.Completion)))
		return -math.Abs(n-float64(b.Target)) / float64(b.Target), nil
	case "soft_overlong":
		return overlong(a.Tokens, b.longest, b.SoftPunishCache), nil
	case "environment":
		return a.Environment, nil
	case "tags":
		return truth(tagged(a.Completion, b.Tags)), nil
	case "json_schema":
		return truth(matches(b.schema, a.Completion)), nil
	}
	want, err := b.wanted(a)
	if err != nil {
		return 0, err
	}
	switch b.Type {
	case "number":
		right, known := Number(want)
		if !known {
			return math.NaN(), nil
		}
		own, ok := Number(a.Completion)
		return truth(ok && sameNumber(own, right)), nil
	case "math":
		return truth(SameMath(Math(a.Completion), Math(want))), nil
	case "choice":
		right, known := wantedChoice(want)
		if !known {
			return math.NaN(), nil
		}
		own, ok := Choice(a.Completion)
		return truth(ok && own == right), nil
	}
	return truth(strings.TrimSpace(a.Completion) == strings.TrimSpace(want)), nil
}

// maxJSON is the longest answer that matches a schema, in bytes.
const maxJSON = 1 << 20

// matches reports whether a text, perhaps in a fence of Markdown, is JSON that a schema allows.
func matches(schema *jsonform.Schema, text string) bool {
	text = strings.TrimSpace(text)
	if inner, ok := strings.CutPrefix(text, "```"); ok {
		_, inner, _ = strings.Cut(inner, "\n")
		text, _ = strings.CutSuffix(strings.TrimSpace(inner), "```")
	}
	var compact bytes.Buffer // the form of a schema bounds blanks
	if len(text) > maxJSON || json.Compact(&compact, []byte(text)) != nil {
		return false
	}
	at := schema.Start()
	for _, c := range compact.Bytes() {
		if !at.Next(c) {
			return false
		}
	}
	return at.Done()
}

// wanted returns the text of the column that an answer is compared with.
func (b builtIn) wanted(a Answer) (string, error) {
	column := b.Column
	if column == "" {
		column = "answer"
	}
	var row map[string]json.RawMessage
	if err := json.Unmarshal(a.Columns, &row); err != nil {
		return "", fmt.Errorf("the row is no JSON object: %w", err)
	}
	raw, ok := row[column]
	if !ok {
		return "", fmt.Errorf("column %q is missing in a row: name another by column", column)
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw) // a number
	}
	return text, nil
}

// overlong returns DAPO's soft overlong punishment of an answer: 0 up to longest minus cache tokens, then falling
// evenly to -1 at longest.
func overlong(tokens, longest, cache int) float64 {
	return 0 - min(1, max(0, float64(tokens-(longest-cache))/float64(cache)))
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// tagged reports whether a text consists of tags in their order, with any text within and only blanks between.
func tagged(text string, tags []string) bool {
	rest := strings.TrimSpace(text)
	for _, tag := range tags {
		inner, ok := strings.CutPrefix(rest, "<"+tag+">")
		if !ok {
			return false
		}
		before, after, ok := strings.Cut(inner, "</"+tag+">")
		if !ok || strings.Contains(before, "<"+tag+">") {
			return false
		}
		rest = strings.TrimSpace(after)
	}
	return rest == ""
}

// duration returns seconds as a time.Duration.
func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// environment is what a program of the user's gets of the trainer's variables: none that holds a secret.
func environment(all []string) (own []string) {
	for _, v := range all {
		name, _, _ := strings.Cut(v, "=")
		if slices.Contains([]string{"PATH", "HOME", "LANG", "TMPDIR"}, name) {
			own = append(own, v)
		}
	}
	return own
}
