package llamacpp

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// The kinds of tokens, as llama.cpp numbers them.
const (
	kindNormal  = 1
	kindUnknown = 2
	kindControl = 3
	kindOwn     = 4 // of the user: matched in texts before all else, shown as it is
	kindUnused  = 5
	kindByte    = 6
)

// file is what of tokenizer.json matters here. Package tokenizer read it before, and refused what is broken.
type file struct {
	Model struct {
		Type         string          `json:"type"`
		Vocab        json.RawMessage `json:"vocab"`
		Merges       json.RawMessage `json:"merges"`
		Unknown      *string         `json:"unk_token"`
		ByteFallback bool            `json:"byte_fallback"`
		IgnoreMerges bool            `json:"ignore_merges"`
		Prefix       *string         `json:"continuing_subword_prefix"`
		Suffix       *string         `json:"end_of_word_suffix"`
	} `json:"model"`
	Added        []added         `json:"added_tokens"`
	Normalizer   json.RawMessage `json:"normalizer"`
	PreTokenizer json.RawMessage `json:"pre_tokenizer"`

	vocab  map[string]int
	merges [][2]string
}

type added struct {
	ID      int    `json:"id"`
	Content string `json:"content"`
	Special bool   `json:"special"`
	LStrip  bool   `json:"lstrip"`
	RStrip  bool   `json:"rstrip"`
	Single  bool   `json:"single_word"`
}

// tokens adds the tokenizer and the chat template.
func (p *Plan) tokens(m Model) error {
	if m.Tokenizer.OnlyNumbers() {
		p.add("tokenizer.ggml.model", "none")
		p.note("the model's folder holds no tokenizer: llama.cpp can be given ids alone")
		return nil
	}
	f, err := readFile(m.Tokenizer.Files())
	if err != nil {
		return err
	}
	list := make([]string, m.Config.VocabSize)
	kinds := make([]int32, len(list))
	for i := range list {
		list[i], kinds[i] = fmt.Sprintf("[PAD%d]", i), kindUnused
	}
	if n := m.Tokenizer.VocabSize(); n > len(list) {
		return fmt.Errorf("it has ids up to %d, but vocab_size is %d", n-1, len(list))
	}
	for token, id := range f.vocab {
		list[id], kinds[id] = token, kindNormal
	}
	byteTokens := f.Model.Type == "BPE" && f.Model.ByteFallback
	if byteTokens {
		for b := range 256 {
			id, ok := f.vocab[fmt.Sprintf("<0x%02X>", b)]
			if !ok {
				return fmt.Errorf("the token <0x%02X> is missing: llama.cpp needs one for each byte", b)
			}
			kinds[id] = kindByte
		}
	}
	for id := range len(list) { // the added tokens, as they count
		token, ok := m.Tokenizer.Token(int32(id))
		a := slices.IndexFunc(f.Added, func(a added) bool { return a.ID == id && a.Content == token })
		if !ok || a < 0 {
			continue
		}
		list[id], kinds[id] = token, kindOwn
		if byteTokens {
			list[id] = strings.ReplaceAll(token, "▁", " ")
		}
		if m.Tokenizer.IsSpecial(int32(id)) && !(p.Architecture == "gemma4" && slices.Contains(shownOfGemma4, token)) {
			list[id], kinds[id] = token, kindControl
		}
		if f.Added[a].LStrip || f.Added[a].RStrip || f.Added[a].Single {
			p.note("added tokens such as %q take white space with them or stand alone, which llama.cpp does by names "+
				"of models only", token)
		}
	}
	seen := make(map[string]int, len(list))
	for id, token := range list {
		if other, ok := seen[token]; ok {
			return fmt.Errorf("the tokens %d and %d are both %q", other, id, token)
		}
		seen[token] = id
	}
	switch {
	case p.Architecture == "gemma4" && byteTokens && p.characters(f, m.Tokenizer):
	case f.Model.Type == "BPE" && byteTokens:
		err = p.sentencePiece(f, list, kinds)
	case f.Model.Type == "BPE":
		err = p.byteLevel(f)
	default:
		err = fmt.Errorf("a model of type %s: BPE alone is written", f.Model.Type)
	}
	if err != nil {
		return err
	}
	if u := f.Model.Unknown; u != nil && f.Model.Type == "BPE" {
		if id, ok := f.vocab[*u]; ok {
			p.add("tokenizer.ggml.unknown_token_id", uint32(id))
			if kinds[id] == kindNormal || byteTokens && kinds[id] == kindControl {
				kinds[id] = kindUnknown
			}
		}
	}
	p.notSpecial(list, kinds)
	p.add("tokenizer.ggml.tokens", list)
	p.add("tokenizer.ggml.token_type", kinds)
	return p.specials(m)
}

