package chat

import (
	"slices"
	"strings"

	"github.com/tierlora/tierlora/text/jinja"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// Turn is the span of a row that belongs to a message, including what the template writes before and after its text.
type Turn struct {
	Message    int // index of the message in the conversation
	Role       string
	Start, End int // bytes of the row's text
}

// Looked is a row with the position of every message, for inspection by a person.
type Looked struct {
	Row
	Turns []Turn // in order; they cover the whole text
	// for each turn the first token that begins in it; across means that the token before straddles the boundary
	Starts []tokenizer.Border
	Across []bool // [len(IDs)] tokens that straddle a boundary of the loss mask
}

// Look makes the rows of a conversation as Rows does and locates the messages in them.
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

// maxLookedMessages bounds the renderings for one inspected row.
const maxLookedMessages = 1 << 10

// turns divides a row's text among its n messages. A message ends where the rendering up to it ends, if that is a
// prefix of the text; else after the end of its turn, if its texts are found; else it shares a span with the next
// message.
func (c *Chat) turns(t *Template, conv *Conversation, rendered string, n int) []Turn {
	if n == 0 {
		return nil
	}
	ends := make([]int, n) // 0: unknown
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
			ends[i] = 0 // the message writes nothing, or is out of order
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

// TemplateRole is the role of text that a template adds before the first message, such as a system prompt.
const TemplateRole = "template"

// splitLead separates the text that the template adds before the first message from that message, if the token that
// begins the second message occurs more than once before the text of the first.
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

// endsByTexts finds missing ends: after the token that ends a turn, in what the template writes between the texts of
// two messages.
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
			continue // not adjacent: a message without a text lies between, or the template changes their order
		}
		start := places[k-1]
		gap := rendered[start:places[k]]
		cut := len(gap)
		if s := c.specials(gap); len(s) > 0 {
			if cut = s[0].End; len(s) == 1 && c.known[t].end == "" {
				cut = s[0].Start // the start mark of the next message ends the turn
			}
			cut += len(gap[cut:]) - len(strings.TrimLeft(gap[cut:], "\n"))
		}
		ends[before] = start + cut
	}
}

// tail returns what a row holds after its rendering.
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
