package dataset

import (
	"fmt"
	"slices"
	"strings"
)

// TextReader makes what a model with a head reads of rows that need no label: the tokens of a text, of two texts or of
// words, as rows of training have them. It reads the rows that EachRow passes, in their order.
type TextReader struct {
	cfg    Config
	tok    Tokenizer
	kind   TextKind
	source string // file whose first row decided format and keys
	format Format
	keys   map[string]string // role -> key in the file
}

// TextKind is what a model reads of a row.
type TextKind int

// Kinds of TextKind.
const (
	TextsOfRow  TextKind = iota // a text, or two texts one after the other
	TextOfRow                   // one text, as embedding models read it
	WordsOfRow                  // the words of a text
	AnswerOfRow                 // a prompt with its answer, as reward models learn from pairs; else as TextsOfRow
)

// TextRow is what a model reads of a row.
type TextRow struct {
	// IDs are the tokens, at most Config.MaxLength; none if Skipped is set.
	IDs []int32
	// Words are the words of a row of WordsOfRow, and First the index of each word's first token in IDs; -1 = the
	// word has no token, or none of the first MaxLength.
	Words []string
	First []int
	// Lost is the number of tokens beyond MaxLength.
	Lost int
	// Skipped says why there is nothing to read; "" = there are tokens.
	Skipped string
}

// NewTextReader returns a reader of rows. c.Fields names the keys of text, text_pair, tokens or input_ids, c.Chat finds
// the chat template of conversations, and c.MaxLength bounds the tokens of a row.
func NewTextReader(c Config, kind TextKind, tok Tokenizer) *TextReader {
	c.OnTruncated = TruncatedKeep
	c.chat = newChatOnce(c, tok)
	return &TextReader{cfg: c, tok: tok, kind: kind}
}

// textRoles are the roles of one text, under all names that a text has in rows of training.
func textRoles() []Role {
	keys := slices.Concat(classification.Roles[0].Keys, []string{"anchor", "document", "passage"})
	return []Role{{Name: "text", Keys: keys}}
}

// formats returns the formats of a kind's rows without labels, in the order in which they are tried.
func (k TextKind) formats() []Format {
	ids := Format{Roles: []Role{tokenizedClassification.Roles[0], tokenizedClassification.Roles[2]},
		Render: func(f Fields, _ Config) (Example, error) {
			ids, err := readIDs(f)
			if err == nil && len(ids) == 0 {
				return Example{Empty: dropEmptyText}, nil
			}
			return Example{Aimed: &Aimed{IDs: ids}}, err
		}}
	texts := Format{Roles: classification.Roles[:2], Render: func(f Fields, _ Config) (Example, error) {
		return renderTexts(f)
	}}
	switch k {
	case AnswerOfRow:
		return []Format{answerRow, texts, ids}
	case TextOfRow:
		texts.Roles = textRoles()
	case WordsOfRow:
		words := Format{Roles: tokenClassification.Roles[:1], Render: func(f Fields, _ Config) (Example, error) {
			return renderWords(f)
		}}
		texts.Roles = textRoles()
		texts.Render = renderSplitText
		return []Format{words, texts, ids}
	}
	return []Format{texts, ids}
}

// answerRow reads {prompt, completion}: a side of a preference pair, which has the tokens that training gives it.
var answerRow = Format{
	Roles: slices.Concat([]Role{
		{Name: "prompt", Keys: unpaired.Roles[0].Keys},
		{Name: "completion", Keys: []string{"completion", "answer", "response", "output", "chosen"}},
	}, unpaired.Roles[3:]),
	Render: func(f Fields, cfg Config) (Example, error) {
		if cfg.AsChat == AsChatYes || f.talks("prompt", "completion", "completion") {
			return f.chatAnswers("completion")
		}
		return f.textAnswers("completion")
	},
}

// renderSplitText divides a text at white space into words.
func renderSplitText(f Fields, _ Config) (Example, error) {
	text, err := f.Text("text")
	if words := strings.Fields(text); err == nil && len(words) > 0 {
		return Example{Aimed: &Aimed{Texts: words, Words: true}}, nil
	}
	return Example{Empty: dropEmptyText}, err
}

