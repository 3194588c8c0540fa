package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/text/jinja"
)

// shapeTurn finds what is trained in the bytes [start,end) of a row, the turn of message i. nil means that nothing is.
func (p *prover) shapeTurn(row *rowShape, i, start, end int) (*turnShape, error) {
	raw, m := row.layout.raw, p.conv.Messages[i]
	if m.Role != "assistant" {
		return p.shapeOther(row, i, start, end)
	}
	stopAt, stop, tail, err := p.ending(raw, i, start, end)
	if err != nil {
		return nil, err
	}
	if tail != "" {
		row.tail = tail
	}
	spans, err := p.parts(row.layout, i, [][2]int{{start, stop}}, stopAt)
	if err != nil || spans == nil {
		return nil, err
	}
	return p.marks(row.layout, i, spans, stop, tail != "")
}

// shapeOther is shapeTurn for messages of other roles than the assistant's. Their text is trained up to the end of the
// turn.
func (p *prover) shapeOther(row *rowShape, i, start, end int) (*turnShape, error) {
	for _, piece := range row.layout.pieces {
		if piece.text >= 0 && piece.at >= start && p.texts[piece.text].message == i {
			start = piece.at
			break
		}
	}
	raw := row.layout.raw
	from := max(start, lastText(raw[:end], p.how))
	end = from + len(trimRight(raw[from:end]))
	if start == end {
		return nil, nil
	}
	return p.marks(row.layout, i, [][2]int{{start, end}}, end, false)
}

// ending finds the token that ends the turn: [stopAt,stop) of the row, or tail, which is not part of the row yet.
func (p *prover) ending(raw string, i, start, end int) (stopAt, stop int, tail string, err error) {
	from := max(start, lastText(raw[:end], p.how))
	after := trimRight(raw[from:end])
	ends := p.c.endText(p.t)
	if ends != "" || p.c.known[p.t].unknown {
		if at, ok := p.endsTurn(after); ok {
			return from + at, from + len(after), "", nil
		}
	}
	if ends == "" || len(p.conv.Messages[i].callNames()) > 0 {
		if end < len(raw) {
			if n := p.c.firstMark(raw[end:min(len(raw), end+100)]); n > 0 {
				return end, end + n, "", nil
			}
		} else if tail = p.nextMark(raw, i); tail != "" {
			return end, end, tail, nil
		}
	}
	switch {
	case ends != "" && p.empty(i):
		return 0, 0, "", fmt.Errorf(
			"%s: the message is empty, and the template then does not end the turn with %q as it "+
				"ends others, so the model would not learn to stop: leave such conversations out", p.conv.name(i), ends)
	case ends != "":
		return 0, 0, "", fmt.Errorf(
			"%s: the template does not end the turn with %q as it ends others, so the model would "+
				"not learn to stop", p.conv.name(i), ends)
	}
	return 0, 0, "", fmt.Errorf("%s: the template writes nothing behind an assistant's turn that ends it, and no "+
		"special token begins the next one, so the model would not learn to stop: name a template that ends its "+
		"turns by dataset.chat_template", p.conv.name(i))
}

// empty reports whether message i has no texts.
func (p *prover) empty(i int) bool {
	return !slices.ContainsFunc(p.texts, func(t text) bool { return t.message == i && trimSpace(t.s) != "" })
}

// endsTurn reports whether the text that a template wrote after a message ends with the end of a turn, and where that
// begins.
func (p *prover) endsTurn(after string) (at int, ok bool) {
	if s := p.c.specials(after); len(s) > 0 && s[len(s)-1].End == len(after) {
		return s[len(s)-1].Start, true
	}
	if end := p.c.endText(p.t); end != "" && strings.HasSuffix(after, end) {
		return len(after) - len(end), true
	}
	return 0, false
}

// nextMark returns the special token with which a message after the last message i would begin. If the template would
// then render this conversation differently, nextMark returns the token found when the template was tried.
func (p *prover) nextMark(raw string, i int) string {
	next, known := fields("user", jinja.Str("x")), p.c.known[p.t].next[0]
	if len(p.conv.Messages[i].callNames()) > 0 {
		next, known = fields("tool", jinja.Str("x")), p.c.known[p.t].next[1]
	}
	out, err := p.t.render(p.conv, append(p.messages[:i+1:i+1], next), false)
	if err != nil || !strings.HasPrefix(out.Text, raw) {
		return known
	}
	rest := out.Text[len(raw):]
	return rest[:p.c.firstMark(rest)]
}

