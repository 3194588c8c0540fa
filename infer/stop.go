package infer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/text/tokenizer"
)

// MaxStopBytes bounds one text of GenerateOptions.Stop.
const MaxStopBytes = 1 << 10

// CheckStops refuses texts that cannot end an answer.
func CheckStops(stops []string) error {
	for _, s := range stops {
		switch {
		case s == "":
			return errors.New("a stop text is empty: it would end every answer before its first character")
		case len(s) > MaxStopBytes:
			return fmt.Errorf("a stop text has %d bytes, more than %d", len(s), MaxStopBytes)
		}
	}
	return nil
}

// newStopper makes what looks for stop texts, and for the text that ends a turn, if there is one. A special token among
// them is looked for by its id, in ends, as answers are shown without special tokens.
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

// stopper gives out an answer piece by piece and keeps back what may be the beginning of a stop text.
type stopper struct {
	texts []string
	turn  string // of texts, that which ends a turn; "" = none
	held  string
	found string // the stop text that ended the answer
}

// push takes the next piece and returns what can be shown. Of stop texts that are found at once the one that begins
// first counts, of those the longest.
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

// partial is the length of the longest end of what is held with which a stop text begins.
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

// rest is what is still held when the answer ends otherwise.
func (s *stopper) rest() string {
	out := s.held
	s.held = ""
	return out
}
