package tokenizer

import (
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
)

// TestBytesOfTokens: the bytes of a text's tokens are the text, where characters are cut into several tokens too.
func TestBytesOfTokens(t *testing.T) {
	tok, err := Load(golden.StoriesDir(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"Once {\"a\": [1, true]}\n", "é😀 \x07"} {
		var got []byte
		ids := tok.IDs("a"+text, false)
		for _, id := range ids {
			got = append(got, tok.Bytes(id)...)
		}
		if string(got) != " a"+text && string(got) != "a"+text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	if eos, ok := tok.EOS(); !ok || tok.Bytes(eos) != nil || tok.Bytes(-1) != nil || tok.Bytes(1<<30) != nil {
		t.Error("a special token, or none, has bytes")
	}
}
