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
	Special bool   `json:"special,omitempty"`     // matched as a special token, not read as text
	End     bool   `json:"end_of_turn,omitempty"` // the last trained token of a message or an answer
	Across  bool   `json:"across,omitempty"`      // lies across the border of what is trained
}

// Part is a stretch of a row's tokens: a message of a conversation, or a piece of another format.
type Part struct {
	// Role is that of the message; else prompt, answer, text, tokens, trained or masked, or what the sequence is called,
	// such as chosen and rejected.
	Role    string `json:"role"`
	Message int    `json:"message"` // of the conversation, from 0; -1 where the part is none
	From    int    `json:"from"`    // half-open range of tokens
	To      int    `json:"to"`
	Trained int    `json:"trained_tokens"`
	// Sequence is the sequence of the row that the part is of, from 0.
	Sequence int `json:"sequence,omitempty"`
}

// Inspected is a row as people look at it.
type Inspected struct {
	Where   string `json:"where"`
	Split   string `json:"split"` // train or val
	Trained int    `json:"trained_tokens"`
	Cut     int    `json:"cut_tokens"` // lost to max_length
	// Sequences counts the sequences of a row of several; 0 = it is one sequence.
	Sequences int     `json:"sequences,omitempty"`
	Label     string  `json:"label,omitempty"` // desirable or undesirable, of an unpaired preference row
	Note      string  `json:"note,omitempty"`
	Parts     []Part  `json:"parts"`
	Tokens    []Token `json:"tokens"`
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
	special, _ := tok.(interface{ IsSpecial(id int32) bool })
	tokens := make([]Token, len(row.IDs))
	start, before := 0, ""
	for t, id := range row.IDs {
		piece, _ := tok.Token(id)
		tokens[t] = Token{ID: id, Piece: piece, Label: row.Labels[t], Trained: row.Labels[t] != Ignore}
		tokens[t].Special = special != nil && special.IsSpecial(id)
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
