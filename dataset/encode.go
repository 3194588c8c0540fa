package dataset

import (
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/text/tokenizer"
)

// Reasons to drop a row, in the order of the report.
const (
	dropEmptyAnswer = "the answer is empty"
	dropEmptyText   = "the text is empty"
	dropMasked      = "no token is trained"
	dropCutAnswer   = "the answer is cut off entirely at max_length"
	dropCut         = "longer than max_length"
	dropSamePair    = "chosen and rejected are the same"
	dropPrompts     = "chosen and rejected begin with different prompts"
	dropSpecial     = "tools, calls or texts hold a special token that cannot be told from the template's " +
		"(allow_special)"
)

var dropOrder = []string{
	dropEmptyAnswer, dropEmptyText, dropMasked, dropSamePair, dropPrompts, dropSpecial, dropCutAnswer, dropCut,
	dropCutImages,
}

// encoded is an example in tokens, or the reason to drop it.
type encoded struct {
	ids, labels []int32
	weights     []float32 // Row.Weights
	weight      *float64  // of the example, which multiplies weights; nil = one
	borders     []int32   // Row.Borders
	desirable   Desirability
	targets     []float32  // Row.Targets
	rollout     *Rollout   // Row.Rollout
	columns     []byte     // Row.Columns
	images      *RowImages // Row.Images
	length      int        // tokens before truncation; for a group, those of its longest sequence
	lost        int        // tokens lost to truncation
	tail        int        // tokens of ids beyond MaxLength, which Config.Mismatched keeps
	chunked     bool       // a longer text may become several rows
	chunk       int        // tokens of each row that a longer text is divided into; 0 = one row
	cut         bool
	drop        string
	chat        *chatCounts // counts of a conversation; else nil
	more        []encoded   // further rows of the same example
	unread      []string    // keys of the source row that nothing reads
}

// buffers are memory that is reused from row to row.
type buffers struct {
	ids, labels []int32
	member      *buffers // buffers for one sequence of a group
}

// encode makes ids and labels: BOS if the tokenizer adds it, the segments, EOS after the last segment, truncated at
// MaxLength. Each segment is tokenised separately, so that prompt and answer never share a token.
//
// The result refers to memory of b or of the example; callers copy what they keep.
func encode(ex Example, tok Tokenizer, cfg Config, b *buffers) (_ encoded, err error) {
	defer tokenizer.Caught(&err)
	if ex.Empty != "" {
		return encoded{drop: ex.Empty}, nil
	}
	if ex.Group != nil {
		return encodeGroup(ex, tok, cfg, b)
	}
	if ex.Aimed != nil {
		return encodeAimed(ex, tok, cfg)
	}
	if ex.IDs == nil && onlyNumbers(tok) {
		return encoded{}, tokenizer.ErrNumbers
	}
	if ex.Completions != nil {
		return encodeCompletions(ex, tok, cfg, b)
	}
	if ex.Conversation != nil {
		return encodeConversation(ex, cfg)
	}
	e := encoded{desirable: ex.Desirable, weight: ex.Weight}
	if ex.Segments == nil {
		for t, id := range ex.IDs {
			if _, ok := tok.Token(id); !ok {
				return encoded{}, fmt.Errorf("input_ids[%d] is %d, which is not in the vocabulary", t, id)
			}
		}
		e.ids, e.labels = ex.IDs, ex.Labels
		if ex.Rollout != nil {
			ex.Rollout.ended(ex.IDs, tok)
			e.rollout = ex.Rollout
		}
	} else {
		e.chunked = ex.Chunked
		b.ids, b.labels = encodeSegments(b.ids[:0], b.labels[:0], ex, tok, cfg.TrainOnPrompt)
		e.ids, e.labels = b.ids, b.labels
	}
	return finish(e, cfg)
}

