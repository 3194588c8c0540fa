package jsonform

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// formatTexts are texts of each format, and texts that are none.
var formatTexts = map[string][2][]string{
	"date": {{"2024-02-29", "2000-02-29", "1999-12-31", "0001-01-01", "9999-04-30"},
		{"2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "2024-00-10", "2024-1-1", "0000-01-01", "24-01-01",
			"2024-01-01T", "２024-01-01", ""}},
	"time": {{"00:00:00Z", "23:59:59.123456+23:59", "12:30:00.5-08:00"}, {"24:00:00Z", "12:60:00Z", "12:00:00",
		"12:00Z", "12:00:00.Z", "12:00:00+24:00", "12:00:00 Z"}},
	"date-time": {{"2024-02-29T12:00:00Z", "1985-04-12T23:20:50.52+01:30"}, {"2024-02-30T12:00:00Z",
		"2024-02-29 12:00:00Z", "2024-02-29T12:00:00", "2024-02-29"}},
	"duration": {{"P1Y2M3DT4H5M6S", "P4W", "PT36H", "P1DT12H", "P1M", "PT1M", "PT0S"}, {"P", "PT", "P1YT", "1Y",
		"P1D2H", "PT1D", "P2D1Y", "P1Y2W", "P1.5D", "-P1D"}},
	"email": {{"a@b.co", "anna.smith+x@mail.example.com", "o'neil@x-y.org"}, {"a", "a@", "@b.co", "a@b", "a..b@c.de",
		".a@b.co", "a.@b.co", "a b@c.de", "a@-b.co", "a@b.c", "a@b.1c", "a@b.c1", "a@@b.co", `"a"@b.co`}},
	"hostname": {{"localhost", "www.example.com", "a-b.c1.de", "1and1.com"}, {"-a.com", "a-.com", "a..com", "a.com.",
		"a_b.com", "127.0.0.1", "a b", ""}},
	"ipv4": {{"0.0.0.0", "255.255.255.255", "192.168.1.10"}, {"256.1.1.1", "1.2.3", "1.2.3.4.5", "01.2.3.4",
		"1.2.3.", "1.2.3.4 "}},
	"ipv6": {{"::", "::1", "1::", "2001:db8::8a2e:370:7334", "1:2:3:4:5:6:7:8", "1::8", "1:2:3:4:5:6:7::",
		"::2:3:4:5:6:7:8", "fe80::1:2"}, {"1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3", ":::", ":1", "1:", "12345::",
		"1:2:3:4:5:6:7:8::", "g::"}},
	"uuid": {{"123e4567-e89b-12d3-a456-426614174000", "FFFFFFFF-ffff-FFFF-ffff-FFFFFFFFFFFF"},
		{"123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400",
			"{123e4567-e89b-12d3-a456-426614174000}", "g23e4567-e89b-12d3-a456-426614174000"}},
	"uuid4": {{"123e4567-e89b-42d3-a456-426614174000"}, {"123e4567-e89b-12d3-a456-426614174000",
		"123e4567-e89b-42d3-c456-426614174000"}},
}

func formatted(t *testing.T, name string) (*Schema, string) {
	t.Helper()
	text := fmt.Sprintf(`{"type":"array","items":{"type":["string","null"],"format":%q},"minItems":1,"maxItems":1}`,
		name)
	s, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s, text
}

// TestFormats: texts of a format can be written and others can't, nor can escapes; both are what other implementations
// say.
func TestFormats(t *testing.T) {
	for name, texts := range formatTexts {
		s, schema := formatted(t, name)
		for i, list := range texts {
			for _, text := range list {
				line, _ := json.Marshal([]string{text})
				if got := accepts(s, string(line)); (got == "done") != (i == 0) {
					t.Errorf("%s: %q: %s", name, text, got)
				}
				if err := valid([]byte(schema), line); (err == nil) != (i == 0) && !differs[name+" "+text] &&
					!strings.HasPrefix(name, "uuid4") {
					t.Errorf("%s: %q: the other implementation says %v", name, text, err)
				}
			}
		}
		for _, text := range []string{`[null]`, `["\u0031`, `["é`} {
			if got := accepts(s, text); (got == "done") != (text == `[null]`) || got == "more" {
				t.Errorf("%s: %s: %s", name, text, got)
			}
		}
	}
}

// differs are texts that the formats allow and are not written here.
var differs = map[string]bool{"date 0000-01-01": true, "email @b.co": true, "email a@b": true, "email a@b.c": true,
	"email a@b.1c": true, "email a@b.c1": true, `email "a"@b.co`: true, "hostname a.com.": true,
	"hostname 127.0.0.1": true}

// TestFormatsDrawn: whatever is drawn of a format ends within its bounds and is one of it, by another implementation in
// Go and by Python's where TRAINER_PYTHON has the package jsonschema[format].
func TestFormatsDrawn(t *testing.T) {
	python := &python{}
	all := tokens(rand.New(rand.NewPCG(4, 1)), 300)
	for _, text := range []string{"2024-", "12:30", "00:", "::", "0123", "T10", "@a", ".com", "\"]", "5Z", "-0", "P1",
		"é\"", "a-b"} {
		all = append(all, []byte(text))
	}
	v := NewVocabulary(all)
	for _, name := range slices.Sorted(maps.Keys(formats)) {
		s, schema := formatted(t, name)
		for seed := range uint64(300) {
			r := rand.New(rand.NewPCG(seed, 2))
			a, out := s.Start(), []byte(nil)
			for !a.Done() {
				mask := v.Mask(a, make([]float32, len(all)), nil)
				var can []int32
				for id, x := range mask {
					if allowed := v.Allowed(a, int32(id)); allowed != (x == 0) {
						t.Fatalf("%s: token %q behind %q: %v by itself", name, all[id], out, allowed)
					} else if allowed {
						can = append(can, int32(id))
					}
				}
				if len(can) == 0 || len(out) > 300 {
					t.Fatalf("%s: %d tokens can follow %q", name, len(can), out)
				}
				id := can[r.IntN(len(can))]
				v.Take(&a, id)
				out = append(out, all[id]...)
			}
			if err := valid([]byte(schema), out); err != nil {
				t.Errorf("%s: %s: %v", name, out, err)
			}
			python.add([]byte(schema), out)
		}
	}
	t.Run("python", python.check)
}
