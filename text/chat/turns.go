package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/text/jinja"
)

// provenTurn is a message whose turn is what the template adds to the rendering of the conversation before it.
type provenTurn struct {
	message       int
	before, after string // the rendering up to where the model begins to write, and the rendering with the turn
	other         bool   // after `before`, the template's prompt continues differently from the turn
	joined        *joined
}

// joined is a row made of a prompt and a turn from different renderings, for templates that render the earlier messages
// differently once the turn is there (Mistral's then leave the system message out).
type joined struct {
	before, after layout
	at            mark // where the turn begins in `after`
}

// turn renders the conversation before message i and with it.
func (p *prover) turn(i int) (t provenTurn, err error) {
	prompt := p.conv.Messages[i].Role == "assistant"
	t.message = i
	if t.after, err = p.render(i+1, false); err != nil {
		return t, fmt.Errorf("%s: the conversation up to it cannot be rendered, so its mask cannot be proved: %w",
			p.conv.name(i), err)
	}
	t.before, err = p.render(i, prompt)
	if open := p.c.known[p.t].open; open != "" {
		t.after = strings.TrimSuffix(t.after, open)
		if !prompt {
			t.before = strings.TrimSuffix(t.before, open)
		}
	}
	switch {
	case err == nil && strings.HasPrefix(t.after, t.before):
	case i == 0 && !prompt:
		t.before = ""
	case i == 0:
		// Few templates render an empty conversation: look for the generation prompt before the text.
		if t.before = p.promptBefore(t.after); t.before == "" {
			return t, fmt.Errorf(
				"%s: the conversation begins with the assistant, and where the model would begin to write "+
					"cannot be told", p.conv.name(0))
		}
	case err == nil && prompt && (p.fork(&t) || p.join(&t)):
	case err != nil:
		return t, fmt.Errorf("%s: the conversation before it cannot be rendered, so its mask cannot be proved: %w",
			p.conv.name(i), err)
	default:
		return t, fmt.Errorf("%s: the template's prompt for the turn is not the beginning of the text with the turn, "+
			"so its mask cannot be proved", p.conv.name(i))
	}
	return t, p.checkWritten(t)
}

// fork handles templates whose prompt opens a reasoning that the turn does not begin with. The turn begins where prompt
// and turn differ, if that is after the text of the last message, at the head of the turn, and if the prompt's head is
// about reasoning.
func (p *prover) fork(t *provenTurn) bool {
	n := 0
	for n < len(t.before) && n < len(t.after) && t.before[n] == t.after[n] {
		n++
	}
	from := lastText(t.before, p.how)
	if p.how == bare || n <= from {
		return false
	}
	for _, s := range []string{t.before, t.after} {
		for _, special := range p.c.specials(s[from:min(len(s), n+100)]) {
			if from+special.Start < n && n < from+special.End {
				n = from + special.Start
			}
		}
	}
	if tag := strings.LastIndexByte(t.before[from:n], '<'); tag >= 0 && !strings.Contains(t.before[from+tag:n], ">") {
		n = from + tag // a tag that is not a special token also stays whole
	}
	head := strings.ToLower(t.before[from:])
	opens := func(word string) bool { return strings.Contains(head, word) }
	if trimSpace(t.before[from:n]) == "" || !slices.ContainsFunc([]string{"think", "thought", "reason"}, opens) {
		return false
	}
	t.before, t.other = t.before[:n], true
	return true
}

// join puts the turn after its prompt. The turn begins where the rendering, after the text of the last message, has
// written the end of the prompt.
func (p *prover) join(t *provenTurn) bool {
	if p.how == bare {
		return false
	}
	before, err := p.read(t.before)
	after, err2 := p.read(t.after)
	k := slices.IndexFunc(after.pieces,
		func(piece piece) bool { return piece.text >= 0 && p.texts[piece.text].message == t.message })
	if err != nil || err2 != nil || k < 3 || len(before.pieces) < 3 {
		return false
	}
	end := before.pieces[len(before.pieces)-1].gap
	gap := after.pieces[k-1]
	if after.pieces[k-2].text != before.pieces[len(before.pieces)-2].text || trimSpace(end) == "" ||
		!strings.HasPrefix(gap.gap, end) {
		return false
	}
	t.joined = &joined{before, after, mark{k - 1, len(end)}}
	t.after = t.before + t.after[gap.at+len(end):]
	return true
}

