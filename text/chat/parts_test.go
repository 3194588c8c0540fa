package chat

import (
	"slices"
	"strings"
	"testing"
)

// TestTrainedPartsOnTemplates: on the reference's templates every key trains what it says, and no more: turns end with a
// token that ends them, last is the last turn, all is every token, a message with train: false is left out alone.
func TestTrainedPartsOnTemplates(t *testing.T) {
	all := talks(t, "templates")
	turns, others, lasts, without := 0, 0, 0, 0
	eachTemplate(t, func(template string, g goldenTemplate) {
		with := func(change func(*Options)) *Chat { return newChat(t, g.Source, "<s>", "</s>", change) }
		plain := with(nil)
		last := with(func(o *Options) { o.TrainOn = TrainLast })
		every := with(func(o *Options) { o.TrainOn = TrainAll })
		bare := with(func(o *Options) { o.Reasoning, o.ToolCalls = false, false })
		stops := plain.known[plain.plain].stops
		for name, conv := range all {
			rows, err := plain.Rows(conv)
			if err != nil {
				continue
			}
			where := template + ", " + name
			answers := 0
			for i, m := range conv.Messages {
				if m.Role == "assistant" {
					answers = i
				}
			}
			for _, r := range rows {
				for _, end := range r.Ends {
					for r.IDs[end-1] == 1000+'\n' || r.IDs[end-1] == 1000+' ' { // blocks may have space behind it
						end--
					}
					id := r.IDs[end-1]
					if turns++; r.Labels[end-1] != id || id >= 1000 {
						t.Errorf("%s: token %d, which ends a turn, is trained: %v", where, id, r.Labels[end-1] == id)
					}
					if !slices.Contains(stops, id) {
						others++
						// Gemma's and gpt-oss's calls, GLM's before a system message
					}
				}
			}
			if got, err := last.Rows(conv); err == nil {
				lasts++
				for _, r := range got {
					if slices.ContainsFunc(r.Spans, func(s Span) bool { return s.Message != answers }) {
						t.Errorf("%s: train_on last trains %v, not message %d alone", where, r.Spans, answers)
					}
				}
			} else {
				t.Errorf("%s: train_on last: %v", where, err)
			}
			if got, err := every.Rows(conv); err == nil && slices.Contains(got[0].Labels, Ignore) {
				t.Errorf("%s: train_on all leaves tokens out", where)
			}
			got, err := bare.Rows(conv)
			if err != nil {
				t.Logf("%s: without reasoning and calls: %v", where, err)
			}
			for _, r := range got {
				for _, s := range r.Spans {
					for _, name := range conv.Messages[s.Message].callNames() {
						if text := r.Text[s.Start:s.End]; strings.Contains(text, name) {
							t.Errorf("%s: without calls %q is trained", where, text)
						}
					}
				}
			}
			without += checkLeftOut(t, where, plain, conv, rows)
		}
	})
	t.Logf("%d turns, %d of them ended by another mark, %d conversations with last, %d with a message left out", turns, others, lasts, without)
	if turns < 700 || others > 6 || lasts < 500 || without < 200 {
		t.Error("fewer turns were looked at than there were, or more end otherwise")
	}
}

// checkLeftOut trains a conversation with its first answer left out: the others' spans stay what they were.
func checkLeftOut(t *testing.T, where string, c *Chat, conv *Conversation, rows []Row) int {
	t.Helper()
	first := slices.IndexFunc(conv.Messages, func(m Message) bool { return m.Role == "assistant" })
	if first < 0 || len(rows) != 1 || rows[0].Split {
		return 0
	}
	off := false
	left := &Conversation{Messages: slices.Clone(conv.Messages), Tools: conv.Tools}
	left.Messages[first].Train = &off
	want := slices.DeleteFunc(slices.Clone(rows[0].Spans), func(s Span) bool { return s.Message == first })
	got, err := c.Rows(left)
	switch {
	case err != nil:
		t.Errorf("%s: with train: false in message %d: %v", where, first, err)
	case len(got) != 1 || !slices.Equal(got[0].Spans, want):
		t.Errorf("%s: with train: false in message %d: %v, want %v", where, first, got[0].Spans, want)
	}
	return 1
}
