package chat

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/text/jinja"
)

// scheme is how a conversation's texts are passed to the template while its spans are located.
type scheme uint8

const (
	standIns scheme = iota // every text is replaced: the result holds for all conversations of one shape
	marked                 // the texts themselves, between marks
	bare                   // the texts themselves, without marks: only prefixes can be compared
)

// shape records where the trained turns of a conversation lie. With standIns it holds for every conversation whose
// renderings equal the layouts with its texts filled in.
type shape struct {
	how  scheme
	rows []rowShape
	// tools is the number of the conversation's tools that the template does not render.
	tools int
	err   error // why conversations of this shape cannot be trained on
}

// rowShape is one rendering that becomes a row: the first messages of the conversation.
type rowShape struct {
	upto   int
	layout layout
	tail   string // text added after the rendering: the start of a next message, which ends the last turn
	turns  []turnShape
	joined *joined // the parts of the layout, if it is not a single rendering
}

// turnShape is a trained message in a row. end is the position after the token that ends the turn.
type turnShape struct {
	message int
	spans   [][2]mark // trained spans
	end     mark
	other   bool // the template's generation prompt differs from how the turn begins
	toTail  bool // the tail is trained too
}

// Limits of the work to prove one conversation: the messages and the bytes of all renderings together.
const (
	maxRenders = 1 << 20
	maxBytes   = 256 << 20
)

// prover locates the spans of one conversation.
type prover struct {
	c        *Chat
	t        *Template
	conv     *Conversation
	chosen   []bool // messages whose turns are located
	how      scheme
	messages []jinja.Value
	texts    []text
	bytes    int // bytes rendered so far
}

func (c *Chat) prove(t *Template, conv *Conversation, chosen []bool, texts []text, how scheme) (*shape, error) {
	p := &prover{c: c, t: t, conv: conv, chosen: chosen, how: how, texts: texts}
	return p.shape()
}

// marks returns the messages with marks around every text.
func marks(conv *Conversation, how scheme) []jinja.Value {
	messages := make([]jinja.Value, len(conv.Messages))
	n := 0
	for i, m := range conv.Messages {
		if how == bare {
			messages[i] = m.Fields
			continue
		}
		messages[i] = m.texts(func(in kind, s string) string {
			var b strings.Builder
			split(s, in, func(k kind, s string) {
				switch {
				case k >= tag:
					b.WriteString(s)
				case how == standIns:
					fmt.Fprintf(&b, standIn, openMark(n), closeMark(n))
					n++
				default:
					core := trimSpace(s)
					at := strings.Index(s, core)
					b.WriteString(s[:at])
					b.WriteRune(openMark(n))
					b.WriteString(core)
					b.WriteRune(closeMark(n))
					b.WriteString(s[at+len(core):])
					n++
				}
			})
			return b.String()
		})
	}
	return messages
}

// render renders the first upto messages.
func (p *prover) render(upto int, prompt bool) (string, error) {
	if p.bytes > maxBytes {
		return "", p.tooMuch(fmt.Sprintf("more than %d MB of renderings", maxBytes>>20))
	}
	out, err := p.t.render(p.conv, p.messages[:upto], prompt)
	p.bytes += len(out.Text)
	return out.Text, err
}

// checkWork rejects a conversation with so many turns that proving them one by one would take too long.
func (p *prover) checkWork() error {
	work, turns := 0, 0
	for i, on := range p.chosen {
		if on && !p.generated(i) {
			work += 2*i + 1
			turns++
		}
	}
	if turns > 1 && work > maxRenders {
		return p.tooMuch(fmt.Sprintf("%d rendered messages, more than %d", work, maxRenders))
	}
	return nil
}

func (p *prover) tooMuch(what string) error {
	return fmt.Errorf("the conversation has %d messages: to prove the masks of its turns would take %s; split it, or "+
		"set dataset.train_on: last", len(p.conv.Messages), what)
}

// errUnread means that the template changed the marks; another scheme may work.
var errUnread = errors.New("the template does not write the texts as they are")

func (p *prover) read(raw string) (layout, error) {
	if p.how == bare {
		return layout{raw: raw, pieces: []piece{{gap: raw, text: -1, end: len(raw)}}}, nil
	}
	l, ok := readLayout(raw, len(p.texts), p.how == standIns)
	if !ok {
		return l, errUnread
	}
	return l, nil
}

