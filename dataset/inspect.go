package dataset

import (
	"fmt"
	"strings"
)

// Token is one token of a row as `inspect data` shows it.
type Token struct {
	ID      int32  `json:"id"`
	Piece   string `json:"piece"` // as in the vocabulary
	Text    string `json:"text"`  // what it adds to the row's text; "" for a part of a character
	Label   int32  `json:"label"`
	Trained bool   `json:"trained"`
}

// Inspect shows training row n, or validation row n - len(Train), token by token.
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
	return row, Tokens(row, tok), nil
}

// Tokens shows a row token by token.
func Tokens(row Row, tok Tokenizer) []Token {
	tokens := make([]Token, len(row.IDs))
	start, before := 0, ""
	for t, id := range row.IDs {
		piece, _ := tok.Token(id)
		tokens[t] = Token{ID: id, Piece: piece, Label: row.Labels[t], Trained: row.Labels[t] != Ignore}
		after := tok.Decode(row.IDs[start:t+1], false)
		if strings.HasSuffix(after, "\ufffd") || !strings.HasPrefix(after, before) {
			continue // in the middle of a character: the text comes with its last byte
		}
		tokens[t].Text, before = after[len(before):], after
		if strings.HasSuffix(after, "\n") || t-start >= inspectWindow {
			// decoding the whole row for every token would be quadratic; one token of context is enough
			start, before = t, tok.Decode(row.IDs[t:t+1], false)
		}
	}
	return tokens
}

const inspectWindow = 64
