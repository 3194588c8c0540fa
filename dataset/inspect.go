package dataset

import (
	"fmt"
	"strings"
)

// Token is one token of a row, as `inspect data` shows it.
type Token struct {
	ID      int32  `json:"id"`
	Piece   string `json:"piece"` // the vocabulary entry
	Text    string `json:"text"`  // what the token adds to the row's text; "" for an incomplete character
	Label   int32  `json:"label"`
	Trained bool   `json:"trained"`
	Special bool   `json:"special,omitempty"`     // a special token, not plain text
	End     bool   `json:"end_of_turn,omitempty"` // the last trained token of a message or an answer
	Across  bool   `json:"across,omitempty"`      // the token straddles a boundary of the loss mask
	Differs bool   `json:"differs,omitempty"`     // the other answer of the pair doesn't have the token
	// Image is the number, from 1, of the row's image whose embedding stands in the token's place; 0 = none does.
	Image int `json:"image,omitempty"`
}

// Part is a span of a row's tokens: a message of a conversation, or a piece of another format.
type Part struct {
	// Role is the role of the message. Other parts have prompt, answer, text, tokens, trained or masked, or the name of
	// their sequence, such as chosen or rejected.
	Role string `json:"role"`
	// Message is the index of the message in the conversation, from 0; -1 if the part is not a message.
	Message int `json:"message"`
	From    int `json:"from"` // From and To are the half-open range of tokens.
	To      int `json:"to"`
	Trained int `json:"trained_tokens"`
	// Sequence is the index of the row's sequence that the part belongs to, from 0.
	Sequence int `json:"sequence,omitempty"`
}

// Inspected is a row in the form that a person inspects.
type Inspected struct {
	Where   string `json:"where"`
	Split   string `json:"split"` // train or val
	Trained int    `json:"trained_tokens"`
	Cut     int    `json:"cut_tokens"` // Cut is the number of tokens lost to max_length.
	// Weights are the least and the largest factor of the loss of the row's trained tokens; nil = all are one.
	Weights []float32 `json:"weights,omitempty"`
	// Sequences is the number of sequences of a group; 0 = the row is one sequence.
	Sequences int    `json:"sequences,omitempty"`
	Label     string `json:"label,omitempty"` // desirable or undesirable, for an unpaired preference row
	// Target is the label of a text in words, such as "label happy"; "" = the row has none, or one for each token.
	Target string       `json:"target,omitempty"`
	Note   string       `json:"note,omitempty"`
	Images []ShownImage `json:"images,omitempty"`
	Parts  []Part       `json:"parts"`
	Tokens []Token      `json:"tokens"`
}

// Inspect returns training row n, or validation row n - len(Train), with its tokens.
func (s *Set) Inspect(n int, tok Tokenizer) (Row, []Token, error) {
	train, val := s.Train.Len(), s.Val.Len()
	if n < 0 || n >= train+val {
		return Row{}, nil, fmt.Errorf("inspect row %d: there are %d training and %d validation rows", n, train, val)
	}
	rows := s.Train
	if n >= train {
		rows, n = s.Val, n-train
	}
	row := rows.Row(n)
	if m, ok := rows.(mismatched); ok {
		row = m.answer(n)
	}
	return row, Tokens(row, tok), nil
}

// Tokens returns a row's tokens as they are shown to a person.
func Tokens(row Row, tok Tokenizer) []Token {
	special, _ := tok.(interface{ IsSpecial(id int32) bool })
	tokens := make([]Token, len(row.IDs))
	start, before := 0, ""
	for t, id := range row.IDs {
		piece, _ := tok.Token(id)
		tokens[t] = Token{ID: id, Piece: piece, Label: row.Labels[t], Trained: row.Labels[t] != Ignore}
		tokens[t].Special = special != nil && special.IsSpecial(id)
		after := tok.Decode(row.IDs[start:t+1], false)
		if strings.HasSuffix(after, "\ufffd") || !strings.HasPrefix(after, before) {
			continue // an incomplete character: its text comes with its last byte
		}
		tokens[t].Text, before = after[len(before):], after
		if strings.HasSuffix(after, "\n") || t-start >= inspectWindow {
			// Decoding the whole row for every token would be quadratic; one token of context is enough.
			start, before = t, tok.Decode(row.IDs[t:t+1], false)
		}
	}
	return tokens
}

const inspectWindow = 64