// firstMark returns the end of the special token at the start of a text, ignoring line breaks before it; 0 without one.
func (c *Chat) firstMark(text string) int {
	lead := len(text) - len(strings.TrimLeft(text, "\n"))
	if s := c.specials(text[lead:]); len(s) > 0 && s[0].Start == 0 {
		return lead + s[0].End
	}
	return 0
}

// parts removes reasoning and tool calls from the spans of message i, as the options say. stopAt is where the end of
// its turn begins. nil means that nothing is left to train.
func (p *prover) parts(l layout, i int, spans [][2]int, stopAt int) ([][2]int, error) {
	calls := p.conv.Messages[i].callNames()
	if p.c.o.Reasoning && p.c.o.ToolCalls {
		return spans, nil
	}
	if p.how == bare {
		for _, t := range p.texts {
			if t.message == i && (t.kind == reasoning && !p.c.o.Reasoning || t.kind == call && !p.c.o.ToolCalls) {
				return nil, fmt.Errorf(
					"%s: the template changes the text, so where its reasoning and tool calls lie cannot be "+
						"told (dataset.train_reasoning, dataset.train_tool_calls)", p.conv.name(i))
			}
		}
	}
	turn := [2]int{spans[0][0], spans[len(spans)-1][1]}
	before, wrote := turn[0], false // end of the text before, and whether anything other than tool calls is trained
	for k := 1; k < len(l.pieces); k += 2 {
		piece := l.pieces[k]
		if piece.at < turn[0] || piece.end > turn[1] || p.texts[piece.text].message != i {
			continue
		}
		out := [2]int{}
		switch p.texts[piece.text].kind {
		case reasoning:
			if p.c.o.Reasoning {
				wrote = true
				break
			}
			end, ok := p.reasoningEnd(l, k, i)
			if !ok {
				return nil, fmt.Errorf("%s: the template does not show where the reasoning ends "+
					"(dataset.train_reasoning is false)",
					p.conv.name(i))
			}
			out = [2]int{before, end}
		case call:
			if p.c.o.ToolCalls {
				break
			}
			open, end := strings.LastIndex(l.pieces[k-1].gap, "<tool_call>"), strings.Index(l.pieces[k+1].gap,
				"</tool_call>")
			if open < 0 || end < 0 {
				return nil, fmt.Errorf("%s: the tool call has no <tool_call> and </tool_call> around it "+
					"(dataset.train_tool_calls is false)", p.conv.name(i))
			}
			out = [2]int{l.pieces[k-1].at + open, l.pieces[k+1].at + end + len("</tool_call>")}
		default:
			wrote = true
		}
		if before = piece.end; out[1] > 0 {
			spans = without(spans, out)
			before = max(before, out[1])
		}
	}
	if len(calls) > 0 && !p.c.o.ToolCalls {
		if !wrote {
			return nil, nil
		}
		if !strings.Contains(l.raw[before:max(before, stopAt)], calls[0]) {
			return nil, fmt.Errorf(
				"%s: the template does not write the tool calls behind the text, so where they lie cannot "+
					"be told (dataset.train_tool_calls is false)", p.conv.name(i))
		}
		spans = without(spans, [2]int{before, stopAt})
	}
	return spans, nil
}

// reasoningEnd returns where the message continues after the reasoning in piece k.
func (p *prover) reasoningEnd(l layout, k, i int) (int, bool) {
	gap := l.pieces[k+1]
	if k+2 < len(l.pieces) && p.texts[l.pieces[k+2].text].message == i {
		return gap.end, true
	}
	at := strings.Index(gap.gap, "</think>")
	if at < 0 {
		return 0, false
	}
	at += len("</think>")
	for at < len(gap.gap) && gap.gap[at] == '\n' {
		at++
	}
	return gap.at + at, true
}