// CheckFields returns an error if Config.Fields names a field that rows of the kind do not have.
func (r *TextReader) CheckFields() error {
	var roles []string
	for _, f := range r.kind.formats() {
		roles = append(roles, f.roleNames()...)
	}
	for _, role := range r.cfg.fieldRoles() {
		if !slices.Contains(roles, role) {
			return fmt.Errorf("fields: there is no field %q, but %s%s", role, strings.Join(roles, ", "),
				didYouMean(role, roles))
		}
	}
	return nil
}

// Keys returns the keys from which the rows of the file that is read now have their texts, such as text and text_pair.
func (r *TextReader) Keys(item Item) (keys []string) {
	for _, role := range r.format.Roles {
		if key := r.keys[role.Name]; item.object.Has(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Read returns what a model reads of a row.
func (r *TextReader) Read(item Item) (TextRow, error) {
	if err := r.bind(item); err != nil {
		return TextRow{}, fmt.Errorf("%s: %w", item.Where(), err)
	}
	row, err := r.row(Fields{row: item.object, keys: r.keys})
	if err != nil {
		return TextRow{}, fmt.Errorf("%s: %w", item.Where(), err)
	}
	return row, nil
}

// bind finds the format and the keys of a file by its first row, and checks that a row has the required keys.
func (r *TextReader) bind(item Item) error {
	if r.keys == nil || r.source != item.Source {
		r.source, r.keys = item.Source, nil
		var named []string
		for _, f := range r.kind.formats() {
			if keys, missing := f.bind(item.object, r.cfg.Fields); missing == "" && f.hasRoles(r.cfg.fieldRoles()) {
				r.format, r.keys = f, keys
				break
			}
			named = append(named, f.Roles[0].Name)
		}
		if r.keys == nil {
			return fmt.Errorf("none of the keys %s is known to hold %s: name the one that does in fields, such as "+
				"text=%s", item.object.keyList(), strings.Join(named, " or "), firstKey(item.object))
		}
	}
	for _, role := range r.format.Roles {
		if key := r.keys[role.Name]; !role.Optional && !item.object.Has(key) {
			return fmt.Errorf("the row has no field %q, or it is null: it has %s", key, item.object.keyList())
		}
	}
	return nil
}

// firstKey returns the first key of a row, for an example in a message.
func firstKey(o Object) string {
	if len(o.keys) == 0 {
		return "KEY"
	}
	return o.keys[0]
}

func (r *TextReader) row(f Fields) (TextRow, error) {
	ex, err := r.format.Render(f, r.cfg)
	if err != nil || ex.Empty != "" {
		return TextRow{Skipped: ex.Empty}, err
	}
	if ex.Aimed != nil && ex.Aimed.Words {
		return r.words(ex.Aimed.Texts), nil
	}
	e, err := encode(ex, r.tok, r.cfg, &buffers{})
	if err != nil || e.drop != "" {
		return TextRow{Skipped: e.drop}, err
	}
	row := TextRow{IDs: slices.Clone(e.ids), Lost: e.lost}
	if r.kind == WordsOfRow { // of a row of token ids each token is a word
		for t, id := range row.IDs {
			text, _ := r.tok.Token(id)
			row.Words, row.First = append(row.Words, text), append(row.First, t)
		}
	}
	return row, nil
}

// words makes the row of a text's words.
func (r *TextReader) words(words []string) TextRow {
	row := TextRow{Words: words}
	row.IDs, row.First = WordIDs(words, r.tok)
	if n := len(row.IDs); n > r.cfg.MaxLength {
		row.IDs, row.Lost = row.IDs[:r.cfg.MaxLength], n-r.cfg.MaxLength
	}
	for i, t := range row.First {
		if t >= len(row.IDs) {
			row.First[i] = -1
		}
	}
	if len(row.IDs) == 0 {
		row.Skipped = dropEmptyText
	}
	return row
}
