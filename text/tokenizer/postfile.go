package tokenizer

import (
	"encoding/json"
	"fmt"
)

type templatePiece struct {
	SpecialToken *struct {
		ID     string `json:"id"`
		TypeID int    `json:"type_id"`
	} `json:"SpecialToken"`
	Sequence *struct {
		ID     string `json:"id"`
		TypeID int    `json:"type_id"`
	} `json:"Sequence"`
}

func parsePostProcessor(b json.RawMessage, where string, depth int, pp *postProcessor) error {
	if isNull(b) {
		return nil
	}
	if depth > maxNesting {
		return tooDeep(where)
	}
	kind, err := kindOf(b, where)
	if err != nil {
		return err
	}
	switch kind {
	case "Sequence":
		var f struct {
			Processors []json.RawMessage `json:"processors"`
		}
		if err := component(b, where, kind, &f); err != nil {
			return err
		}
		if len(f.Processors) > maxParts {
			return tooMany(where, "post-processors")
		}
		for i, part := range f.Processors {
			if err := parsePostProcessor(part, fmt.Sprintf("%s.processors[%d]", where, i), depth+1, pp); err != nil {
				return err
			}
		}
		return nil
	case "ByteLevel":
		f, err := parseByteLevel(b, where)
		if err == nil && f.TrimOffsets {
			pp.trims = append(pp.trims, trimOffsets{f.PrefixSpace})
		}
		return err
	case "TemplateProcessing":
		return parseTemplate(b, where, pp)
	case "BertProcessing", "RobertaProcessing":
		return parseSurround(b, where, kind, pp)
	}
	return unknown(where, "post-processor", kind)
}

// parseTemplate adds the special tokens of a template for one text around those that pp has already.
func parseTemplate(b json.RawMessage, where string, pp *postProcessor) error {
	var f struct {
		Single        []templatePiece `json:"single"`
		Pair          json.RawMessage `json:"pair"` // for two texts; ignored
		SpecialTokens map[string]struct {
			ID     string   `json:"id"`
			IDs    []int32  `json:"ids"`
			Tokens []string `json:"tokens"`
		} `json:"special_tokens"`
	}
	if err := component(b, where, "TemplateProcessing", &f); err != nil {
		return err
	}
	var before, after []int32
	texts := 0
	for i, p := range f.Single {
		switch {
		case p.Sequence != nil && p.SpecialToken == nil && p.Sequence.ID == "A":
			texts++
		case p.SpecialToken != nil && p.Sequence == nil:
			token, ok := f.SpecialTokens[p.SpecialToken.ID]
			if !ok {
				return fmt.Errorf("%s: TemplateProcessing: single[%d] names %q, which special_tokens lacks", where, i, p.SpecialToken.ID)
			}
			if texts == 0 {
				before = append(before, token.IDs...)
			} else {
				after = append(after, token.IDs...)
			}
		default:
			return fmt.Errorf("%s: TemplateProcessing: single[%d] is neither a special token nor sequence A", where, i)
		}
	}
	if texts != 1 {
		return fmt.Errorf("%s: TemplateProcessing: single has sequence A %d times, not once", where, texts)
	}
	pp.before = append(before, pp.before...)
	pp.after = append(pp.after, after...)
	return nil
}

// namedID is ["token", id].
type namedID struct {
	Token string
	ID    int32
}

// UnmarshalJSON reads a pair of a string and a number.
func (n *namedID) UnmarshalJSON(b []byte) error {
	pair := [...]any{&n.Token, &n.ID}
	var parts []json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil || len(parts) != len(pair) {
		return fmt.Errorf("%s is not a token with its id", b)
	}
	for i, p := range parts {
		if err := json.Unmarshal(p, pair[i]); err != nil {
			return fmt.Errorf("%s is not a token with its id", b)
		}
	}
	return nil
}

// parseSurround adds cls before and sep after the tokens that pp has already. RobertaProcessing also trims offsets.
func parseSurround(b json.RawMessage, where, kind string, pp *postProcessor) error {
	f := struct {
		Sep    namedID `json:"sep"`
		Cls    namedID `json:"cls"`
		Trim   *bool   `json:"trim_offsets"`
		Prefix *bool   `json:"add_prefix_space"`
	}{}
	if err := component(b, where, kind, &f); err != nil {
		return err
	}
	if kind == "RobertaProcessing" && (f.Trim == nil || *f.Trim) {
		pp.trims = append(pp.trims, trimOffsets{f.Prefix == nil || *f.Prefix})
	}
	pp.before = append([]int32{f.Cls.ID}, pp.before...)
	pp.after = append(pp.after, f.Sep.ID)
	return nil
}
