package infer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/text/tokenizer"
)

// MaxStopBytes is the largest length of one text of GenerateOptions.Stop.
const MaxStopBytes = 1 << 10

// CheckStops returns an error for stop texts that cannot end an answer.
func CheckStops(stops []string) error {
	for _, s := range stops {
		switch {
		case s == "":
			return errors.New("a stop text is empty: it would end every answer before its first character")
		case len(s) > MaxStopBytes:
			return fmt.Errorf("a stop text has %d bytes, more than the limit of %d", len(s), MaxStopBytes)
		}
	}
	return nil
}

// newStopper makes a stopper for the stop texts and for the text that ends a turn, if there is one. It recognises a
// special token among them by its id, in ends, since answers are shown without special tokens.
func newStopper(tok *tokenizer.Tokenizer, turn string, texts []string, ends map[int32]bool) (*stopper, error) {
	if err := CheckStops(texts); err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	s := &stopper{turn: turn}
	if turn != "" {
		texts = append(slices.Clone(texts), turn)
	}
	for _, text := range texts {
		if id, ok := tok.ID(text); ok && tok.IsSpecial(id) {
			ends[id] = true
			continue
		}
		s.texts = append(s.texts, text)
	}
	return s, nil
}

// stopper yields an answer piece by piece and holds back what may be the beginning of a stop text.
type stopper struct {
	texts []string
	turn  string // the one of texts that ends a turn; "" = none
	held  string
	found string // the stop text that ended the answer
}

// push adds a piece and returns the text that can be shown. If several stop texts match, the one that begins first
// counts; of those that begin together, the longest.
func (s *stopper) push(piece string) string {
	s.held += piece
	at := len(s.held)
	for _, text := range s.texts {
		if i := strings.Index(s.held, text); i >= 0 && (i < at || i == at && len(text) > len(s.found)) {
			at, s.found = i, text
		}
	}
	if s.found == "" {
		at -= s.partial()
	}
	out := s.held[:at]
	s.held = s.held[at:]
	return out
}

// partial returns the length of the longest suffix of the held text with which a stop text begins.
func (s *stopper) partial() int {
	longest := 0
	for _, text := range s.texts {
		for n := min(len(text)-1, len(s.held)); n > longest; n-- {
			if strings.HasSuffix(s.held, text[:n]) {
				longest = n
			}
		}
	}
	return longest
}

// rest returns the text that is still held when the answer ends for another reason.
func (s *stopper) rest() string {
	out := s.held
	s.held = ""
	return out
}
