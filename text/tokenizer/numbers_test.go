package tokenizer

import (
	"errors"
	"testing"
	"testing/fstest"
)

func TestNumbers(t *testing.T) {
	if _, err := LoadFS(fstest.MapFS{"config.json": {Data: []byte("{}")}}, "."); !errors.Is(err, ErrNone) {
		t.Errorf("no tokenizer: error %v", err)
	}
	if _, err := LoadFS(fstest.MapFS{"tokenizer.model": {Data: []byte("x")}}, "."); err == nil || errors.Is(err, ErrNone) {
		t.Errorf("a tokenizer of another form: error %v", err)
	}
	tok, err := Numbers(300)
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := tok.Token(299); !ok || s != "299" || !tok.OnlyNumbers() || tok.VocabSize() != 300 {
		t.Errorf("token 299 is %q (%v) of %d", s, ok, tok.VocabSize())
	}
	if _, ok := tok.Token(300); ok {
		t.Error("there is a token 300")
	}
	if _, ok := tok.EOS(); ok || tok.AddsBOS() || len(tok.Files()) != 0 {
		t.Error("there is an end token, a beginning or a file")
	}
	if s := tok.Decode([]int32{7, 42}, false); s != "7 42" {
		t.Errorf("decoded %q", s)
	}
}
