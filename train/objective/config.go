package objective

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/keys"
)

// Config holds the section of each objective that has settings, as a configuration has them at its top level. A nil
// section is not there: its objective has the defaults of the section's keys.
type Config struct {
	// SmoothedCrossEntropy is label smoothing and z-loss for training.objective: smoothed_cross_entropy.
	SmoothedCrossEntropy *SmoothedConfig `yaml:"smoothed_cross_entropy,omitempty"`
	// Focal is the exponent for training.objective: focal.
	Focal *FocalConfig `yaml:"focal,omitempty"`
	// Distill is the teacher and the divergence from it for training.objective: distill.
	Distill *DistillConfig `yaml:"distill,omitempty"`
	// DPO is the loss of preference pairs for training.objective: dpo.
	DPO *DPOConfig `yaml:"dpo,omitempty"`
	// CPO is the loss of preference pairs for training.objective: cpo.
	CPO *CPOConfig `yaml:"cpo,omitempty"`
	// SimPO is the loss of preference pairs for training.objective: simpo.
	SimPO *SimPOConfig `yaml:"simpo,omitempty"`
	// ORPO is the loss of preference pairs for training.objective: orpo.
	ORPO *ORPOConfig `yaml:"orpo,omitempty"`
	// GRPO is the loss of sampled answers for training.objective: grpo.
	GRPO *GRPOConfig `yaml:"grpo,omitempty"`
	// RLOO is the loss of sampled answers for training.objective: rloo.
	RLOO *RLOOConfig `yaml:"rloo,omitempty"`
	// KTO is the loss of labelled answers for training.objective: kto.
	KTO *KTOConfig `yaml:"kto,omitempty"`
	// Reward is the loss of a reward model's preference pairs for training.objective: reward.
	Reward *RewardConfig `yaml:"reward,omitempty"`
	// Classification is what rows or tokens have a label of, for training.objective: classification and
	// token_classification.
	Classification *ClassificationConfig `yaml:"classification,omitempty"`
	// Embedding is how a text becomes a vector and how vectors are compared, for training.objective: contrastive.
	Embedding *EmbeddingConfig `yaml:"embedding,omitempty"`
}

// section is a field of Config.
type section interface {
	// problems returns what is wrong with the values of a section together, each error beginning with its key. Each
	// value by itself is checked by the range or the choices of its key.
	problems() []error
}

// shared is an optional capability of a section that objectives of other names than the section's take settings from.
type shared interface {
	// objectives are the names of the objectives in Objectives that use the section.
	objectives() []string
}

// partlyInert is an optional capability of a section whose keys can switch one another off.
type partlyInert interface {
	// inert returns such keys, whether they are switched off or not.
	inert() []inertKey
}

// inertKey is a key of a section that other keys of the section may switch off.
type inertKey struct {
	name string
	idle bool   // the key has another value than its default, and nothing reads it
	why  string // names the key that switches it off, and what would switch it on
}

// Inert returns a problem for each key of the named objective's sections that has another value than its default while
// the section's other keys switch it off.
func Inert(name string, c Config) (problems []error) {
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		k, _ := keys.Of(v.Type(), i)
		s, ok := v.Field(i).Interface().(partlyInert)
		if !ok || v.Field(i).IsNil() || !slices.Contains(usersOf(k.Name, v.Field(i).Interface()), name) {
			continue
		}
		for _, key := range s.inert() {
			if key.idle {
				problems = append(problems, fmt.Errorf("%s.%s: does nothing %s: remove it", k.Name, key.name, key.why))
			}
		}
	}
	return problems
}

// usersOf returns the names of the objectives that take settings from a section.
func usersOf(name string, section any) []string {
	if s, ok := section.(shared); ok {
		return s.objectives()
	}
	return []string{name}
}

// listing is an optional capability of a section that holds lists of sections.
type listing interface {
	// rows returns what is wrong with single values of the sections in the lists of the named section.
	rows(section string) []error
}

// Of returns the objective of a name in Objectives with the settings of its section of a configuration.
func Of(name string, c Config) Objective { return Objectives[name](c) }

// settings returns a section's values, which are the defaults of its keys where a configuration has no such section.
func settings[S any](section *S) (s S) {
	if section != nil {
		return *section
	}
	keys.SetDefaults(&s)
	return s
}

// Defaults returns all sections with the defaults of their keys.
func Defaults() (c Config) {
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		v.Field(i).Set(defaultsOf(v.Field(i).Type()))
	}
	return c
}

// defaultsOf returns a pointer to a section with the defaults of its keys.
func defaultsOf(pointer reflect.Type) reflect.Value {
	s := reflect.New(pointer.Elem())
	keys.SetDefaults(s.Interface())
	return s
}

// Check returns what is wrong with the sections of a run that trains by the named objective, each error beginning with
// its key. A section of another objective may stand there with the values of its defaults only.
func Check(name string, c Config) (problems []error) {
	if Objectives[name] == nil {
		return nil // the check of training.objective says so
	}
	v := reflect.ValueOf(c)
	for i := range v.NumField() {
		k, _ := keys.Of(v.Type(), i)
		at, defaults := v.Field(i), defaultsOf(v.Field(i).Type())
		users := usersOf(k.Name, defaults.Interface())
		if at.IsNil() {
			at = defaults
		}
		problems = append(problems, keys.Check(k.Name+".", at.Elem().Interface())...)
		if s, ok := at.Interface().(listing); ok {
			problems = append(problems, s.rows(k.Name)...)
		}
		switch {
		case slices.Contains(users, name):
			problems = append(problems, at.Interface().(section).problems()...)
		case !reflect.DeepEqual(at.Interface(), defaults.Interface()):
			problems = append(problems, fmt.Errorf("%s: is set, and training.objective is %s: set training.objective: %s, or remove the section",
				k.Name, name, strings.Join(users, " or ")))
		}
	}
	return problems
}