// specials are the ids of tokens with a meaning, what is put around texts, and the chat template.
func (p *Plan) specials(m Model) error {
	t := m.Tokenizer
	bos, hasBOS := t.BOS()
	eos, hasEOS := t.EOS()
	if hasBOS {
		p.add("tokenizer.ggml.bos_token_id", uint32(bos))
	}
	if hasEOS {
		p.add("tokenizer.ggml.eos_token_id", uint32(eos))
	}
	if pad, ok := t.PAD(); ok {
		p.add("tokenizer.ggml.padding_token_id", uint32(pad))
	}
	const text = "a"
	plain, around := t.IDs(text, false), t.IDs(text, true)
	addBOS, addEOS := false, false
	if hasBOS && len(around) > 0 && around[0] == bos && !(len(plain) > 0 && plain[0] == bos) {
		addBOS, around = true, around[1:]
	}
	if n := len(around); hasEOS && n > len(plain) && around[n-1] == eos {
		addEOS, around = true, around[:n-1]
	}
	if prefix := len(around) - len(plain); !addBOS && !addEOS && prefix > 1 && slices.Equal(plain, around[prefix:]) &&
		allSpecial(t, around[:prefix]) {
		p.note("the tokenizer puts %q before a text, where llama.cpp can put one token: it puts none, and a prompt "+
			"has to have them, as those of the chat template do", t.Decode(around[:prefix], false))
		around = plain
	}
	if !slices.Equal(plain, around) {
		return fmt.Errorf("it puts more around a text than a token at its begin and its end (%d tokens around %d)",
			len(around)-len(plain), len(plain))
	}
	p.beforeGemma4(addBOS)
	p.add("tokenizer.ggml.add_bos_token", addBOS)
	p.add("tokenizer.ggml.add_eos_token", addEOS)
	// the file has one place beside eos_token: where that ends no trained turn, what does comes first
	trained, others := endOfTurn(m)
	ends := append(slices.Clone(m.Chat.Stops), others...)
	if len(trained) > 0 && !slices.Contains(trained, eos) {
		ends = append(trained, ends...)
	}
	for _, id := range ends {
		if id != eos && int(id) < m.Config.VocabSize && id >= 0 {
			p.add("tokenizer.ggml.eot_token_id", uint32(id))
			break
		}
	}
	if never := slices.DeleteFunc(slices.Clone(m.Chat.Never), func(id int32) bool {
		return id < 0 || int(id) >= m.Config.VocabSize
	}); len(never) > 0 {
		p.add("tokenizer.ggml.suppress_tokens", never)
	}
	if text, ok := m.Chat.Templates["default"]; ok {
		p.add("tokenizer.chat_template", text)
	}
	return nil
}

// endOfTurn returns the tokens that the chat template ends a turn with, and those with the model's own that are
// special; none where there is no template that can be tried.
func endOfTurn(m Model) (trained, all []int32) {
	if len(m.Chat.Templates) == 0 {
		return nil, nil
	}
	c, err := chat.New(m.Chat, "", m.Tokenizer, chat.DefaultOptions())
	if err != nil {
		return nil, nil
	}
	return c.Ends().IDs, c.EndOfTurn(conversation(samples[0])).IDs
}

