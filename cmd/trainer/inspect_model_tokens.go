package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// vocabularyJSON is what inspect model says of a model's tokenizer.
type vocabularyJSON struct {
	Tokens    int              `json:"tokens"` // one more than the largest id
	BOS       *namedTokenJSON  `json:"bos"`    // null: none
	EOS       *namedTokenJSON  `json:"eos"`
	PAD       *namedTokenJSON  `json:"pad"`
	AddsBOS   bool             `json:"adds_bos"`
	Stops     []namedTokenJSON `json:"stops"`     // what generation_config.json stops at
	Templates []templateRef    `json:"templates"` // chat templates of the files; empty: none
}

type namedTokenJSON struct {
	ID    int32  `json:"id"`
	Token string `json:"token"`
}

type templateRef struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
}

// describeTokens reads the tokenizer in a model's folder; nil where there is none.
func describeTokens(folder fs.FS) (*vocabularyJSON, error) {
	tok, err := tokenizer.LoadFS(folder, ".")
	if errors.Is(err, tokenizer.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	named := func(id int32, ok bool) *namedTokenJSON {
		if !ok {
			return nil
		}
		text, _ := tok.Token(id)
		return &namedTokenJSON{id, text}
	}
	t := &vocabularyJSON{
		Tokens: tok.VocabSize(), BOS: named(tok.BOS()), EOS: named(tok.EOS()), PAD: named(tok.PAD()), AddsBOS: tok.AddsBOS(),
		Stops: []namedTokenJSON{}, Templates: []templateRef{},
	}
	found, err := chat.Find(folder)
	if err != nil {
		return nil, err
	}
	for _, id := range found.Stops {
		t.Stops = append(t.Stops, *named(id, true))
	}
	for _, name := range found.Names() {
		t.Templates = append(t.Templates, templateRef{name, len(found.Templates[name])})
	}
	return t, nil
}

func (t *vocabularyJSON) print(w io.Writer) {
	if t == nil {
		fmt.Fprintln(w, "tokens      the folder holds no tokenizer")
		return
	}
	text := func(x *namedTokenJSON) string {
		if x == nil {
			return "none"
		}
		return fmt.Sprintf("%q (%d)", x.Token, x.ID)
	}
	begins := ""
	if t.AddsBOS {
		begins = ", put before each text"
	}
	fmt.Fprintf(w, "tokens      %d; BOS %s%s; EOS %s; PAD %s\n", t.Tokens, text(t.BOS), begins, text(t.EOS), text(t.PAD))
	if len(t.Stops) > 0 {
		var stops []string
		for _, s := range t.Stops {
			stops = append(stops, text(&s))
		}
		fmt.Fprintf(w, "stops       %s\n", strings.Join(stops, ", "))
	}
	if len(t.Templates) == 0 {
		fmt.Fprintln(w, "template    none")
		return
	}
	var names []string
	for _, n := range t.Templates {
		names = append(names, n.Name+", "+strconv.Itoa(n.Bytes)+" bytes")
	}
	fmt.Fprintf(w, "template    %s (inspect template --model tells what it does)\n", strings.Join(names, "; "))
}
