package safetext

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"":                            "",
		"a\tb\nc é 日 🙂":               "a\tb\nc é 日 🙂",
		"\x1b[31mred":                 `\x1b[31mred`,
		"a\r\x07\x00\x7f":             `a\x0d\x07\x00\x7f`,
		"\u009b1m":                    `\u009b1m`,
		"x\u202eevil\u2066\u2069":     `x\u202eevil\u2066\u2069`,
		"\u2028\u2029":                `\u2028\u2029`,
		"bad \xff\xc3":                `bad \xff\xc3`,
		"the \ufffd that is one":      "the \ufffd that is one",
		"right \u05d0\u200f to left ": "right \u05d0\u200f to left ",
	} {
		if got := Plain(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// TestWriterJoinsCharacters: however a text is cut into writes, the result is that of the whole.
func TestWriterJoinsCharacters(t *testing.T) {
	text := "é日🙂\x1b[2J\u202e\xff\u009b end\xf0\x9f"
	for size := 1; size < len(text); size++ {
		var out bytes.Buffer
		w := NewWriter(&out)
		for rest := []byte(text); len(rest) > 0; {
			n := min(size, len(rest))
			if m, err := w.Write(rest[:n]); err != nil || m != n {
				t.Fatal(m, err)
			}
			rest = rest[n:]
		}
		if err := w.Flush(); err != nil || out.String() != Plain(text) {
			t.Errorf("%d bytes a write: %q, want %q, %v", size, out.String(), Plain(text), err)
		}
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("closed") }

func TestWriterTellsErrors(t *testing.T) {
	if n, err := NewWriter(broken{}).Write([]byte("x")); n != 0 || err == nil {
		t.Error(n, err)
	}
}

func TestMask(t *testing.T) {
	t.Setenv("HF_TOKEN", "plain-looking-value")
	t.Setenv("TRACKING_WEBHOOK_URL", "https://example.org/in/abcdef?x=1")
	t.Setenv("TRAINER_API_KEY", "a") // too short: it would hide every a
	Keep("from-a-file-77", "https://other.example/hook/zyx")
	for in, want := range map[string]string{
		"":                             "",
		"step 3/10  loss 1.2":          "step 3/10  loss 1.2",
		"got plain-looking-value back": "got *** back",
		"POST https://example.org/in/abcdef?x=1: refused": "POST https://example.org/***: refused",
		"path /in/abcdef?x=1 is unknown":                  "path /*** is unknown",
		"x from-a-file-77":                                "x ***",
		"https://other.example/hook/zyx":                  "https://other.example/***",
		"https://me:pw@host/x":                            "https://***@host/x",
		"clone ssh://token@host:22/x":                     "clone ssh://***@host:22/x",
		"https://hooks.slack.com/services/T0/B0/xyz":      "https://hooks.slack.com/***",
		"https://discord.com/api/webhooks/1/abc":          "https://discord.com/***",
		"https://s3/x?X-Amz-Signature=abc&a=b":            "https://s3/x?X-Amz-Signature=***&a=b",
		"https://h/x?a=1&access_token=abc":                "https://h/x?a=1&access_token=***",
		"Authorization: Bearer abc.def":                   "Authorization: ***",
		`{"authorization":"Bearer x1","a":1}`:             `{"authorization":"***","a":1}`,
		"Authorization:[Basic dTpw] X-Api-Key: q9":        "Authorization:[***] X-Api-Key: ***",
		"it sent bearer abc123def":                        "it sent bearer ***",
		"bearer authentication is missing":                "bearer authentication is missing",
		"Basic dXNlcjpwYXNz":                              "Basic ***",
		"basic configuration":                             "basic configuration",
		"hf_abcdefghijklmnopqrstuvwxyz0123":               "***",
		"hf_olmo_1b":                                      "hf_olmo_1b",
		"password=hunter2, user=x":                        "password=***, user=x",
		"WANDB_API_KEY=0123abc":                           "WANDB_API_KEY=***",
		"--api-key: the key is empty":                     "--api-key: the key is empty",
		"eos_token: </s>, token: 5, tokens: 512":          "eos_token: </s>, token: 5, tokens: 512",
		"the key of a row: key=value":                     "the key of a row: key=value",
		"dataset: {path: a.jsonl}":                        "dataset: {path: a.jsonl}",
	} {
		if got := Mask(in); got != want {
			t.Errorf("%q\ngot  %q\nwant %q", in, got, want)
		}
		if got := Mask(Mask(in)); got != want {
			t.Errorf("%q masked twice: %q", in, got)
		}
	}
}

func TestAddress(t *testing.T) {
	for in, want := range map[string]string{
		"https://host":           "https://host",
		"http://127.0.0.1:5000/": "http://127.0.0.1:5000/",
		"https://host/a/b":       "https://host/***",
		"https://u:p@host":       "https://host/***",
		"https://host?key=1":     "https://host/***",
		"no address":             "***",
	} {
		if got := Address(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestLine(t *testing.T) {
	if got := Line("a\r\n b\x1b[2J  password=x "+strings.Repeat("y", 300), 40); got != `a b\x1b[2J password=*** `+
		strings.Repeat("y", 16)+"..." {
		t.Errorf("%q", got)
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("a\x1b[2J\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		p := Plain(s)
		if !utf8.ValidString(p) || strings.ContainsFunc(p, steers) || Plain(p) != p {
			t.Errorf("%q: %q", s, p)
		}
	})
}

func FuzzMask(f *testing.F) {
	f.Add("https://u:p@h/x?token=1 Authorization: Bearer abc12345")
	f.Fuzz(func(t *testing.T, s string) {
		once := Mask(s)
		if twice := Mask(once); len(twice) > 2*len(once)+64 {
			t.Errorf("%q grows to %q", once, twice)
		}
	})
}
