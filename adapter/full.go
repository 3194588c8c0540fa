package adapter

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Full is the section full of a run's configuration, for the method that trains weights of the base model itself.
type Full struct {
	// Train selects the weights to train; the others stay as they are. Each entry is the name of a weight or layer, or a
	// part of it between dots, or a regular expression in Python's syntax for one: lm_head, layers.3,
	// self_attn.v_proj.weight, layers.(1[0-9]).mlp. Lists that Spectrum writes work as they are. Empty means all
	// weights.
	Train []string `yaml:"train,omitempty" resume:"fixed"`
	// StochasticRounding trains matrices that a GPU stores in bf16 alone, without masters in fp32: 4 bytes less for each
	// weight. An update rounds each new weight up or down at random, with the probabilities that keep its mean, so that
	// updates below bf16's steps are not lost. Norms and biases stay in fp32. The random bits depend on seed, step and
	// place of the weight alone. Training is noisier than with masters, so false is the default.
	StochasticRounding bool `yaml:"stochastic_rounding" resume:"fixed"`
}

// fullSection returns the section full as the method reads it.
func fullSection(s Sections) Config { return Config{Own: s.Full} }

func (Full) section() string { return fullSectionName }

func (Full) scale(float64, float64) float64 { return 1 }

func (Full) problems(Config) []error { return nil }

// standalone returns the section's problems; it has none of the shared keys.
func (f Full) standalone() (problems []error) {
	for i, text := range f.Train {
		switch _, err := between(text); {
		case text == "" || slices.Contains(f.Train[:i], text):
			problems = append(problems, fmt.Errorf("full.train: %q is empty or stands there twice", text))
		case err != nil:
			problems = append(problems, fmt.Errorf("full.train: %q is no regular expression: %v", text, err))
		}
	}
	return problems
}

// between is an expression that must match a part of a name between dots.
func between(text string) (*pattern, error) { return compile(`(?:^|\.)(?:`, text, `)(?:$|\.)`) }

// trains returns what reports whether a weight is trained, by its name in the checkpoint.
func (f Full) trains() func(name string) bool {
	if len(f.Train) == 0 {
		return func(string) bool { return true }
	}
	return func(name string) bool {
		return slices.ContainsFunc(f.Train, func(text string) bool { return MatchesBetween(text, name) })
	}
}

// MatchesBetween reports whether a part of a tensor's name between dots, or several of them, match a pattern: a name,
// or a regular expression in Python's syntax.
func MatchesBetween(pattern, name string) bool {
	p, err := between(pattern)
	return err == nil && p.match(name)
}

// CheckPattern returns what is wrong with a pattern of MatchesBetween.
func CheckPattern(pattern string) error {
	if pattern == "" {
		return errors.New("is empty")
	}
	_, err := between(pattern)
	return err
}

// summary describes what is trained.
func (f Full) summary(Config) string {
	if len(f.Train) == 0 {
		return "all weights of the base model"
	}
	return fmt.Sprintf("the base model's weights %v", f.Train)
}

// check refuses patterns that select none of the model's weights.
func (f Full) check(weights []string) error {
	for _, text := range f.Train {
		if p, err := between(text); err == nil && p.err() != nil {
			return fmt.Errorf("full.train: %w", p.err())
		}
		if slices.ContainsFunc(weights, func(name string) bool { return MatchesBetween(text, name) }) {
			continue
		}
		return fmt.Errorf("full.train: %q matches no weight of the model, which has %d such as %s", text, len(weights),
			strings.Join(weights[:min(3, len(weights))], ", "))
	}
	return nil
}

// RoundsStochastically reports whether a configuration keeps trained matrices in bf16 alone and rounds them at random.
func RoundsStochastically(c Config) bool {
	own, _ := c.Own.(Full)
	return own.StochasticRounding
}

// Whole reports that a run of the method trains weights of the base model and nothing beside them, so that it writes a
// model and no adapter.
func (m Method) Whole() bool { return m.Trains != nil && m.Wrap == nil }
