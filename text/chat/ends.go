package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonedit"
	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/text/jinja"
)

// Names of the files in which other programs look for the stop tokens of an answer.
const (
	generationFile = "generation_config.json"
	specialFile    = "special_tokens_map.json"
	eosKey         = "eos_token"
	eosIDKey       = "eos_token_id"
)

// Ends is how an answer ends in the chat templates, including the template for tools.
type Ends struct {
	Turn string  // the special token that the template writes after an answer; "" = none
	IDs  []int32 // all tokens that each end an answer, in the order in which they were found
	Text string  // what the template writes after an answer if that is not a token; else ""
}

// Ends returns what the templates write after an answer.
func (c *Chat) Ends() Ends {
	var e Ends
	for _, t := range []*Template{c.plain, c.tools} {
		known := c.known[t]
		for _, id := range known.stops {
			if !slices.Contains(e.IDs, id) {
				e.IDs = append(e.IDs, id)
			}
		}
		if known.end == "" {
			continue
		}
		s := c.specials(known.end)
		switch {
		case len(s) == 0:
			if id, ok := c.tok.ID(known.end); ok { // a token that no file marks as special
				e.IDs = append(e.IDs, id)
			} else if e.Text == "" {
				e.Text = known.end
			}
		case len(s) > 0 && s[len(s)-1].End == len(known.end) && e.Turn == "":
			e.Turn, _ = c.tok.Token(s[len(s)-1].ID)
		}
	}
	return e
}

// mentions reports whether a template reads a variable, which may then be part of its output.
func (c *Chat) mentions(name string) bool {
	return strings.Contains(c.plain.source, name) || strings.Contains(c.tools.source, name)
}

// Answering holds the settings that decide where other programs end the answers of a trained model.
type Answering struct {
	Base  fs.FS // the base model's folder
	EOS   []int // eos_token_id of config.json
	Vocab int   // vocabulary size of the model; ids from here on are left out
	Tok   Tokenizer
	Chat  *Chat   // the chat that rendered the trained conversations; nil = there were none
	Turn  string  // the eos_token of the adapter's tokenizer_config.json; "" = derived from Chat
	Stops []int32 // the eos_token_id of the adapter's generation_config.json
	Whole bool    // the files are a whole model's, whose config.json names tokens too; false = an adapter's
}

// Save edits the files of a folder so that other programs end answers where generation here does. In
// generation_config.json the tokens that end a trained turn come before those of the base model; transformers' generate
// reads no other file for them. eos_token of tokenizer_config.json becomes the token that ends a turn, if the base
// model does not stop at that token, unless the template or the tokenizer itself writes eos_token. A chat_template in
// tokenizer_config.json becomes that of the template file beside it. Files that need no change keep their bytes.
func (a Answering) Save(files map[string][]byte) error {
	if err := sameTemplate(files); err != nil {
		return err
	}
	have, err := FindGeneration(a.Base)
	if err != nil {
		return err
	}
	own := have.Stops
	if len(own) == 0 {
		for _, id := range a.EOS {
			own = append(own, int32(id))
		}
	}
	var ends []int32
	turn := a.Turn
	if a.Chat != nil {
		e := a.Chat.Ends()
		ends = e.IDs
		if turn == "" && !a.Chat.mentions(eosKey) {
			turn = e.Turn
		}
	}
	id, known := a.Tok.ID(turn)
	if known = known && turn != ""; known && !slices.Contains(ends, id) {
		ends = append([]int32{id}, ends...)
	}
	ends = append(ends, a.Stops...)
	if known && !slices.Contains(own, id) {
		if err := setEnd(files, turn); err != nil {
			return err
		}
	}
	if t, ok := a.Tok.(interface{ EOS() (int32, bool) }); ok {
		if id, ok := t.EOS(); ok {
			own = append(slices.Clip(own), id)
		}
	}
	return a.saveGeneration(files, append(slices.Clip(ends), own...), have.Stops)
}