// without removes a range from ranges.
func without(spans [][2]int, out [2]int) [][2]int {
	var left [][2]int
	for _, s := range spans {
		if out[1] <= s[0] || out[0] >= s[1] {
			left = append(left, s)
			continue
		}
		if s[0] < out[0] {
			left = append(left, [2]int{s[0], out[0]})
		}
		if out[1] < s[1] {
			left = append(left, [2]int{out[1], s[1]})
		}
	}
	return left
}

// marks converts positions in a marked rendering to marks of its layout.
func (p *prover) marks(l layout, i int, spans [][2]int, end int, toTail bool) (*turnShape, error) {
	t := &turnShape{message: i, toTail: toTail}
	for _, s := range spans {
		from, ok := l.mark(s[0])
		to, ok2 := l.mark(s[1])
		if !ok || !ok2 {
			return nil, fmt.Errorf("%s: the turn begins or ends inside of a message's text", p.conv.name(i))
		}
		t.spans = append(t.spans, [2]mark{from, to})
	}
	var ok bool
	if t.end, ok = l.mark(end); !ok {
		return nil, fmt.Errorf("%s: the turn ends inside of a message's text", p.conv.name(i))
	}
	return t, nil
}

// blocks assigns the template's {% generation %} blocks to the trained messages of the assistant.
func (p *prover) blocks(row rowShape, generation [][2]int) ([]turnShape, error) {
	owner := p.owners(row.layout, generation)
	var turns []turnShape
	for i, on := range p.chosen {
		if !on || !p.generated(i) {
			continue
		}
		var spans [][2]int
		for k, b := range generation {
			if owner[k] == i && b[0] < b[1] {
				spans = append(spans, b)
			}
		}
		if len(spans) == 0 {
			return nil, fmt.Errorf("%s: no {%% generation %%} block of the template covers the turn", p.conv.name(i))
		}
		stopAt, stop, err := p.blockEnd(row.layout.raw, i, spans)
		if err != nil {
			return nil, err
		}
		if spans, err = p.parts(row.layout, i, spans, stopAt); err != nil {
			return nil, err
		}
		if spans == nil {
			continue
		}
		t, err := p.marks(row.layout, i, spans, stop, false)
		if err != nil {
			return nil, err
		}
		turns = append(turns, *t)
	}
	return turns, nil
}

// owners returns the message of every block: the one whose text it contains, else the one of the same number, else that
// of the block before.
func (p *prover) owners(l layout, generation [][2]int) []int {
	var assistants []int
	for i, m := range p.conv.Messages {
		if m.Role == "assistant" {
			assistants = append(assistants, i)
		}
	}
	owner := make([]int, len(generation))
	last := -1
	if len(assistants) > 0 {
		last = assistants[0]
	}
	k := 1
	for b, block := range generation {
		owner[b] = -1
		for ; k < len(l.pieces) && l.pieces[k].at < block[1]; k += 2 {
			if l.pieces[k].at >= block[0] && owner[b] < 0 {
				owner[b] = p.texts[l.pieces[k].text].message
			}
		}
		switch {
		case owner[b] >= 0:
		case len(generation) == len(assistants):
			owner[b] = assistants[b]
		default:
			owner[b] = last
		}
		last = owner[b]
	}
	return owner
}

// blockEnd checks that the blocks of a message contain the token that ends its turn.
func (p *prover) blockEnd(raw string, i int, spans [][2]int) (stopAt, stop int, err error) {
	start, end := spans[0][0], spans[len(spans)-1][1]
	from := max(start, lastText(raw[:end], p.how))
	after := trimRight(raw[from:end])
	if p.c.endText(p.t) != "" {
		if at, ok := p.endsTurn(after); ok {
			return from + at, end, nil
		}
	}
	next := strings.TrimLeft(raw[end:min(len(raw), end+100)], "\n")
	if s := p.c.specials(next); len(s) > 0 && s[0].Start == 0 {
		return 0, 0, fmt.Errorf(
			"%s: the template's {%% generation %%} block ends before %s, so the model would not learn "+
				"to stop: the block must hold the token that ends the turn", p.conv.name(i), next[:s[0].End])
	}
	return 0, 0, fmt.Errorf("%s: the template's {%% generation %%} block does not end with a token that ends the "+
		"turn, so the model would not learn to stop", p.conv.name(i))
}
