package dataset

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// Keys under which files have the text of a labelled row, its second text, and the label.
var (
	labelledKeys = []string{"text", "sentence", "sentence1", "review", "content", "premise", "question1", "query",
		"question",
		"prompt"}
	secondKeys = []string{"text_pair", "sentence2", "hypothesis", "question2", "document", "passage", "answer",
		"response"}
	labelKeys = []string{"label", "labels", "score", "target", "class", "rating"}
)

// classification reads {text, text_pair, label}: a text, or two that are read one after the other, with its class, its
// labels or numbers. A list of messages may take the place of the text.
var classification = Format{
	Roles: []Role{
		{Name: "text", Keys: slices.Concat(labelledKeys, []string{"messages", "conversations"})},
		{Name: "text_pair", Keys: secondKeys, Optional: true},
		{Name: "label", Keys: labelKeys},
	},
	Aims:     []AimKind{AimClass, AimLabels, AimNumbers},
	Asked:    true,
	Trains:   "a label for each row",
	NoPrompt: "a row has a label in place of an answer",
	Render:   renderClassified,
}

// tokenizedClassification reads {input_ids, label}: a tokenised text with its label.
var tokenizedClassification = Format{
	Roles: []Role{
		{Name: "input_ids", Keys: []string{"input_ids"}},
		{Name: "label", Keys: labelKeys},
		{Name: "attention_mask", Keys: []string{"attention_mask"}, Optional: true},
	},
	Aims:     classification.Aims,
	Asked:    true,
	Trains:   classification.Trains,
	NoPrompt: classification.NoPrompt,
	Render: func(f Fields, cfg Config) (Example, error) {
		ids, err := readIDs(f)
		if err != nil {
			return Example{}, err
		}
		targets, err := cfg.Aim.targets(f)
		return Example{Aimed: &Aimed{IDs: ids}, Targets: targets}, err
	},
}

// tokenClassification reads {tokens, tags}: the words of a text and a class for each. The first token of a word has its
// class; -100 and the word's other tokens count nowhere.
var tokenClassification = Format{
	Roles: []Role{
		{Name: "tokens", Keys: []string{"tokens", "words"}},
		{Name: "tags", Keys: []string{"ner_tags", "tags", "pos_tags", "chunk_tags", "labels", "label"}},
	},
	Aims:     []AimKind{AimTokens},
	Asked:    true,
	Trains:   "a label for each word",
	NoPrompt: "words have labels",
	Render:   renderTokenClasses,
}

// tokenizedTokenClassification reads {input_ids, labels}: tokens with a class each, -100 = none.
var tokenizedTokenClassification = Format{
	Roles: []Role{
		{Name: "input_ids", Keys: []string{"input_ids"}},
		{Name: "labels", Keys: []string{"labels"}},
		{Name: "attention_mask", Keys: []string{"attention_mask"}, Optional: true},
	},
	Aims:     tokenClassification.Aims,
	Asked:    true,
	Trains:   "what the labels of the rows say",
	NoPrompt: "tokens have labels",
	Render: func(f Fields, cfg Config) (Example, error) {
		ids, err := readIDs(f)
		if err != nil {
			return Example{}, err
		}
		targets, err := readClasses(f, "labels", cfg.Aim)
		if err == nil && len(targets) < len(ids) {
			err = fmt.Errorf("field %q has %d elements and field %q has %d: they must be equally long",
				f.Key("input_ids"),
				len(ids), f.Key("labels"), len(targets))
		}
		if err != nil {
			return Example{}, err
		}
		return Example{Aimed: &Aimed{IDs: ids, Each: true}, Targets: targets[:len(ids)]}, nil
	},
}

// pairs reads {anchor, positive, negative, score}: texts that belong together, and a text or a list of texts that do
// not (embeddings). A row becomes a group of two or more sequences. A score says how similar the first two are.
var pairs = Format{
	Roles: []Role{
		{Name: "anchor", Keys: []string{"anchor", "query", "question", "sentence1", "premise", "text", "instruction"}},
		{Name: "positive", Keys: []string{"positive", "document", "answer", "passage", "sentence2", "hypothesis",
			"response",
			"text_pair", "output"}},
		{Name: "negative", Keys: []string{"negative", "negatives", "hard_negative", "hard_negatives"}, Optional: true},
		{Name: "score", Keys: []string{"score", "similarity_score", "similarity"}, Optional: true},
	},
	Aims:     []AimKind{AimPairs},
	Asked:    true,
	Trains:   "that the texts of a row belong together",
	NoPrompt: "texts have no answer",
	Render:   renderPair,
}