// saveGeneration writes generation_config.json. It starts from the base model's generation_config.json, or from its
// config.json if there is none.
func (a Answering) saveGeneration(files map[string][]byte, ends, have []int32) error {
	var ids []int32
	for _, id := range ends {
		if id >= 0 && int(id) < a.Vocab && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	raw, err := regular.ReadFS(a.Base, generationFile)
	raw = withoutMark(raw)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	if missing {
		config, err := readObject(a.Base, "config.json")
		if err != nil {
			return err
		}
		inConfig := func(id int32) bool { return slices.Contains(a.EOS, int(id)) }
		if len(ids) == 0 || a.Whole && a.Chat == nil && !slices.ContainsFunc(ids,
			func(id int32) bool { return !inConfig(id) }) {
			return nil
		}
		if raw, err = fromConfig(config); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(ids, func(id int32) bool { return !slices.Contains(have, id) }) {
		value, err := json.Marshal(ids)
		if err == nil {
			raw, err = jsonedit.Set(raw, eosIDKey, value)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", generationFile, err)
		}
	}
	files[generationFile] = raw
	return nil
}

// generationKeys are the keys that transformers reads from a config.json if there is no generation_config.json. Lengths
// and use_cache are left out, because training programs leave values there.
var generationKeys = []string{
	"bos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id",
	"suppress_tokens", "begin_suppress_tokens",
	"bad_words_ids", "do_sample", "num_beams", "temperature", "top_k", "top_p", "repetition_penalty",
	"no_repeat_ngram_size",
}

func fromConfig(config map[string]json.RawMessage) ([]byte, error) {
	kept := map[string]json.RawMessage{}
	for _, key := range generationKeys {
		if v := config[key]; len(v) > 0 && string(v) != "null" {
			kept[key] = v
		}
	}
	return encode(kept)
}

// sameTemplate copies the template of chat_template.jinja over a different one in tokenizer_config.json.
func sameTemplate(files map[string][]byte) error {
	file, ok := files[templateFile]
	if !ok {
		return nil
	}
	var config struct {
		Template json.RawMessage `json:"chat_template"`
	}
	raw := withoutMark(files[configFile])
	if raw == nil {
		return nil
	}
	if err := jsonerr.Unmarshal(raw, &config); err != nil {
		return fmt.Errorf("%s: %w", configFile, err)
	}
	if len(config.Template) == 0 || string(config.Template) == "null" {
		return nil
	}
	text, was := universalNewlines(string(file)), ""
	if json.Unmarshal(config.Template, &was) == nil && was == text {
		return nil
	}
	value, err := encode(text)
	if err == nil {
		files[configFile], err = jsonedit.Set(raw, "chat_template", []byte(strings.TrimSpace(string(value))))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", configFile, err)
	}
	return nil
}

// setEnd makes a token the eos_token of a tokenizer's files, unless the tokenizer appends eos_token to each text.
func setEnd(files map[string][]byte, token string) error {
	var config struct {
		AddEOS bool `json:"add_eos_token"`
	}
	if raw := withoutMark(files[configFile]); raw == nil || jsonerr.Unmarshal(raw, &config) != nil || config.AddEOS {
		return nil
	}
	value, err := encode(token)
	if err != nil {
		return err
	}
	for _, name := range []string{configFile, specialFile} {
		raw := withoutMark(files[name])
		if raw == nil {
			continue
		}
		if raw, err = jsonedit.Set(raw, eosKey, []byte(strings.TrimSpace(string(value)))); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files[name] = raw
	}
	return nil
}

// withoutMark removes the byte order mark that some editors write.
func withoutMark(raw []byte) []byte { return bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")) }

// EndToken returns the eos_token that a folder's files name; "" = none.
func (s *Sources) EndToken() string {
	if s.Tokens == nil {
		return ""
	}
	v, _ := s.Tokens.Get(eosKey)
	text, _ := v.(jinja.Str)
	return string(text)
}
