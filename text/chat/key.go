package chat

import (
	"strconv"

	"github.com/tierlora/tierlora/text/jinja"
)

// key collects the texts of a conversation and encodes everything else in it.
func (c *Chat) key(t *Template, conv *Conversation, chosen []bool) ([]text, string) {
	texts := make([]text, 0, len(conv.Messages))
	b := make([]byte, 0, 32*len(conv.Messages)+64)
	b = append(b, t.Name...)
	b = appendValue(b, conv.Tools)
	if conv.Vars != nil {
		b = appendValue(b, conv.Vars)
	}
	for i, m := range conv.Messages {
		b = append(b, '\n', '0')
		if chosen[i] {
			b[len(b)-1] = '1'
		}
		for n := range m.Fields.Len() {
			k, v := m.Fields.At(n)
			b = appendValue(b, k)
			name, _ := k.(jinja.Str)
			in, isText := textKey(string(name))
			if !isText {
				b = appendValue(b, v)
				continue
			}
			add := func(s string) {
				b = append(b, 't')
				split(s, in, func(k kind, s string) {
					if k >= tag {
						b = strconv.AppendQuote(b, s)
						return
					}
					b = append(b, '0'+byte(k))
					texts = append(texts, text{i, k, s})
				})
			}
			switch v := v.(type) {
			case jinja.Str:
				add(string(v))
			case *jinja.List:
				b = append(b, '[')
				for _, item := range v.Items {
					part, ok := item.(*jinja.Dict)
					if !ok {
						b = appendValue(b, item)
						continue
					}
					b = append(b, '{')
					for n := range part.Len() {
						k, v := part.At(n)
						b = appendValue(b, k)
						if s, ok := v.(jinja.Str); ok && k == jinja.Str("text") {
							add(string(s))
						} else {
							b = appendValue(b, v)
						}
					}
				}
				b = append(b, ']')
			default:
				b = appendValue(b, v)
			}
		}
	}
	return texts, string(b)
}

// appendValue encodes a value; different values have different encodings.
func appendValue(b []byte, v jinja.Value) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, '~')
	case jinja.None:
		return append(b, 'n')
	case jinja.Bool:
		return strconv.AppendBool(b, bool(v))
	case jinja.Int:
		return strconv.AppendInt(append(b, 'i'), int64(v), 10)
	case jinja.Float:
		return strconv.AppendFloat(append(b, 'f'), float64(v), 'g', -1, 64)
	case jinja.Str:
		b = strconv.AppendInt(append(b, 's'), int64(len(v)), 10)
		return append(append(b, ':'), v...)
	case *jinja.List:
		b = append(b, '[')
		for _, item := range v.Items {
			b = append(appendValue(b, item), ',')
		}
		return append(b, ']')
	case *jinja.Dict:
		if v == nil {
			return append(b, '~')
		}
		b = append(b, '{')
		for i := range v.Len() {
			k, e := v.At(i)
			b = appendValue(append(appendValue(b, k), ':'), e)
		}
		return append(b, '}')
	}
	return append(b, dumps(v)...)
}