// renderPair makes a group of a row's texts: the anchor, the positive, and any number of negatives. A score, by which
// evaluations compare the first two, becomes the row's target.
func renderPair(f Fields, _ Config) (Example, error) {
	ex := Example{}
	add := func(name, text string) {
		ex.Names = append(ex.Names, name)
		ex.Group = append(ex.Group, Example{Aimed: &Aimed{Texts: []string{text}}})
	}
	for _, role := range []string{"anchor", "positive"} {
		text, err := f.Text(role)
		if err != nil {
			return Example{}, err
		}
		add(role, text)
	}
	negatives, err := f.texts("negative")
	if err != nil {
		return Example{}, err
	}
	for _, text := range negatives {
		add("negative", text)
	}
	if slices.ContainsFunc(ex.Group, func(e Example) bool { return e.Aimed.Texts[0] == "" }) {
		return Example{Empty: dropEmptyText}, nil
	}
	if f.Present("score") {
		raw, _ := f.row.lookup(f.keys["score"])
		score, err := parseNumber(raw)
		if err != nil {
			return Example{}, fmt.Errorf("field %q %w", f.Key("score"), err)
		}
		ex.Targets = []float32{score}
	}
	return ex, nil
}

// texts returns the text of a role, or a list of texts; nil if the field is absent.
func (f Fields) texts(role string) (all []string, err error) {
	raw, _ := f.row.lookup(f.keys[role])
	if !f.Present(role) || kindOf(raw) != "a list" {
		text, err := f.Text(role)
		if text == "" || err != nil {
			return nil, err
		}
		return []string{text}, nil
	}
	for i, raw := range splitList(raw) {
		if kind := kindOf(raw); kind != "a string" {
			return nil, fmt.Errorf("%s[%d] is %s, want a string", f.Key(role), i, kind)
		}
		if lone := loneSurrogate(raw); lone != "" {
			return nil, fmt.Errorf("%s[%d] holds half of a surrogate pair (%s), which is no character", f.Key(role), i,
				lone)
		}
		all = append(all, textOf(raw))
	}
	return all, nil
}

// Aimed is a row without an answer: texts that are read one after the other, words, or token ids. A conversation stands
// in Talk.
type Aimed struct {
	Texts []string
	Words bool // Texts are words of one text, each with a target
	Talk  *chat.Conversation
	IDs   []int32
	Each  bool // each token has a target
}

func renderClassified(f Fields, cfg Config) (Example, error) {
	targets, err := cfg.Aim.targets(f)
	if err != nil {
		return Example{}, err
	}
	ex, err := renderTexts(f)
	if ex.Empty == "" {
		ex.Targets = targets
	}
	return ex, err
}

// renderTexts reads the text of a row and its second text, or a conversation in place of both.
func renderTexts(f Fields) (Example, error) {
	raw, _ := f.row.lookup(f.keys["text"])
	if kindOf(raw) == "a list" {
		talk, err := chat.Read(chat.Raw{Key: f.Key("text"), Messages: raw})
		return Example{Aimed: &Aimed{Talk: talk}}, err
	}
	a := &Aimed{}
	for _, role := range []string{"text", "text_pair"} {
		text, err := f.Text(role)
		if err != nil {
			return Example{}, err
		}
		if role == "text" || f.Present(role) {
			a.Texts = append(a.Texts, text)
		}
	}
	if strings.Join(a.Texts, "") == "" {
		return Example{Empty: dropEmptyText}, nil
	}
	return Example{Aimed: a}, nil
}

func renderTokenClasses(f Fields, cfg Config) (Example, error) {
	raw, _ := f.row.lookup(f.keys["tokens"])
	if kind := kindOf(raw); kind != "a list" {
		return Example{}, fmt.Errorf("field %q is %s, want a list of words", f.Key("tokens"), kind)
	}
	targets, err := readClasses(f, "tags", cfg.Aim)
	if err != nil {
		return Example{}, err
	}
	if n := len(splitList(raw)); n != len(targets) {
		return Example{}, fmt.Errorf("field %q has %d elements and field %q has %d: they must be equally long",
			f.Key("tokens"), n, f.Key("tags"), len(targets))
	}
	ex, err := renderWords(f)
	if ex.Empty == "" {
		ex.Targets = targets
	}
	return ex, err
}

// renderWords reads the list of a row's words.
func renderWords(f Fields) (Example, error) {
	raw, _ := f.row.lookup(f.keys["tokens"])
	if kind := kindOf(raw); kind != "a list" {
		return Example{}, fmt.Errorf("field %q is %s, want a list of words", f.Key("tokens"), kind)
	}
	a := &Aimed{Words: true, Each: true}
	for i, raw := range splitList(raw) {
		if kind := kindOf(raw); kind != "a string" {
			return Example{}, fmt.Errorf("%s[%d] is %s, want a word", f.Key("tokens"), i, kind)
		}
		if lone := loneSurrogate(raw); lone != "" {
			return Example{}, fmt.Errorf("%s[%d] holds half of a surrogate pair (%s), which is no character",
				f.Key("tokens"), i, lone)
		}
		a.Texts = append(a.Texts, textOf(raw))
	}
	if len(a.Texts) == 0 {
		return Example{Empty: dropEmptyText}, nil
	}
	return Example{Aimed: a}, nil
}

