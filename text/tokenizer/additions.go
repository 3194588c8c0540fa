package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonedit"
	"github.com/tierlora/tierlora/internal/keys"
)

// Additions is the section tokenizer of a run's configuration: tokens that the run adds to the base model's tokenizer.
// The zero value adds none.
type Additions struct {
	// AddTokens lists tokens that are added to the vocabulary as words of their own, such as <think>. Their rows of the
	// embeddings and of the head must be trained: by lora.modules_to_save, or by adapter: full. The output folder has
	// the tokenizer with them.
	AddTokens []string `yaml:"add_tokens,omitempty" resume:"fixed"`
	// AddSpecialTokens gives roles to tokens: bos_token, eos_token, unk_token, sep_token, pad_token, cls_token or
	// mask_token. A token that the vocabulary lacks is added to it as a special token, which decoding leaves out.
	AddSpecialTokens map[string]string `yaml:"add_special_tokens,omitempty" resume:"fixed"`
	// AdditionalSpecialTokens lists special tokens without a role that are added to the vocabulary.
	AdditionalSpecialTokens []string `yaml:"additional_special_tokens,omitempty" resume:"fixed"`
	// InitFrom is what the rows of added tokens start from. mean is the mean of all rows of the old vocabulary; text is
	// the mean of the rows of the tokens into which the old tokenizer divides the token's text.
	InitFrom string `yaml:"init_from" default:"mean" choices:"mean text" resume:"fixed"`
}

// InitFromText is the value of Additions.InitFrom that starts rows from the tokens of the added token's text.
const InitFromText = "text"

// roles are the roles of special tokens that transformers knows.
var roles = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// Any reports whether a tokenizer is changed.
func (a Additions) Any() bool {
	return len(a.AddTokens)+len(a.AddSpecialTokens)+len(a.AdditionalSpecialTokens) > 0
}

// Validate returns every problem of the section that can be found without a tokenizer, each naming its key.
func (a Additions) Validate() (problems []error) {
	problems = keys.Check("tokenizer.", a)
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("tokenizer."+format, args...))
	}
	seen := map[string]string{}
	check := func(key, token string) {
		switch before := seen[token]; {
		case strings.TrimSpace(token) == "":
			bad("%s: %q is empty or blank", key, token)
		case before != "":
			bad("%s: %q stands in tokenizer.%s already", key, token, before)
		}
		seen[token] = key
	}
	for _, token := range a.AddTokens {
		check("add_tokens", token)
	}
	for _, token := range a.AdditionalSpecialTokens {
		check("additional_special_tokens", token)
	}
	for _, role := range slices.Sorted(maps.Keys(a.AddSpecialTokens)) {
		token := a.AddSpecialTokens[role]
		switch {
		case !slices.Contains(roles, role):
			bad("add_special_tokens.%s: is no role of a special token; the roles are %s, and tokens without a role "+
				"belong in tokenizer.additional_special_tokens", role, strings.Join(roles, ", "))
		case strings.TrimSpace(token) == "":
			bad("add_special_tokens.%s: %q is empty or blank", role, token)
		case slices.Contains(a.AddTokens, token) || slices.Contains(a.AdditionalSpecialTokens, token):
			check("add_special_tokens."+role, token)
		}
	}
	return problems
}

// With returns the tokenizer with added tokens, as transformers' add_tokens and add_special_tokens make it, and the
// added tokens, whose ids follow the largest one. The files of the result have them.
func With(t *Tokenizer, a Additions) (_ *Tokenizer, added []string, err error) {
	if t.numbers {
		return nil, nil, errors.New("tokenizer: the base model has no tokenizer to which tokens could be added")
	}
	if t.files["tokenizer.json"] == nil {
		return nil, nil, errors.New("tokenizer: the base model has no tokenizer.json, to which tokens are added: in " +
			"Python, transformers.AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) writes it")
	}
	var entries []addedToken
	add := func(key, token string, special bool) error {
		if id, ok := t.ID(token); ok {
			return fmt.Errorf("tokenizer.%s: %q is in the vocabulary of the base model already, as token %d: leave it "+
				"out, and train its row by lora.modules_to_save: [embed_tokens, lm_head]", key, token, id)
		}
		entries = append(entries, addedToken{ID: int32(t.size + len(added)), Content: token, Normalized: !special,
			Special: special})
		added = append(added, token)
		return nil
	}
	for _, token := range a.AddTokens {
		if err := add("add_tokens", token, false); err != nil {
			return nil, nil, err
		}
	}
	for _, role := range roles {
		token := a.AddSpecialTokens[role]
		if id, ok := t.ID(token); token == "" || slices.Contains(added, token) {
			continue
		} else if !ok {
			err = add("add_special_tokens."+role, token, true)
		} else if t.addedByID[id] == nil {
			entries = append(entries, addedToken{ID: id, Content: token, Special: true})
		}
		if err != nil {
			return nil, nil, err
		}
	}
	for _, token := range a.AdditionalSpecialTokens {
		if err := add("additional_special_tokens", token, true); err != nil {
			return nil, nil, err
		}
	}
	files, err := a.filesOf(t.Files(), entries)
	if err != nil {
		return nil, nil, err
	}
	with, err := FromFiles(files)
	if err != nil {
		return nil, nil, fmt.Errorf("tokenizer: with the added tokens: %w", err)
	}
	return with, added, nil
}

