package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/text/chat"
)

// tokenizedPreference reads a pair of tokenised sequences: {chosen_input_ids, chosen_labels, rejected_input_ids,
// rejected_labels}, each as in the format tokenized.
var tokenizedPreference = Format{
	Roles: []Role{
		{Name: "chosen_input_ids", Keys: []string{"chosen_input_ids"}},
		{Name: "chosen_labels", Keys: []string{"chosen_labels"}},
		{Name: "rejected_input_ids", Keys: []string{"rejected_input_ids"}},
		{Name: "rejected_labels", Keys: []string{"rejected_labels"}},
		{Name: "chosen_attention_mask", Keys: []string{"chosen_attention_mask"}, Optional: true},
		{Name: "rejected_attention_mask", Keys: []string{"rejected_attention_mask"}, Optional: true},
		{Name: "margin", Keys: []string{"margin"}, Optional: true},
	},
	Preference: true,
	Trains:     "what the labels of the rows say",
	NoPrompt:   "the labels decide what is trained",
	Render:     renderTokenizedPreference,
	Supervised: "to train on the chosen answers alone write dataset.format: tokenized with dataset.fields: " +
		"{input_ids: chosen_input_ids, labels: chosen_labels}",
}

// tokenizedUnpaired reads {input_ids, labels, label}: a tokenised answer to learn or to avoid.
var tokenizedUnpaired = Format{
	Roles: append([]Role{
		{Name: "input_ids", Keys: []string{"input_ids"}},
		{Name: "labels", Keys: []string{"labels"}},
		{Name: "label", Keys: []string{"label", "kto_tag"}},
	}, tokenized.Roles[2:]...),
	Preference: true,
	Asked:      true,
	Trains:     tokenized.Trains,
	NoPrompt:   tokenized.NoPrompt,
	Render: func(f Fields, cfg Config) (Example, error) {
		label, err := f.label("label")
		if err != nil {
			return Example{}, err
		}
		ex, err := renderTokenized(f, cfg)
		ex.Desirable = label
		return ex, err
	},
	Supervised: "to train on all answers whatever their label write dataset.format: tokenized",
}

func renderTokenizedPreference(f Fields, cfg Config) (Example, error) {
	ex := Example{Names: []string{"chosen", "rejected"}}
	for _, side := range ex.Names {
		own := Fields{row: f.row, keys: map[string]string{}}
		for _, role := range []string{"input_ids", "labels", "attention_mask"} {
			own.keys[role] = f.keys[side+"_"+role]
		}
		one, err := renderTokenized(own, cfg)
		if err != nil {
			return Example{}, err
		}
		if one.Empty != "" {
			return one, nil
		}
		ex.Group = append(ex.Group, one)
	}
	chosen, rejected := ex.Group[0], ex.Group[1]
	if slices.Equal(chosen.IDs, rejected.IDs) && slices.Equal(chosen.Labels, rejected.Labels) {
		return Example{Empty: dropSamePair}, nil
	}
	n := min(maskedPrefix(chosen.Labels), maskedPrefix(rejected.Labels))
	if !slices.Equal(chosen.IDs[:n], rejected.IDs[:n]) {
		return Example{Empty: dropPrompts}, nil
	}
	return ex, readMargin(f, &ex, cfg)
}

// maskedPrefix counts the tokens before the first trained one.
func maskedPrefix(labels []int32) int {
	n := slices.IndexFunc(labels, func(l int32) bool { return l != Ignore })
	if n < 0 {
		return len(labels)
	}
	return n
}

// encodeCompletions makes a sequence of each answer. The trained part of all sequences begins at the same token: the
// first at which the ids of the prompt alone differ from those of the prompt with any of the answers.
func encodeCompletions(ex Example, tok Tokenizer, cfg Config, b *buffers) (encoded, error) {
	c := ex.Completions
	prompt, answers, said, err := c.tokens(tok, cfg)
	var special *chat.ErrSpecial
	if errors.As(err, &special) {
		return encoded{drop: dropSpecial, chat: said}, nil
	}
	if err != nil {
		return encoded{}, err
	}
	shared := len(prompt)
	for _, ids := range answers {
		shared = min(shared, samePrefix(prompt, ids))
	}
	e := encoded{desirable: ex.Desirable, targets: ex.Targets, chat: said}
	var sides []encoded
	b.ids, b.labels = b.ids[:0], b.labels[:0]
	for k, ids := range answers {
		labels, border := slices.Clone(ids), shared
		if cfg.Unpaired {
			border = samePrefix(prompt, ids)
		}
		for t := range border {
			labels[t] = Ignore
		}
		one, err := finish(encoded{ids: ids, labels: labels}, cfg)
		if err != nil {
			return encoded{}, err
		}
		if one.drop == dropMasked {
			one.drop = dropEmptyAnswer
		}
		sides = append(sides, one)
		e.join(one, k > 0, b)
	}
	if cfg.Unpaired && len(sides) == 2 {
		e = unpair(sides)
		e.chat = said
		return e, nil
	}
	e.tail = sides[0].tail
	e.ids, e.labels = b.ids, b.labels
	return e, nil
}

// unpair makes two labelled rows of the chosen and the rejected answer of a pair.
func unpair(sides []encoded) encoded {
	chosen, rejected := sides[0], sides[1]
	chosen.desirable, rejected.desirable = Desirable, Undesirable
	chosen.more = []encoded{rejected}
	return chosen
}

// join appends a sequence to the group whose tokens lie in b. further is false for the group's first sequence. A
// sequence that would be dropped alone drops the group.
func (e *encoded) join(one encoded, further bool, b *buffers) {
	e.drop = cmp.Or(e.drop, one.drop)
	e.cut, e.lost, e.length = e.cut || one.cut, e.lost+one.lost, max(e.length, one.length)
	if further {
		e.borders = append(e.borders, int32(len(b.ids)))
	}
	b.ids, b.labels = append(b.ids, one.ids...), append(b.labels, one.labels...)
}

// samePrefix returns the length of the common prefix of two lists of tokens.
func samePrefix(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// tokens returns the ids of the prompt alone and of the prompt with each answer; for conversations also the counts for
// the report.
func (c *Completions) tokens(tok Tokenizer, cfg Config) (
	prompt []int32, answers [][]int32, said *chatCounts, err error) {
	if c.Talks == nil {
		eos, _ := tok.EOS()
		end, _ := tok.Token(eos)
		for _, answer := range c.Answers {
			answers = append(answers, tok.IDs(c.Prompt+withEnd(answer, end), true))
		}
		return tok.IDs(c.Prompt, true), answers, nil, nil
	}
	by, err := cfg.chat.open()
	if err != nil {
		return nil, nil, nil, err
	}
	said = &chatCounts{messages: len(c.Talks[0].Messages), turns: len(c.Talks)}
	said.system, _ = c.Talks[0].System()
	begin, err := by.Prompted(c.Talks[0].Before(c.Said[0]))
	if err != nil {
		return nil, nil, said, err
	}
	for _, talk := range c.Talks {
		whole, err := by.Whole(talk)
		if err != nil {
			return nil, nil, said, err
		}
		if len(whole.IDs) == 0 {
			return nil, nil, said, fmt.Errorf("the chat template writes nothing of the conversation")
		}
		said.plain += whole.Plain
		answers = append(answers, whole.IDs)
	}
	return begin.IDs, answers, said, nil
}

// withEnd returns an answer with the text of the end token appended, unless it ends with it already.
func withEnd(answer, end string) string {
	if len(answer) >= len(end) && answer[len(answer)-len(end):] == end {
		return answer
	}
	return answer + end
}
