package dataset

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/tierlora/tierlora/text/chat"
)

// Format describes how a row of a file becomes an Example. A new format is a file of its own and a line in Formats.
type Format struct {
	Roles     []Role // the fields that the format reads
	Separated bool   // the format uses Config.Separator
	Chat      bool   // its rows are conversations
	NoPrompt  string // NoPrompt says why the format has no prompt to train on; empty if it has one.
	Trains    string // Trains describes what is trained, for the report; empty means the answer.
	// Fits reports whether the values of a row that has the required fields match the format; nil = any values do.
	Fits func(f Fields) bool
	// Other says what to do with rows that Fits rejects, if the user chose this format.
	Other string
	// Render makes the example. Its errors are about this row: a wrong type or a bad value.
	Render func(f Fields, cfg Config) (Example, error)
	// AsChat renders a row of a prompt and an answer as a conversation; nil if rows have no such form.
	AsChat func(f Fields, cfg Config) (Example, error)
	// Talks reports whether a row is a conversation, for formats whose rows may be texts or conversations. The first
	// row decides for its whole file. nil = all rows of the format are of one kind.
	Talks func(f Fields) bool
	// Preference marks formats for objectives that learn from preferences: pairs, or answers with a label.
	Preference bool
	// Asked restricts detection of the format to objectives that learn from preferences (Config.Preferences); for other
	// runs such rows are detected as another format.
	Asked bool
	// Aims are the kinds of Config.Aim that the format's rows serve; the format is detected for these alone.
	Aims []AimKind
	// Supervised says how an objective that takes single sequences could use the rows; empty if it can use them as they
	// are.
	Supervised string
}

// Role is one field of a format. Keys are the names under which files have it; the first that is present is used.
type Role struct {
	Name     string
	Keys     []string
	Optional bool
	// Advice says what to write if rows have the format's other required fields but not this one; may be empty.
	Advice string
}

// FormatAuto is the value of `dataset.format` that detects the format from the keys of the first row. The empty string
// does the same.
const FormatAuto = "auto"

// Formats maps each value of `dataset.format` to its format.
var Formats = map[string]Format{
	"alpaca":               alpaca,
	"chat_completion":      chatCompletion,
	"classification":       classification,
	"completion":           completion,
	"pairs":                pairs,
	"preference":           preference,
	"prompts":              prompts,
	"rollouts":             rollouts,
	"segments":             segments,
	"messages":             messages,
	"sharegpt":             sharegpt,
	"text":                 text,
	"tokenized":            tokenized,
	"tokenized_preference": tokenizedPreference,
	"tokenized_unpaired":   tokenizedUnpaired,
	"unpaired":             unpaired,

	"token_classification":           tokenClassification,
	"tokenized_classification":       tokenizedClassification,
	"tokenized_token_classification": tokenizedTokenClassification,
}

// Example is a row as a format reads it: segments of text, a conversation, or token ids.
type Example struct {
	Unused       []string // keys of fields whose value is ignored because another field of the row takes precedence
	Segments     []Segment
	Conversation *chat.Conversation
	Verbatim     bool    // the text has its own start and end tokens
	Chunked      bool    // a text that is too long may become several rows
	EOS          bool    // append the tokenizer's end token, trained if the last segment is trained
	IDs          []int32 // token ids that the row gives, instead of Segments
	Labels       []int32 // labels, as long as IDs
	// Group holds the sequences of the row, each an example of its own, which stay together. Apart from Unused, Empty
	// and Desirable, the other fields are unused then. nil = the row is one sequence.
	Group []Example
	Names []string // Names are the display names of the sequences of Group.
	// Completions are answers to one prompt, each a sequence of the row. They replace all fields above except Unused
	// and Empty.
	Completions *Completions
	Desirable   Desirability // label of an unpaired preference row
	Empty       string       // the reason why there is nothing to train on; such a row is dropped and counted
	Rollout     *Rollout     // what is known of the sampled answer that the row is
	Weight      *float64     // factor of the loss of the row's tokens; nil = one
	Targets     []float32    // Row.Targets
	Images      []Image      // the images of Conversation, in order
	Aimed       *Aimed       // a row without an answer, in place of Segments; nil = it has one
}

// Segment is a piece of text that is tokenised separately, so that no token straddles a boundary of the loss mask.
type Segment struct {
	Text    string
	Trained bool
	End     bool // the tokenizer's end token follows, trained if the text is
}

func (f Format) roleNames() []string {
	names := make([]string, len(f.Roles))
	for i, r := range f.Roles {
		names[i] = r.Name
	}
	return names
}

func (f Format) required() int {
	n := 0
	for _, r := range f.Roles {
		if !r.Optional {
			n++
		}
	}
	return n
}