// filesOf returns a tokenizer's files with entries for added tokens, and with the roles of special ones.
func (a Additions) filesOf(files map[string][]byte, entries []addedToken) (map[string][]byte, error) {
	var err error
	if files["tokenizer.json"], err = withEntries(files["tokenizer.json"], entries); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	if files["tokenizer_config.json"] == nil && len(a.AddSpecialTokens)+len(a.AdditionalSpecialTokens) > 0 {
		files["tokenizer_config.json"] = []byte("{}\n")
	}
	for _, name := range []string{"tokenizer_config.json", "special_tokens_map.json"} {
		if files[name] == nil {
			continue
		}
		if files[name], err = a.withRoles(files[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if config := files["tokenizer_config.json"]; config != nil {
		if files["tokenizer_config.json"], err = withDecoder(config, entries); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: %w", err)
		}
	}
	return files, nil
}

// withEntries returns a tokenizer.json with more added tokens, in the order of their ids.
func withEntries(file []byte, entries []addedToken) ([]byte, error) {
	var all []json.RawMessage
	m, err := jsonedit.Find(file, "added_tokens")
	if err != nil {
		return nil, err
	}
	if m.Found {
		if err := json.Unmarshal(file[m.Value:m.After], &all); err != nil {
			return nil, err
		}
	}
	for _, e := range entries {
		raw, err := marshal(e)
		if err != nil {
			return nil, err
		}
		all = append(all, raw)
	}
	idOf := func(raw json.RawMessage) (id int32) {
		var a addedToken
		_ = json.Unmarshal(raw, &a) // the tokenizer was read from it
		return a.ID
	}
	slices.SortStableFunc(all, func(x, y json.RawMessage) int { return int(idOf(x)) - int(idOf(y)) })
	list, err := marshal(all)
	if err != nil {
		return nil, err
	}
	return jsonedit.Set(file, "added_tokens", list)
}

// marshal encodes a value as JSON without escaping <, > and &.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// withRoles sets the roles of special tokens in tokenizer_config.json or special_tokens_map.json.
func (a Additions) withRoles(file []byte) ([]byte, error) {
	for _, role := range roles {
		token, ok := a.AddSpecialTokens[role]
		if !ok {
			continue
		}
		value, err := marshal(token)
		if err == nil {
			file, err = jsonedit.Set(file, role, value)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(a.AdditionalSpecialTokens) == 0 {
		return file, nil
	}
	const key = "additional_special_tokens"
	var all []json.RawMessage
	m, err := jsonedit.Find(file, key)
	if err != nil {
		return nil, err
	}
	if m.Found && !isNull(file[m.Value:m.After]) {
		if err := json.Unmarshal(file[m.Value:m.After], &all); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	for _, token := range a.AdditionalSpecialTokens {
		raw, err := marshal(token)
		if err != nil {
			return nil, err
		}
		all = append(all, raw)
	}
	value, err := marshal(all)
	if err != nil {
		return nil, err
	}
	return jsonedit.Set(file, key, value)
}

// withDecoder adds entries to added_tokens_decoder of a tokenizer_config.json, if it has one: transformers 4 reads
// added tokens from there first.
func withDecoder(file []byte, entries []addedToken) ([]byte, error) {
	const key = "added_tokens_decoder"
	m, err := jsonedit.Find(file, key)
	if err != nil || !m.Found || isNull(file[m.Value:m.After]) {
		return file, err
	}
	decoder := file[m.Value:m.After]
	for _, e := range entries {
		value, err := marshal(struct {
			Content    string `json:"content"`
			LStrip     bool   `json:"lstrip"`
			Normalized bool   `json:"normalized"`
			RStrip     bool   `json:"rstrip"`
			SingleWord bool   `json:"single_word"`
			Special    bool   `json:"special"`
		}{Content: e.Content, Normalized: e.Normalized, Special: e.Special})
		if err != nil {
			return nil, err
		}
		if decoder, err = jsonedit.Set(decoder, strconv.Itoa(int(e.ID)), value); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return jsonedit.Set(file, key, decoder)
}