// promptBefore returns the rendering of a first message from its start up to the generation prompt before its text.
func (p *prover) promptBefore(after string) string {
	l, err := p.read(after)
	prompt := p.c.known[p.t].prompt
	if err != nil || len(l.pieces) == 1 || prompt == "" {
		return ""
	}
	at := strings.LastIndex(l.pieces[0].gap, prompt)
	if at < 0 {
		return ""
	}
	return after[:at+len(prompt)]
}

// checkWritten rejects a turn whose text or calls the template leaves out.
func (p *prover) checkWritten(t provenTurn) error {
	turn := t.after[len(t.before):]
	for _, name := range p.conv.Messages[t.message].callNames() {
		if !strings.Contains(turn, name) {
			return fmt.Errorf("%s: the template does not write the call of %s: name one that does by "+
				"dataset.chat_template, or leave such conversations out", p.conv.name(t.message), words.Clip(name,
				maxShown))
		}
	}
	if p.how == bare {
		return nil
	}
	for n, text := range p.texts {
		if text.message == t.message && text.kind == answer && !strings.ContainsRune(turn, openMark(n)) {
			return fmt.Errorf("%s: the template does not write the message's text: name one that does by "+
				"dataset.chat_template, or leave such conversations out", p.conv.name(t.message))
		}
	}
	return nil
}

// place adds to a row the turns that are proved in it, and returns the others.
func (p *prover) place(row *rowShape, turns []provenTurn) (others []provenTurn, err error) {
	raw := row.layout.raw
	for _, t := range turns {
		end := len(t.after)
		if !strings.HasPrefix(raw, t.after) {
			if end = p.commonEnd(raw, t); end < 0 {
				others = append(others, t)
				continue
			}
		}
		shaped, err := p.shapeTurn(row, t.message, len(t.before), end)
		if err != nil {
			return nil, err
		}
		if shaped != nil {
			shaped.other = t.other
			row.turns = append(row.turns, *shaped)
		}
	}
	return others, nil
}

// commonEnd returns the end of a turn in a longer row, for templates that close every rendering with one more token
// (Phi-3.5). The row must contain the turn up to a token that ends it, and the rest of the rendering must close the
// row. It returns -1 if that is not so.
func (p *prover) commonEnd(raw string, t provenTurn) int {
	n := 0
	for n < len(raw) && n < len(t.after) && raw[n] == t.after[n] {
		n++
	}
	from := lastText(t.after[:n], p.how) // not inside a text
	for _, s := range p.c.specials(t.after[from:min(len(t.after), n+100)]) {
		if from+s.Start < n && n < from+s.End {
			n = from + s.Start
		}
	}
	if n <= len(t.before) || n < from || t.after[n:] == "" || !strings.HasSuffix(raw, t.after[n:]) {
		return -1
	}
	turn := trimRight(t.after[max(from, len(t.before)):n])
	if s := p.c.specials(turn); len(s) == 0 || s[len(s)-1].End != len(turn) {
		return -1
	}
	return n
}

// lastText returns the end of the last marked text in a rendering, 0 without one.
func lastText(raw string, how scheme) int {
	if how == bare {
		return 0
	}
	for i := len(raw) - 4; i >= 0; i-- {
		if raw[i] == 0xF3 && raw[i+1] >= 0xB0 {
			end := i + 4
			if how == standIns {
				_, end = rightOf(raw[end:], end)
			}
			return end
		}
	}
	return 0
}

// checkNull rejects a null content that the template writes as None.
func (p *prover) checkNull(whole string) error {
	first := -1
	filled := make([]jinja.Value, len(p.messages))
	for i, v := range p.messages {
		filled[i] = v
		d := v.(*jinja.Dict)
		content, ok := d.Get("content")
		if _, null := content.(jinja.None); ok && null {
			if first < 0 {
				first = i
			}
			d = d.Copy()
			d.Set("content", jinja.Str(""))
			filled[i] = d
		}
	}
	if first < 0 {
		return nil
	}
	out, err := p.t.render(p.conv, filled, false)
	if err == nil && strings.Count(whole, "None") > strings.Count(out.Text, "None") {
		return fmt.Errorf("%s.content is null, and the template writes it as the word None: use an empty string",
			p.conv.name(first))
	}
	return nil
}