func formatNames() []string {
	names := make([]string, 0, len(Formats))
	for name := range Formats {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func allRoles() []string {
	var roles []string
	for _, name := range formatNames() {
		for _, r := range Formats[name].roleNames() {
			if !slices.Contains(roles, r) {
				roles = append(roles, r)
			}
		}
	}
	return roles
}

// bind finds the file's key for every role. missing is the first required role without a key.
func (f Format) bind(o Object, mapped map[string]string) (keys map[string]string, missing string) {
	keys = map[string]string{}
	for _, r := range f.Roles {
		if key, ok := mapped[r.Name]; ok {
			keys[r.Name] = key // even if the key is absent: the error then names the key that the user configured
			if !o.Has(key) && !r.Optional && missing == "" {
				missing = r.Name
			}
			continue
		}
		for _, key := range r.Keys {
			if o.Has(key) {
				keys[r.Name] = key
				break
			}
		}
		if keys[r.Name] == "" {
			keys[r.Name] = r.Keys[0]
			if !r.Optional && missing == "" {
				missing = r.Name
			}
		}
	}
	return keys, missing
}

// detect finds the format from the keys of the first row. Among the formats whose required fields are present it
// prefers the one that requires most fields, then the one that reads most keys, then the one whose own names the keys
// have. A tie is an error. Two formats that require disjoint keys are an error too, such as a conversation beside a
// prompt and its answer, since either may be meant. The key text alone does not count then: other programs derive it
// from the other keys.
func detect(o Object, cfg Config) (string, error) {
	if name := cfg.detectPreference(o); name != "" {
		return name, nil
	}
	best, rank, tie := "", [3]int{}, ""
	var fit []string
	for _, name := range formatNames() {
		f := cfg.formatOf(name)
		if f.Asked {
			continue
		}
		keys, missing := f.bind(o, cfg.Fields)
		if missing != "" || !f.hasRoles(cfg.fieldRoles()) || f.Fits != nil && !f.Fits(Fields{row: o, keys: keys}) {
			continue
		}
		fit = append(fit, name)
		n := [3]int{f.required()}
		for _, r := range f.Roles {
			if key := keys[r.Name]; o.Has(key) {
				n[1]++
				n[2] -= slices.Index(r.Keys, key)
			}
		}
		switch c := slices.Compare(n[:], rank[:]); {
		case best == "" || c > 0:
			best, rank, tie = name, n, ""
		case c == 0:
			tie = name
		}
	}
	if tie == "" {
		tie = otherFit(best, fit, o, cfg)
	}
	if tie != "" {
		return "", fmt.Errorf("the keys %s fit the formats %s (%s) and %s (%s): set dataset.format to the one to "+
			"train on; keys that it does not read are named in the report",
			o.keyList(), best, boundKeys(best, o, cfg), tie, boundKeys(tie, o, cfg))
	}
	if best == "" {
		if err := o.conversationAdvice(); err != nil {
			return "", err
		}
		if name, fields := o.nestedFormat(); name != "" {
			return "", fmt.Errorf(
				"the keys %s hold a part of a row of format %s, and what it lacks lies in a list: set "+
					"dataset.fields to {%s}", o.keyList(), name, fields)
		}
		if err := o.listAdvice(); err != nil {
			return "", err
		}
		if err := advised(o, cfg); err != nil {
			return "", err
		}
		return "", fmt.Errorf("no format fits the keys %s (%s): set dataset.format and dataset.fields", o.keyList(),
			formatNeeds())
	}
	return best, nil
}

// detectPreference finds the format of a row for an objective that learns from preferences, or from targets that only
// its formats have: among the formats whose required fields are present, the one that requires most fields; "" = none.
func (c Config) detectPreference(o Object) string {
	best, most := "", 0
	for _, name := range formatNames() {
		f := c.formatOf(name)
		if !(c.Preferences && f.Preference || slices.Contains(f.Aims, c.Aim.Kind)) {
			continue
		}
		if _, missing := f.bind(o, c.Fields); missing == "" && f.hasRoles(c.fieldRoles()) && f.required() > most {
			best, most = name, f.required()
		}
	}
	return best
}

// otherFit returns another format that fits the row, requires as many fields as best, and shares no required key with
// it; "" = none.
func otherFit(best string, fit []string, o Object, cfg Config) string {
	of := func(name string) []string {
		keys, _ := Formats[name].bind(o, cfg.Fields)
		return Formats[name].requiredKeys(keys)
	}
	for _, name := range fit {
		if name == best || name == "text" {
			continue
		}
		if !slices.ContainsFunc(of(name), func(key string) bool { return slices.Contains(of(best), key) }) {
			return name
		}
	}
	return ""
}

// boundKeys lists the keys of a row that are required fields of a format.
func boundKeys(name string, o Object, cfg Config) string {
	keys, _ := Formats[name].bind(o, cfg.Fields)
	return strings.Join(Formats[name].requiredKeys(keys), ", ")
}

// requiredKeys lists the keys of the required roles in the order of the roles.
func (f Format) requiredKeys(keys map[string]string) []string {
	var required []string
	for _, r := range f.Roles {
		if !r.Optional {
			required = append(required, keys[r.Name])
		}
	}
	return required
}

// advised returns an error with the role's Advice for a row that lacks one required field of a format; else nil.
func advised(o Object, cfg Config) error {
	for _, name := range formatNames() {
		_, missing := Formats[name].bind(o, cfg.Fields)
		for i, r := range Formats[name].Roles {
			if i > 0 && r.Name == missing && r.Advice != "" { // the roles before it are present
				return fmt.Errorf("the keys %s are those of format %s, but field %q is missing: %s", o.keyList(), name,
					missing,
					r.Advice)
			}
		}
	}
	return nil
}

func (f Format) hasRoles(roles []string) bool {
	for _, role := range roles {
		if !slices.Contains(f.roleNames(), role) {
			return false
		}
	}
	return true
}

// formatNeeds lists what each format requires: "alpaca: instruction, output; …".
func formatNeeds() string {
	var parts []string
	for _, name := range formatNames() {
		if Formats[name].Asked {
			continue
		}
		var need []string
		for _, r := range Formats[name].Roles {
			if !r.Optional {
				need = append(need, r.Name)
			}
		}
		text := name + " needs " + strings.Join(need, " and ")
		if Formats[name].Fits != nil && Formats[name].Chat {
			text += " as lists of messages"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}
