package chat

import (
	"slices"
	"strings"

	"github.com/tierlora/tierlora/text/jinja"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// Turn is the stretch of a row that a message takes: what the template writes before and behind its text belongs to it.
type Turn struct {
	Message    int // of the conversation
	Role       string
	Start, End int // bytes of the row's text
}

// Looked is a row with the place of every message, for people to look at.
type Looked struct {
	Row
	Turns  []Turn             // in order, all of the text
	Starts []tokenizer.Border // for each turn, the first token that begins in it; across: the token before lies across
	Across []bool             // [len(IDs)] tokens across the border of a trained stretch
}

// Look makes a conversation's rows as Rows does and finds the messages in them.
func (c *Chat) Look(conv *Conversation) (_ []Looked, err error) {
	defer tokenizer.Caught(&err)
	rows, err := c.Rows(conv)
	if err != nil {
		return nil, err
	}
	t := c.template(conv)
	conv = c.adapt(t, conv)
	looked := make([]Looked, len(rows))
	for i, row := range rows {
		l := Looked{Row: row, Turns: c.turns(t, conv, row.Text, row.Messages), Across: make([]bool, len(row.IDs))}
		var borders []int
		for _, turn := range l.Turns {
			borders = append(borders, turn.Start)
		}
		for _, s := range row.Spans {
			borders = append(borders, s.Start, s.End)
		}
		slices.Sort(borders)
		borders = slices.Compact(borders)
		found := c.tok.Locate(row.Text, tokenizer.LocateOptions{Borders: borders, Plain: row.plain, Allow: c.allow})
		at := func(b int) tokenizer.Border {
			k, _ := slices.BinarySearch(borders, b)
			return found.Borders[k]
		}
		for _, turn := range l.Turns {
			l.Starts = append(l.Starts, at(turn.Start))
		}
		for _, s := range row.Spans {
			for _, b := range []tokenizer.Border{at(s.Start), at(s.End)} {
				if b.Across && s.Start < s.End && b.Token < len(l.Across) {
					l.Across[b.Token] = true
				}
			}
		}
		looked[i] = l
	}
	return looked, nil
}

// maxLookedMessages bounds the renderings of one row that is looked at.
const maxLookedMessages = 1 << 10

// turns shares a row's text out to its n messages. A message ends where the rendering up to it ends, if that is the beginning of
// the text; else behind what ends its turn, if its texts are found; else it shares a stretch with the message behind it.
func (c *Chat) turns(t *Template, conv *Conversation, rendered string, n int) []Turn {
	if n == 0 {
		return nil
	}
	ends := make([]int, n) // 0: not known
	part := &Conversation{Tools: conv.Tools, Vars: conv.Vars}
	for i := range min(n-1, maxLookedMessages) {
		part.Messages = conv.Messages[:i+1]
		if text, err := t.Text(part, false); err == nil && strings.HasPrefix(rendered, text) {
			ends[i] = len(text)
		}
	}
	ends[n-1] = len(rendered)
	part.Messages = conv.Messages[:n]
	c.endsByTexts(t, part, rendered, ends)
	start := 0
	for i, end := range ends {
		if end <= start {
			ends[i] = 0 // nothing of its own, or out of order
		}
		start = max(start, end)
	}
	var turns []Turn
	start = 0
	for i, end := range ends {
		if end == 0 {
			continue
		}
		first := i
		for first > 0 && ends[first-1] == 0 {
			first--
		}
		roles := make([]string, 0, i-first+1)
		for k := first; k <= i; k++ {
			roles = append(roles, conv.Messages[k].Role)
		}
		turns = append(turns, Turn{first, strings.Join(roles, " + "), start, end})
		start = end
	}
	return c.splitLead(turns, conv, rendered)
}

// TemplateRole is the role of what a template writes in front of the first message by itself, such as a system prompt.
const TemplateRole = "template"

// splitLead parts what the template writes in front of the first message from that message: where the token that begins
// the second message stands more than once before the first one's text.
func (c *Chat) splitLead(turns []Turn, conv *Conversation, rendered string) []Turn {
	if len(turns) < 2 {
		return turns
	}
	content, _ := conv.Messages[0].Fields.Get("content")
	text, _ := content.(jinja.Str)
	at := strings.LastIndex(rendered[:turns[0].End], trimSpace(string(text)))
	next := c.specials(rendered[turns[1].Start:turns[1].End])
	if at < 0 || len(next) == 0 || next[0].Start != 0 {
		return turns
	}
	var begins []int
	for _, s := range c.specials(rendered[:at]) {
		if s.ID == next[0].ID {
			begins = append(begins, s.Start)
		}
	}
	if len(begins) < 2 {
		return turns
	}
	cut := begins[len(begins)-1]
	lead := Turn{-1, TemplateRole, 0, cut}
	turns[0].Start = cut
	return append([]Turn{lead}, turns...)
}

// endsByTexts finds ends that are not known yet: behind the token that ends a turn, in what the template writes between
// the texts of two messages.
func (c *Chat) endsByTexts(t *Template, conv *Conversation, rendered string, ends []int) {
	if !slices.Contains(ends, 0) {
		return
	}
	texts, _ := c.key(t, conv, make([]bool, len(conv.Messages)))
	if len(texts) > maxTexts || slices.ContainsFunc(texts, func(t text) bool { return hasMarks(t.s) }) {
		return
	}
	out, err := t.render(conv, marks(conv, marked), false)
	if err != nil {
		return
	}
	l, ok := readLayout(out.Text, len(texts), false)
	if !ok {
		return
	}
	places, ok := l.place(strings.TrimSuffix(rendered, c.tail(rendered, l)), nil, nil)
	if !ok {
		return
	}
	for k := 2; k+1 < len(l.pieces); k += 2 { // gaps between two texts
		before, after := texts[l.pieces[k-1].text].message, texts[l.pieces[k+1].text].message
		if after != before+1 || ends[before] != 0 {
			continue // not neighbours: a message without a text lies between, or the template changes their order
		}
		start := places[k-1]
		gap := rendered[start:places[k]]
		cut := len(gap)
		if s := c.specials(gap); len(s) > 0 {
			if cut = s[0].End; len(s) == 1 && c.known[t].end == "" {
				cut = s[0].Start // the next message's mark ends the turn
			}
			cut += len(gap[cut:]) - len(strings.TrimLeft(gap[cut:], "\n"))
		}
		ends[before] = start + cut
	}
}

// tail is what a row holds behind its rendering.
func (c *Chat) tail(rendered string, l layout) string {
	last := l.pieces[len(l.pieces)-1].gap
	if strings.HasSuffix(rendered, last) {
		return ""
	}
	if at := strings.LastIndex(rendered, last); last != "" && at >= 0 {
		return rendered[at+len(last):]
	}
	return ""
}
