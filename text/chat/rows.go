package chat

import (
	"errors"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/text/jinja"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// Ignore is the label of a token that is not trained.
const Ignore = int32(-100)

// Row is a conversation, or the beginning of one, in tokens.
type Row struct {
	Text   string
	IDs    []int32
	Labels []int32 // [len(IDs)] the token id where trained, else Ignore
	// Weights [len(IDs)] are the factors of the tokens' losses, those of the messages that they are trained in; nil = all
	// are one.
	Weights []float32
	Spans   []Span // trained spans of Text, in order
	Ends    []int  // for each trained turn, the number of tokens up to its end
	Across  int    // tokens that straddle a boundary of the loss mask; they are trained
	Plain   int    // special tokens in texts of messages that were read as text
	Kept    int    // special tokens in texts of messages that Options.Allow names
	Other   int    // turns that begin differently from the template's generation prompt
	Left    int    // texts of messages and names of calls that the template does not render
	Tools   int    // tools that the template does not render; counted in the conversation's first row
	Split   bool   // the row holds only some of the conversation's trained turns

	Messages int      // messages of the conversation that the row holds
	Found    []string // special tokens in texts of messages, without repetition

	messages []Message // messages of the conversation, for their weights
	plain    [][2]int  // ranges of Text in which special tokens were read as text; may be nil
}

// Span is a trained span of a row's text, in bytes, that belongs to one message.
type Span struct {
	Message    int
	Start, End int
}

// Rows renders the conversation and tokenises it: one row, or several if turns are split. An error says why the
// conversation cannot be trained on; if the template rejects it, that is the template's own message.
func (c *Chat) Rows(conv *Conversation) (_ []Row, err error) {
	defer tokenizer.Caught(&err)
	t := c.template(conv)
	if c.o.TrainOn == TrainAll && conv.CheckWeights() != nil {
		return nil, errors.New("a message has a weight of its own, and dataset.train_on: all trains all tokens alike")
	}
	conv = c.adapt(t, conv)
	if err := c.checkOutside(conv); err != nil {
		return nil, err
	}
	chosen := c.chosen(conv)
	texts, key := c.key(t, conv, chosen)
	if rows, err := c.byShape(t, conv, chosen, texts, key); err == nil {
		return rows, nil
	}
	if !slices.ContainsFunc(texts, func(t text) bool { return hasMarks(t.s) }) {
		rows, err := c.byProof(t, conv, chosen, texts, marked)
		if err == nil || !errors.Is(err, errUnread) {
			return rows, err
		}
	}
	if err := c.checkTexts(conv, texts); err != nil {
		return nil, err
	}
	return c.byProof(t, conv, chosen, texts, bare)
}

// byProof proves the spans of this one conversation.
func (c *Chat) byProof(t *Template, conv *Conversation, chosen []bool, texts []text, how scheme) ([]Row, error) {
	s, err := c.prove(t, conv, chosen, texts, how)
	if err != nil {
		return nil, err
	}
	return c.fill(t, conv, texts, s)
}

// byShape uses the shape that conversations like this one share.
func (c *Chat) byShape(t *Template, conv *Conversation, chosen []bool, texts []text, key string) ([]Row, error) {
	c.mu.RLock()
	s := c.shapes[key]
	c.mu.RUnlock()
	if s == nil {
		var err error
		if s, err = c.prove(t, conv, chosen, texts, standIns); err != nil {
			s = &shape{err: err}
		}
		c.mu.Lock()
		if len(c.shapes) < maxShapes {
			c.shapes[key] = s
		}
		c.mu.Unlock()
	}
	if s.err != nil {
		return nil, s.err
	}
	return c.fill(t, conv, texts, s)
}

// fill renders the conversation, checks that the shape describes it, and tokenises its rows.
func (c *Chat) fill(t *Template, conv *Conversation, texts []text, s *shape) ([]Row, error) {
	messages := make([]jinja.Value, len(conv.Messages))
	for i, m := range conv.Messages {
		messages[i] = m.Fields
	}
	rows := make([]Row, 0, len(s.rows))
	for r := range s.rows {
		shaped := &s.rows[r]
		given := texts
		if s.how != standIns {
			given = nil
		}
		out, err := t.render(conv, messages[:shaped.upto], false)
		if err == nil && shaped.joined != nil {
			out.Text, err = shaped.joined.text(t, conv, messages[:shaped.upto-1], out.Text, given)
		}
		if err != nil {
			return nil, err
		}
		ends, ok := shaped.layout.place(out.Text, given, make([]int, 0, len(shaped.layout.pieces)))
		if !ok {
			return nil, errUnread
		}
		row := Row{Text: out.Text + shaped.tail, Split: len(s.rows) > 1 || shaped.upto < len(messages) ||
			shaped.joined != nil, Messages: shaped.upto, messages: conv.Messages}
		if r == 0 {
			row.Tools = s.tools
		}
		if s.how != bare {
			row.Left = shaped.leftOut(texts)
		}
		for _, m := range conv.Messages[:shaped.upto] {
			for _, name := range m.callNames() {
				if !strings.Contains(row.Text, name) {
					row.Left++
				}
			}
		}
		for _, turn := range shaped.turns {
			if turn.other {
				row.Other++
			}
			for _, span := range turn.spans {
				row.Spans = append(row.Spans, Span{turn.message, span[0].byteOf(ends), span[1].byteOf(ends)})
			}
			if turn.toTail {
				row.Spans = append(row.Spans, Span{turn.message, len(out.Text), len(row.Text)})
			}
		}
		if t.jinja.HasGeneration() && !sameBlocks(s, row.Spans, out.Generation, c.o) {
			return nil, errUnread
		}
		if c.o.TrainOn == TrainAll {
			row.Spans = allBut(row)
		} else if conv.asked > 0 && shaped.upto == len(messages) {
			row.toEnd(shaped, ends)
		}
		c.encode(&row, shaped, ends, given, len(out.Text))
		rows = append(rows, row)
	}
	return rows, nil
}

// toEnd also trains what the template writes after the last message, if that message is trained up to its end: TRL
// trains everything after the prompt of a completion.
func (r *Row) toEnd(shaped *rowShape, ends []int) {
	for _, turn := range shaped.turns {
		if turn.message != shaped.upto-1 {
			continue
		}
		for i := range r.Spans {
			if s := &r.Spans[i]; s.Message == turn.message && s.Start < s.End && s.End == turn.end.byteOf(ends) {
				s.End = len(r.Text)
			}
		}
	}
}

// text returns the prompt of a turn followed by the turn, which is taken from the rendering `after`.
func (j *joined) text(t *Template, conv *Conversation, messages []jinja.Value, after string,
	texts []text) (string, error) {
	prompt, err := t.render(conv, messages, true)
	if err != nil {
		return "", err
	}
	_, ok := j.before.place(prompt.Text, texts, nil)
	ends, ok2 := j.after.place(after, texts, nil)
	if !ok || !ok2 {
		return "", errUnread
	}
	return prompt.Text + after[j.at.byteOf(ends):], nil
}

// leftOut counts the texts of the row's messages that do not occur in it. Reasoning is not counted: templates leave out
// that of earlier turns on purpose.
func (r *rowShape) leftOut(texts []text) int {
	n := 0
	for _, t := range texts {
		if t.message < r.upto && (t.kind != reasoning || t.message == r.upto-1) {
			n++
		}
	}
	for _, p := range r.layout.pieces {
		if p.text >= 0 && (texts[p.text].kind != reasoning || texts[p.text].message == r.upto-1) {
			n--
		}
	}
	return max(n, 0)
}

// sameBlocks reports whether the spans of fully trained messages are the {% generation %} blocks of this rendering.
func sameBlocks(s *shape, spans []Span, generation [][2]int, o Options) bool {
	if !o.Reasoning || !o.ToolCalls || len(o.Roles) != 1 || o.Roles[0] != "assistant" {
		return true
	}
	for _, span := range spans {
		if !slices.Contains(generation, [2]int{span.Start, span.End}) {
			return false
		}
	}
	return true
}

// allBut returns spans that cover all of the text except the row's spans.
func allBut(row Row) []Span {
	spans := [][2]int{{0, len(row.Text)}}
	for _, s := range row.Spans {
		spans = without(spans, [2]int{s.Start, s.End})
	}
	out := make([]Span, len(spans))
	for i, s := range spans {
		out[i] = Span{-1, s[0], s[1]}
	}
	return out
}

// encode tokenises the row's text. As in the masks of transformers, a token is trained if any of its text is. So the
// token that ends a turn is trained even if it includes more text.
func (c *Chat) encode(row *Row, shaped *rowShape, ends []int, texts []text, end int) {
	borders := make([]int, 0, 2*len(row.Spans)+len(shaped.turns))
	for _, s := range row.Spans {
		borders = append(borders, s.Start, s.End)
	}
	for _, turn := range shaped.turns {
		at := turn.end.byteOf(ends)
		if turn.toTail {
			at = len(row.Text)
		}
		borders = append(borders, at)
	}
	order := slices.Clone(borders)
	slices.Sort(order)
	order = slices.Compact(order)
	at := c.locate(row, shaped, ends, order)
	find := func(b int) tokenizer.Border {
		i, _ := slices.BinarySearch(order, b)
		return at[i]
	}
	row.Labels = make([]int32, len(row.IDs))
	for t := range row.Labels {
		row.Labels[t] = Ignore
	}
	for _, s := range row.Spans {
		from, to := find(s.Start), find(s.End)
		stop := to.Token
		if to.Across && s.Start < s.End {
			stop++
			row.Across++
		}
		if from.Across && s.Start < s.End {
			row.Across++
		}
		copy(row.Labels[from.Token:max(from.Token, stop)], row.IDs[from.Token:max(from.Token, stop)])
		row.weigh(s.Message, from.Token, stop)
	}
	for i := range shaped.turns {
		e := find(borders[2*len(row.Spans)+i])
		n := e.Token
		if e.Across {
			n++
		}
		row.Ends = append(row.Ends, n)
	}
	slices.Sort(row.Ends)
}

// weigh gives the tokens of a trained span the weight of its message.
func (r *Row) weigh(message, from, to int) {
	if message < 0 || r.messages[message].Weight == 0 {
		return
	}
	if r.Weights == nil {
		r.Weights = make([]float32, len(r.IDs))
		for t := range r.Weights {
			r.Weights[t] = 1
		}
	}
	for t := from; t < to; t++ {
		r.Weights[t] = float32(r.messages[message].Weight)
	}
}

// locate tokenises the text. Inside the texts of messages only the allowed special tokens are special.
func (c *Chat) locate(row *Row, shaped *rowShape, ends []int, borders []int) []tokenizer.Border {
	found := c.tok.Locate(row.Text, tokenizer.LocateOptions{Borders: borders})
	var plain [][2]int
	if len(found.Specials) > 0 {
		plain = c.textRanges(shaped, ends)
		allowAll := slices.Contains(c.o.Allow, "all")
		k := 0
		for _, s := range found.Specials {
			for k < len(plain) && plain[k][1] <= s.Start {
				k++
			}
			if k < len(plain) && plain[k][0] < s.End {
				if name, _ := c.tok.Token(s.ID); !slices.Contains(row.Found, name) {
					row.Found = append(row.Found, name)
				}
				if allowAll || c.allow[s.ID] {
					row.Kept++
				} else {
					row.Plain++
				}
			}
		}
	}
	if row.Plain > 0 {
		found = c.tok.Locate(row.Text, tokenizer.LocateOptions{Borders: borders, Plain: plain, Allow: c.allow})
		row.Plain, row.plain = found.Plain, plain
	}
	row.IDs = found.IDs
	return found.Borders
}

// textRanges returns the ranges of a row that are texts of messages.
func (c *Chat) textRanges(shaped *rowShape, ends []int) [][2]int {
	var ranges [][2]int
	for i, p := range shaped.layout.pieces {
		if p.text >= 0 && ends[i-1] < ends[i] {
			ranges = append(ranges, [2]int{ends[i-1], ends[i]})
		}
	}
	return ranges
}
