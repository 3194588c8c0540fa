package dataset

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tierlora/tierlora/text/chat"
)

// Look returns count rows from row first on; validation rows follow the training rows. A token cache does not record
// which message a token belongs to, so those rows are read again from the source.
func (s *Set) Look(ctx context.Context, first, count int, tok Tokenizer) ([]Inspected, error) {
	train := s.Train.Len()
	l := &look{lines: map[string]map[int]bool{}}
	for n := first; n < min(first+count, train+s.Val.Len()); n++ {
		row, tokens, err := s.Inspect(n, tok)
		if err != nil {
			return nil, err
		}
		in := &Inspected{Where: row.Where(), Split: "train", Trained: row.Trained(), Tokens: tokens}
		in.Label = row.Desirable.String()
		in.weigh(row.Weights, row.Labels)
		if row.Sequences() > 1 {
			in.Sequences = row.Sequences()
		}
		if n >= train {
			in.Split = "val"
		}
		l.want(row, in)
	}
	if err := s.lookUp(ctx, l); err != nil {
		return nil, err
	}
	shown := make([]Inspected, len(l.rows))
	for i, w := range l.rows {
		if w.in.Parts == nil {
			w.in.Parts = runs(w.row.Labels)
			w.in.Note = "the source no longer has this row, so its parts are unknown"
		}
		w.in.finish()
		w.in.markDifferences(w.row)
		shown[i] = *w.in
	}
	return shown, nil
}

// lookUp reads the data again until all wanted rows are found.
func (s *Set) lookUp(ctx context.Context, l *look) error {
	if s.again == nil {
		return nil // the set was not loaded from a source
	}
	inner, stop := context.WithCancel(ctx)
	defer stop()
	l.stop = stop
	err := s.again(inner, l)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && l.missing > 0:
		return fmt.Errorf("read the rows again to show them: %w", err)
	}
	return nil
}

// look collects the wanted rows while a source is read again.
type look struct {
	lines map[string]map[int]bool // wanted lines by source
	stop  context.CancelFunc

	mu      sync.Mutex
	rows    []wanted
	missing int
}

type wanted struct {
	row Row
	in  *Inspected
}

func (l *look) want(row Row, in *Inspected) {
	if l.lines[row.Source] == nil {
		l.lines[row.Source] = map[int]bool{}
	}
	l.lines[row.Source][row.Line] = true
	l.rows = append(l.rows, wanted{row, in})
	l.missing++
}

func (l *look) wants(source string, line int) bool { return l.lines[source][line] }

// unseen returns a placeholder for a row that is not wanted.
func unseen() encoded { return encoded{ids: []int32{0, 0}, labels: []int32{Ignore, 0}} }

// take explains the wanted rows that an example makes. It is safe for concurrent use.
func (l *look) take(source string, line int, ex Example, tok Tokenizer, cfg Config) error {
	given, err := explain(ex, tok, cfg)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.rows {
		if w.in.Parts != nil || w.row.Source != source || w.row.Line != line {
			continue
		}
		for _, g := range given {
			n := len(w.row.IDs)
			if n > len(g.ids) || !slices.Equal(g.ids[:n], w.row.IDs) || g.whole && n < len(g.ids) {
				continue
			}
			w.in.Cut = len(g.ids) - n + g.lost
			if ex.Aimed != nil {
				w.in.Target = cfg.Aim.describe(w.row.Targets)
			}
			for _, p := range g.parts {
				if p.To = min(p.To, n); p.From < p.To {
					w.in.Parts = append(w.in.Parts, p)
				}
			}
			for t := range w.in.Tokens {
				w.in.Tokens[t].Across = g.across != nil && g.across[t]
			}
			if err := w.in.showImages(g.images, ex.Conversation, source, cfg.Images); err != nil {
				return err
			}
			l.missing--
			break
		}
	}
	if l.missing == 0 {
		l.stop()
	}
	return nil
}

// explained is a row before truncation, divided into parts.
type explained struct {
	ids    []int32
	parts  []Part
	across []bool // nil: no token does
	images []ShownImage
	whole  bool // it is the row after truncation, which removed lost tokens
	lost   int
}

// explain makes the rows of an example again and divides them into parts.
func explain(ex Example, tok Tokenizer, cfg Config) ([]explained, error) {
	switch {
	case ex.Group != nil || ex.Completions != nil:
		return explainGroup(ex, tok, cfg)
	case ex.Aimed != nil:
		return explainAimed(ex, tok, cfg)
	case ex.Conversation != nil:
		c, err := cfg.chat.open()
		if err != nil {
			return nil, err
		}
		rows, err := c.Look(ex.Conversation)
		all := make([]explained, len(rows))
		for i, row := range rows {
			all[i] = explained{ids: row.IDs, parts: messageParts(row), across: row.Across}
			if cfg.Images != nil && err == nil {
				err = all[i].expand(cfg.Images.Token(), imagesOf(row.Row, cfg.Images, ex.Images))
			}
		}
		return all, err
	case ex.Segments != nil:
		e, err := encode(ex, tok, cfg, &buffers{})
		if err != nil || e.chunk == 0 {
			ids, _ := encodeSegments(nil, nil, ex, tok, cfg.TrainOnPrompt)
			return []explained{{ids: ids, parts: segmentParts(ex, tok, len(ids))}}, nil
		}
		var chunks []explained
		for _, part := range e.rows() {
			whole := []Part{{Role: "text", Message: -1, To: len(part.ids)}}
			chunks = append(chunks, explained{ids: part.ids, parts: whole})
		}
		return chunks, nil
	}
	return []explained{{ids: ex.IDs, parts: []Part{{Role: "tokens", Message: -1, To: len(ex.IDs)}}}}, nil
}