func allSpecial(t *tokenizer.Tokenizer, ids []int32) bool {
	return !slices.ContainsFunc(ids, func(id int32) bool { return !t.IsSpecial(id) })
}

// folders are the pipelines of folders with vocab.json and merges.txt alone.
var folders = map[string]string{"GPT2Tokenizer": "gpt-2", "Qwen2Tokenizer": "qwen2"}

// readFile reads tokenizer.json, or what older folders have in its place.
func readFile(files map[string][]byte) (*file, error) {
	f := &file{vocab: map[string]int{}}
	raw, ok := files["tokenizer.json"]
	var config struct {
		Class string           `json:"tokenizer_class"`
		Added map[string]added `json:"added_tokens_decoder"`
	}
	if c, ok := files["tokenizer_config.json"]; ok {
		if err := json.Unmarshal(c, &config); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: %w", err)
		}
	}
	if ok {
		if err := json.Unmarshal(raw, f); err != nil {
			return nil, fmt.Errorf("tokenizer.json: %w", err)
		}
	} else {
		f.Model.Type, f.Model.Vocab = "BPE", files["vocab.json"]
		pre := folders[strings.TrimSuffix(config.Class, "Fast")]
		if pre == "" {
			return nil, errors.New("there is no tokenizer.json")
		}
		f.PreTokenizer = json.RawMessage(`{"type":"` + pre + `"}`)
		if pre == "qwen2" {
			f.Normalizer = json.RawMessage(`{"type":"NFC"}`)
		}
		for _, line := range strings.Split(string(files["merges.txt"]), "\n") {
			if left, right, ok := strings.Cut(strings.TrimSuffix(line, "\r"), " "); ok &&
				!strings.HasPrefix(line, "#version") {
				f.merges = append(f.merges, [2]string{left, right})
			}
		}
	}
	if f.Model.Type == "" {
		f.Model.Type = "BPE" // files of tokenizers before 0.9 do not say
	}
	if f.Model.Type != "BPE" {
		return f, nil
	}
	if err := json.Unmarshal(f.Model.Vocab, &f.vocab); err != nil {
		return nil, fmt.Errorf("tokenizer.json: vocab: %w", err)
	}
	for _, a := range sortedAdded(config.Added, files["added_tokens.json"]) {
		if !slices.ContainsFunc(f.Added, func(b added) bool { return b.ID == a.ID }) {
			f.Added = append(f.Added, a)
		}
	}
	return f, f.readMerges()
}

// sortedAdded are the added tokens that other files than tokenizer.json name.
func sortedAdded(decoder map[string]added, names []byte) []added {
	var all []added
	for key, a := range decoder {
		if _, err := fmt.Sscanf(key, "%d", &a.ID); err == nil {
			all = append(all, a)
		}
	}
	var ids map[string]int
	if json.Unmarshal(names, &ids) == nil {
		for content, id := range ids {
			if !slices.ContainsFunc(all, func(a added) bool { return a.ID == id }) {
				all = append(all, added{ID: id, Content: content})
			}
		}
	}
	slices.SortFunc(all, func(a, b added) int { return a.ID - b.ID })
	return all
}

// readMerges takes merges as "a b" or as ["a", "b"].
func (f *file) readMerges() error {
	var texts []string
	if len(f.Model.Merges) == 0 || json.Unmarshal(f.Model.Merges, &f.merges) == nil {
		return nil
	}
	if err := json.Unmarshal(f.Model.Merges, &texts); err != nil {
		return fmt.Errorf("tokenizer.json: merges: %w", err)
	}
	f.merges = f.merges[:0]
	for _, t := range texts {
		left, right, _ := strings.Cut(t, " ")
		f.merges = append(f.merges, [2]string{left, right})
	}
	return nil
}