// readClasses reads a list of classes, -100 for none.
func readClasses(f Fields, role string, a Aim) ([]float32, error) {
	key := f.keys[role]
	raw, _ := f.row.lookup(key)
	if kind := kindOf(raw); kind != "a list" {
		return nil, fmt.Errorf("field %q is %s, want a list of labels", key, kind)
	}
	list := splitList(raw)
	all := make([]float32, len(list))
	for i, raw := range list {
		if string(raw) == "-100" {
			all[i] = float32(Ignore)
			continue
		}
		n, err := a.label(raw, fmt.Sprintf("%s[%d]", key, i))
		if err != nil {
			return nil, err
		}
		all[i] = float32(n)
	}
	return all, nil
}

// readIDs reads token ids without the padding that an attention_mask marks.
func readIDs(f Fields) ([]int32, error) {
	ids, err := f.Ints("input_ids")
	if err != nil || !f.Present("attention_mask") {
		return ids, err
	}
	n, err := unpadded(f, len(ids))
	return ids[:n], err
}

// encodeAimed makes the tokens of a row without an answer: those of each text with the tokens that the model's own
// encoding adds, one text after the other, truncated at MaxLength. The last token counts as the row's trained one;
// where each token has a target, those with a class do.
func encodeAimed(ex Example, tok Tokenizer, cfg Config) (encoded, error) {
	a := ex.Aimed
	e := encoded{targets: ex.Targets}
	switch {
	case a.Talk != nil:
		by, err := cfg.chat.open()
		if err != nil {
			return encoded{}, err
		}
		whole, err := by.Whole(a.Talk)
		if err != nil {
			return encoded{}, err
		}
		e.ids = whole.IDs
	case a.IDs != nil:
		for t, id := range a.IDs {
			if _, ok := tok.Token(id); !ok {
				return encoded{}, fmt.Errorf("input_ids[%d] is %d, which is not in the vocabulary", t, id)
			}
		}
		e.ids = a.IDs
	case onlyNumbers(tok):
		return encoded{}, tokenizer.ErrNumbers
	case a.Words:
		e.ids, e.targets = encodeWords(a.Texts, ex.Targets, tok)
	default:
		e.ids = TextIDs(a.Texts, tok)
	}
	if e.length = len(e.ids); e.length == 0 {
		e.drop = dropEmptyText
		return e, nil
	}
	if e.length > cfg.MaxLength {
		e.cut, e.lost, e.ids = true, e.length-cfg.MaxLength, e.ids[:cfg.MaxLength]
		switch cfg.OnTruncated {
		case TruncatedError:
			return encoded{}, fmt.Errorf("the row has %d tokens, more than max_length %d (on_truncated is error)",
				e.length,
				cfg.MaxLength)
		case TruncatedDrop:
			e.drop = dropCut
		}
	}
	e.labels = make([]int32, len(e.ids))
	for t := range e.labels {
		e.labels[t] = Ignore
	}
	if !a.Each {
		e.labels[len(e.labels)-1] = e.ids[len(e.ids)-1]
		return e, nil
	}
	e.targets = e.targets[:len(e.ids)]
	for t, x := range e.targets {
		if x != float32(Ignore) {
			e.labels[t] = e.ids[t]
		}
	}
	if e.drop == "" && countTrained(e.labels) == 0 {
		e.drop = dropMasked
	}
	return e, nil
}

// TextIDs returns the tokens of texts that a model with a head reads one after the other, each with the tokens that the
// model's own encoding adds.
func TextIDs(texts []string, tok Tokenizer) (ids []int32) {
	for _, text := range texts {
		ids = append(ids, tok.IDs(text, true)...)
	}
	return ids
}

// WordIDs returns the tokens of a text's words, which single spaces divide, and the first token of each word; -1 for a
// word without a token.
func WordIDs(list []string, tok Tokenizer) (ids []int32, first []int) {
	if bos, ok := tok.BOS(); ok && tok.AddsBOS() {
		ids = append(ids, bos)
	}
	for i, word := range list {
		if i > 0 {
			word = " " + word
		}
		part := tok.IDs(word, false)
		if first = append(first, len(ids)); len(part) == 0 {
			first[i] = -1
		}
		ids = append(ids, part...)
	}
	return ids, first
}

// encodeWords makes the tokens of a text's words. The first token of a word has its target.
func encodeWords(list []string, targets []float32, tok Tokenizer) (ids []int32, each []float32) {
	ids, first := WordIDs(list, tok)
	each = make([]float32, len(ids))
	for t := range each {
		each[t] = float32(Ignore)
	}
	for i, t := range first {
		if t >= 0 {
			each[t] = targets[i]
		}
	}
	return ids, each
}
