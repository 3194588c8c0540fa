package tokenizer

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

const stories = "../../configs/assets/stories260K"

// TestAdditionsEqualTransformers compares the ids of texts with added tokens with those of transformers 5.17, whose
// add_tokens and add_special_tokens got the same tokens, and reads the files of the result. Texts are decoded as by
// tokenizers 0.22; 0.23 puts a space before an added token that is matched in the normalised text.
func TestAdditionsEqualTransformers(t *testing.T) {
	base, err := Load(stories)
	if err != nil {
		t.Fatal(err)
	}
	a := Additions{AddTokens: []string{"<think>", " tool", "Zürich"},
		AddSpecialTokens: map[string]string{"pad_token": "<|pad|>", "eos_token": "<|end|>",
			"unk_token": "<unk>"},
		AdditionalSpecialTokens: []string{"<|a|>"}, InitFrom: "mean"}
	if problems := a.Validate(); problems != nil {
		t.Fatal(problems)
	}
	with, added, err := With(base, a)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"<think>", " tool", "Zürich", "<|end|>", "<|pad|>", "<|a|>"}; !slices.Equal(added, want) {
		t.Errorf("added %q, want %q", added, want)
	}
	again, err := FromFiles(with.Files())
	if err != nil {
		t.Fatal(err)
	}
	for _, tok := range []*Tokenizer{with, again} {
		for _, c := range []struct {
			text, plain string
			ids         []int32
		}{
			{"Once <think>upon a tool in Zürich<|end|>", "Once<think>upon a tool inZürich",
				[]int32{403, 512, 425, 427, 289, 261, 267, 414, 421, 322, 514, 515}},
			{"<|a|> <|pad|>Zürich tool tool", " Zürich tool tool",
				[]int32{517, 410, 410, 516, 514, 267, 414, 421, 267, 414, 421}},
			{"no new ones", "no new ones", []int32{297, 414, 404, 424, 353, 406}},
		} {
			ids := tok.IDs(c.text, false)
			if !slices.Equal(ids, c.ids) {
				t.Errorf("%q: %v, transformers has %v", c.text, ids, c.ids)
			}
			if plain := tok.Decode(ids, true); plain != c.plain {
				t.Errorf("%q: decoded %q, transformers has %q", c.text, plain, c.plain)
			}
		}
		eos, _ := tok.EOS()
		pad, _ := tok.PAD()
		if eos != 515 || pad != 516 || tok.VocabSize() != 518 {
			t.Errorf("eos %d, pad %d, %d tokens", eos, pad, tok.VocabSize())
		}
	}
	var config map[string]any
	if err := json.Unmarshal(with.Files()["tokenizer_config.json"], &config); err != nil {
		t.Fatal(err)
	}
	if config["eos_token"] != "<|end|>" || config["unk_token"] != "<unk>" ||
		len(config["additional_special_tokens"].([]any)) != 1 {
		t.Errorf("tokenizer_config.json has %v", config)
	}
}

// TestAdditionsRefused: tokens that exist, unknown roles and blank texts are refused with the token.
func TestAdditionsRefused(t *testing.T) {
	base, err := Load(stories)
	if err != nil {
		t.Fatal(err)
	}
	numbers, err := Numbers(8)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tok  *Tokenizer
		a    Additions
		want string
	}{
		{base, Additions{AddTokens: []string{"▁the"}}, `tokenizer.add_tokens: "▁the" is in the vocabulary of the ` +
			`base model already, as token 265: leave it out, and train its row by lora.modules_to_save: `},
		{base, Additions{AdditionalSpecialTokens: []string{"<s>"}},
			`tokenizer.additional_special_tokens: "<s>" is in the vocabulary of the base model already, as token 1`},
		{base, Additions{AddTokens: []string{"<a>", "<a>"}},
			`tokenizer.add_tokens: "<a>" stands in tokenizer.add_tokens already`},
		{base, Additions{AddTokens: []string{"<a>"}, AddSpecialTokens: map[string]string{"pad_token": "<a>"}},
			`tokenizer.add_special_tokens.pad_token: "<a>" stands in tokenizer.add_tokens already`},
		{base, Additions{AddTokens: []string{" "}}, `tokenizer.add_tokens: " " is empty or blank`},
		{base, Additions{AddSpecialTokens: map[string]string{"pad_token": ""}},
			`tokenizer.add_special_tokens.pad_token: "" is empty or blank`},
		{base, Additions{AddSpecialTokens: map[string]string{"pad": "<pad>"}},
			"tokenizer.add_special_tokens.pad: is no role of a special token; the roles are bos_token, eos_token, " +
				"unk_token, sep_token, pad_token, cls_token, mask_token, and tokens without a role belong in " +
				"tokenizer.additional_special_tokens"},
		{numbers, Additions{AddTokens: []string{"<a>"}},
			"tokenizer: the base model has no tokenizer to which tokens could be added"},
	} {
		c.a.InitFrom = "mean"
		problems := c.a.Validate()
		if problems == nil {
			_, _, err := With(c.tok, c.a)
			problems = append(problems, err)
		}
		if len(problems) != 1 || problems[0] == nil || !strings.HasPrefix(problems[0].Error(), c.want) {
			t.Errorf("got  %v\nwant %s", problems, c.want)
		}
	}
}