// explainAimed makes the tokens of a row without an answer again, and divides them into its texts.
func explainAimed(ex Example, tok Tokenizer, cfg Config) ([]explained, error) {
	e, err := encodeAimed(ex, tok, cfg)
	if err != nil || e.drop != "" {
		return nil, err
	}
	out := explained{ids: e.ids, whole: true, lost: e.lost}
	add := func(role string, to int) {
		from := 0
		if n := len(out.parts); n > 0 {
			from = out.parts[n-1].To
		}
		out.parts = append(out.parts, Part{Role: role, Message: -1, From: from, To: min(to, len(e.ids))})
	}
	switch a := ex.Aimed; {
	case a.Talk != nil:
		add("conversation", len(e.ids))
	case a.Words:
		add("words", len(e.ids))
	case a.IDs != nil:
		add("tokens", len(e.ids))
	default:
		for i := range a.Texts {
			add([]string{"text", "text_pair"}[min(i, 1)], len(TextIDs(a.Texts[:i+1], tok)))
		}
	}
	return []explained{out}, nil
}

// explainGroup makes the sequences of a row again, or the rows that a pair becomes.
func explainGroup(ex Example, tok Tokenizer, cfg Config) (all []explained, err error) {
	e, err := encode(ex, tok, cfg, &buffers{})
	if err != nil {
		return nil, err
	}
	names := ex.Names
	if ex.Completions != nil {
		names = ex.Completions.Names
	}
	rows := append([]encoded{e}, e.more...)
	for i, row := range rows {
		if len(rows) > 1 {
			names = []string{[]string{"chosen", "rejected"}[i]}
		}
		if row.drop != "" {
			continue
		}
		one := explainSequences(row, names)
		if len(ex.Group) > 0 && ex.Group[0].Aimed != nil {
			one.parts = wholeSequences(one.parts)
		}
		all = append(all, one)
	}
	return all, nil
}

// wholeSequences joins the two parts of each sequence, under the name of the second. Texts without an answer have no
// prompt.
func wholeSequences(parts []Part) (all []Part) {
	for _, p := range parts {
		if n := len(all); n > 0 && all[n-1].Sequence == p.Sequence {
			p.From = all[n-1].From
			all[n-1] = p
			continue
		}
		all = append(all, p)
	}
	return all
}

// explainSequences divides each sequence of a row into two parts: its prompt, up to the first trained token, and its
// answer, under the name that the format gives it.
func explainSequences(e encoded, names []string) explained {
	e.ids = e.ids[:len(e.ids)-e.tail]
	g := explained{ids: e.ids, whole: true, lost: e.lost}
	for k := range len(e.borders) + 1 {
		from, to := sequenceSpan(e.borders, k, len(e.ids))
		answer := from + maskedPrefix(e.labels[from:to])
		name := fmt.Sprintf("sequence %d", k+1)
		if k < len(names) {
			name = names[k]
		}
		for _, p := range []Part{{Role: "prompt", From: from, To: answer}, {Role: name, From: answer, To: to}} {
			if p.Message, p.Sequence = -1, k; p.From < p.To {
				g.parts = append(g.parts, p)
			}
		}
	}
	return g
}

// messageParts returns the messages of a row. A token that straddles two messages belongs to the first.
func messageParts(row chat.Looked) []Part {
	var parts []Part
	for i, turn := range row.Turns {
		from := row.Starts[i].Token
		if row.Starts[i].Across {
			from++
		}
		if len(parts) > 0 {
			parts[len(parts)-1].To = from
		}
		parts = append(parts, Part{Role: turn.Role, Message: turn.Message, From: from, To: len(row.IDs)})
	}
	return parts
}

// segmentParts returns the segments of an example. Start and end tokens belong to the first and the last segment.
func segmentParts(ex Example, tok Tokenizer, n int) []Part {
	var parts []Part
	for i := range ex.Segments {
		upTo := ex
		upTo.Segments, upTo.EOS = ex.Segments[:i+1], false
		ids, _ := encodeSegments(nil, nil, upTo, tok, false)
		role := "prompt"
		switch {
		case len(ex.Segments) == 1:
			role = "text"
		case ex.Segments[i].Trained:
			role = "answer"
		}
		from := 0
		if i > 0 {
			from = parts[i-1].To
		}
		parts = append(parts, Part{Role: role, Message: -1, From: from, To: len(ids)})
	}
	if len(parts) > 0 {
		parts[len(parts)-1].To = n
	}
	return parts
}

// runs returns the spans of equal trained state in labels.
func runs(labels []int32) []Part {
	var parts []Part
	for t, label := range labels {
		role := "masked"
		if label != Ignore {
			role = "trained"
		}
		if n := len(parts); n > 0 && parts[n-1].Role == role {
			parts[n-1].To = t + 1
			continue
		}
		parts = append(parts, Part{Role: role, Message: -1, From: t, To: t + 1})
	}
	return parts
}

// finish counts the trained tokens and marks the tokens that end a part's trained span.
func (in *Inspected) finish() {
	for i := range in.Parts {
		p := &in.Parts[i]
		last := -1
		for t := p.From; t < p.To; t++ {
			if in.Tokens[t].Trained {
				p.Trained++
				last = t
			}
		}
		if last >= 0 && in.Tokens[last].Special {
			in.Tokens[last].End = true
		}
	}
}