// encodeGroup makes the sequences of a group, each truncated at MaxLength separately. The group is dropped as a whole
// if any of its sequences would be.
func encodeGroup(ex Example, tok Tokenizer, cfg Config, b *buffers) (encoded, error) {
	if len(ex.Group) > MaxSequences {
		return encoded{}, fmt.Errorf("the row has %d sequences, more than %d", len(ex.Group), MaxSequences)
	}
	if b.member == nil {
		b.member = &buffers{}
	}
	e := encoded{desirable: ex.Desirable, targets: ex.Targets}
	pair := cfg.Unpaired && len(ex.Group) == 2
	var sides []encoded
	b.ids, b.labels = b.ids[:0], b.labels[:0]
	for k, member := range ex.Group {
		one, err := encode(member, tok, cfg, b.member)
		if err != nil && k < len(ex.Names) {
			err = fmt.Errorf("%s: %w", ex.Names[k], err)
		}
		if err != nil {
			return encoded{}, err
		}
		if one.chunk > 0 || one.more != nil {
			const text = "sequence %d of the row becomes several rows, so that the group cannot stay together"
			return encoded{}, fmt.Errorf(text, k+1)
		}
		if pair {
			one.ids, one.labels = slices.Clone(one.ids), slices.Clone(one.labels)
			sides = append(sides, one)
			continue
		}
		e.join(one, k > 0, b)
	}
	if pair {
		return unpair(sides), nil
	}
	e.ids, e.labels = b.ids, b.labels
	return e, nil
}

// finish multiplies weights by the example's, masks the first token, truncates at MaxLength and drops a row without
// trained tokens.
func finish(e encoded, cfg Config) (encoded, error) {
	e.weigh()
	if len(e.labels) > 0 {
		e.labels[0] = Ignore
	}
	e.length = len(e.ids)
	if countTrained(e.labels) == 0 {
		e.drop = dropMasked
		return e, nil
	}
	if e.length <= cfg.MaxLength {
		return e, nil
	}
	if e.chunked && cfg.chunks() {
		e.chunk = cfg.MaxLength
		return e, nil
	}
	e.cut = true
	keep := cfg.MaxLength
	if e.chat != nil {
		keep = e.chat.cut(keep)
	}
	e.lost = e.length - keep
	if kept := e.labels[:keep]; cfg.Mismatched > 0 && e.chat == nil && countTrained(kept) > 0 {
		e.tail = e.lost
	} else {
		e.ids, e.labels = e.ids[:keep], kept
	}
	if e.weights != nil {
		e.weights = e.weights[:keep]
	}
	switch {
	case e.images != nil && cfg.OnTruncated != TruncatedError:
		e.drop = dropCutImages
	case cfg.OnTruncated == TruncatedError:
		return encoded{}, fmt.Errorf("the row has %d tokens, more than max_length %d (on_truncated is error)", e.length,
			cfg.MaxLength)
	case cfg.OnTruncated == TruncatedDrop:
		e.drop = dropCut
	case countTrained(e.labels) == 0:
		e.drop = dropCutAnswer
	}
	return e, nil
}

// encodeSegments appends the tokens of the example's segments to ids and labels.
func encodeSegments(ids, labels []int32, ex Example, tok Tokenizer, trainAll bool) (_, _ []int32) {
	bos, _ := tok.BOS()
	eos, _ := tok.EOS()
	if tok.AddsBOS() && !ex.Verbatim {
		ids, labels = append(ids, bos), append(labels, Ignore)
	}
	last := false
	for i, s := range ex.Segments {
		part := tok.IDs(s.Text, false)
		if i == 0 && tok.AddsBOS() && !ex.Verbatim && len(part) > 0 && part[0] == bos {
			part = part[1:] // the text has its own start token, so the added one is removed
		}
		last = s.Trained || trainAll
		for _, id := range part {
			ids = append(ids, id)
			if last {
				labels = append(labels, id)
			} else {
				labels = append(labels, Ignore)
			}
		}
		if s.End {
			ids, labels = appendEnd(ids, labels, eos, last)
		}
	}
	if ex.EOS {
		ids, labels = appendEnd(ids, labels, eos, last)
	}
	return ids, labels
}

// appendEnd appends the end token, unless the text ends with it already.
func appendEnd(ids, labels []int32, eos int32, trained bool) (_, _ []int32) {
	if len(ids) > 0 && ids[len(ids)-1] == eos {
		return ids, labels
	}
	if trained {
		return append(ids, eos), append(labels, eos)
	}
	return append(ids, eos), append(labels, Ignore)
}