func (p *prover) shape() (*shape, error) {
	if err := p.checkWork(); err != nil {
		return nil, err
	}
	if p.how != bare && len(p.texts) > maxTexts {
		return nil, errUnread
	}
	p.messages = marks(p.conv, p.how)
	whole, err := p.t.render(p.conv, p.messages, false)
	if err != nil {
		if p.how != bare {
			err = errUnread // perhaps the template cannot handle the marks
		}
		return nil, err
	}
	if err := p.checkNull(whole.Text); err != nil {
		return nil, err
	}
	s := &shape{how: p.how, tools: p.leftTools(whole.Text)}
	l, err := p.read(whole.Text)
	if err != nil {
		return nil, err
	}
	row := rowShape{upto: len(p.messages), layout: l}
	if p.t.jinja.HasGeneration() {
		if row.turns, err = p.blocks(row, whole.Generation); err != nil {
			return nil, err
		}
	}
	together := p.c.o.Turns != SplitAlways || p.c.o.TrainOn == TrainAll || len(row.turns) > 0
	var pending []provenTurn // turns that are not in the row of the whole conversation
	turns := 0
	for i, on := range p.chosen {
		if !on || p.generated(i) {
			continue
		}
		turn, err := p.turn(i)
		if err != nil {
			return nil, err
		}
		turns++
		if !together {
			pending = append(pending, turn)
			continue
		}
		others, err := p.place(&row, []provenTurn{turn})
		if err != nil {
			return nil, err
		}
		pending = append(pending, others...)
	}
	if len(pending) > 0 && (p.c.o.Turns == SplitNever || p.c.o.TrainOn == TrainAll) {
		return nil, fmt.Errorf(
			"%s: the template writes the turn otherwise once messages follow, so its mask in the whole "+
				"conversation cannot be proved (dataset.split_turns is %s, dataset.train_on %s)",
			p.conv.name(pending[len(pending)-1].message), p.c.o.Turns, p.c.o.TrainOn)
	}
	if len(row.turns) > 0 || turns == 0 || p.c.o.TrainOn == TrainAll {
		s.rows = append(s.rows, row)
	}
	return s, p.rows(s, pending)
}

// leftTools counts the tools of the conversation that the template does not render: all if the rendering is the same
// without them, else those whose name does not occur in it.
func (p *prover) leftTools(whole string) int {
	list, _ := p.conv.Tools.(*jinja.List)
	if list == nil {
		return 0
	}
	without := *p.conv
	without.Tools = nil
	out, err := p.t.render(&without, p.messages, false)
	p.bytes += len(out.Text)
	if err == nil && out.Text == whole {
		return len(list.Items)
	}
	left := 0
	for _, item := range list.Items {
		if name := toolName(item); !strings.Contains(whole, name) {
			left++
		}
	}
	return left
}

// generated reports whether the template's {% generation %} blocks decide what is trained of a message.
func (p *prover) generated(i int) bool {
	return p.t.jinja.HasGeneration() && p.conv.Messages[i].Role == "assistant"
}

// rows puts turns that the template renders differently once messages follow into as few rows as possible; each row is
// the conversation up to one of the turns.
func (p *prover) rows(s *shape, pending []provenTurn) error {
	for len(pending) > 0 {
		last := pending[len(pending)-1]
		row := rowShape{upto: last.message + 1, joined: last.joined}
		var err error
		if row.layout, err = p.read(last.after); err != nil {
			return err
		}
		candidates := pending
		if p.c.o.Turns == SplitAlways {
			candidates = pending[len(pending)-1:]
		}
		rest, err := p.place(&row, candidates)
		if err != nil {
			return err
		}
		if len(rest) == len(candidates) {
			return fmt.Errorf("%s: no rendering proves where the turn lies", p.conv.name(last.message))
		}
		pending = append(pending[:len(pending)-len(candidates):len(pending)-len(candidates)], rest...)
		if len(row.turns) > 0 {
			s.rows = append(s.rows, row)
		}
	}
	slices.SortStableFunc(s.rows, func(a, b rowShape) int { return a.upto - b.upto })
	return nil
}
