package tokenizer

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sort"

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
)

// fileNames lists the files of a tokenizer, which a run saves beside the adapter.
var fileNames = []string{
	"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
	"vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja",
}

func load(fsys fs.FS, dir string) (*Tokenizer, error) {
	files := map[string][]byte{}
	if _, err := fs.Stat(fsys, dir); err != nil {
		return nil, err
	}
	for _, name := range fileNames {
		b, err := regular.ReadFS(fsys, path.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		files[name] = b
	}
	t, err := FromFiles(files)
	if errors.Is(err, ErrNone) {
		if foreign := foreignTokenizer(fsys, dir); foreign != nil {
			err = foreign
		}
	}
	return t, err
}

// FromFiles reads a tokenizer from the contents of its files by name, such as those of Tokenizer.Files.
func FromFiles(files map[string][]byte) (_ *Tokenizer, err error) {
	defer Caught(&err)
	t := &Tokenizer{files: files, bos: -1, eos: -1, pad: -1}
	t.scratch.New = func() any { return new(scratch) }
	settings, err := readSettings(t.files)
	if err != nil {
		return nil, err
	}
	var added []addedToken
	if b, ok := t.files["tokenizer.json"]; ok {
		if added, err = t.readFile(b); err != nil {
			return nil, fmt.Errorf("tokenizer.json: %w", orSyntax(b, err))
		}
	} else if err := t.readVocabMerges(settings); err != nil {
		return nil, err
	}
	if err := t.addTokens(append(added, settings.addedTokens...)); err != nil {
		return nil, err
	}
	if err := t.checkTemplate(); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	if err := settings.nameTokens(t); err != nil {
		return nil, err
	}
	if err := settings.surround(t); err != nil {
		return nil, err
	}
	return t, nil
}

// ErrNone is the error for a folder without a tokenizer.
var ErrNone = errors.New("neither tokenizer.json nor vocab.json with merges.txt is there")

// foreignForms lists the files of unsupported tokenizers, with the names of their formats.
var foreignForms = [][2]string{
	{"tokenizer.model", "SentencePiece's form"},
	{"spiece.model", "SentencePiece's form"},
	{"tekken.json", "mistral-common's form"},
	{"vocab.txt", "BERT's older form"},
}

// foreignTokenizer returns an error if the folder's tokenizer has an unsupported known format, else nil.
func foreignTokenizer(fsys fs.FS, dir string) error {
	for _, f := range foreignForms {
		if _, err := fs.Stat(fsys, path.Join(dir, f[0])); err == nil {
			return fmt.Errorf("of a tokenizer only %s is there, in %s, which is not read: in Python, transformers.AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) writes tokenizer.json", f[0], f[1])
		}
	}
	return nil
}

// orSyntax returns the syntax error in the JSON of a file, or err if there is none, because the fast readers do not
// validate the syntax.
func orSyntax(b []byte, err error) error {
	if wrong := jsonerr.Check(b); wrong != nil {
		return wrong
	}
	return err
}

// addTokens adds the added tokens; if two have the same content, the first counts.
func (t *Tokenizer) addTokens(tokens []addedToken) error {
	t.added, t.addedByID = map[string]*addedToken{}, map[int32]*addedToken{}
	largest := int32(len(t.vocab.tokens)) - 1
	limit := idLimit(len(t.vocab.vocab) + len(tokens))
	for i := range tokens {
		a := &tokens[i]
		if a.Content == "" || t.added[a.Content] != nil {
			continue
		}
		if a.ID < 0 || int(a.ID) >= limit {
			return fmt.Errorf("added token %q: id %d is out of range (largest allowed here: %d)", a.Content, a.ID, limit-1)
		}
		if id, ok := t.vocab.vocab[a.Content]; ok && id != a.ID {
			return fmt.Errorf("added token %q has id %d, but %d in the vocabulary", a.Content, a.ID, id)
		}
		if other, ok := t.Token(a.ID); ok && other != a.Content {
			return fmt.Errorf("added token %q has id %d, which is %q", a.Content, a.ID, other)
		}
		t.added[a.Content], t.addedByID[a.ID] = a, a
		largest = max(largest, a.ID)
	}
	t.size = int(largest) + 1
	t.special = make([]bool, t.size)
	ids := make([]int32, 0, len(t.addedByID))
	for id, a := range t.addedByID {
		t.special[id] = a.Special
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	var plain, normal []*addedToken
	var plainTexts, normalTexts []string
	for _, id := range ids {
		a := t.addedByID[id]
		if !a.Normalized {
			plain, plainTexts = append(plain, a), append(plainTexts, a.Content)
			continue
		}
		normal, normalTexts = append(normal, a), append(normalTexts, t.normalizers.normalize(piece{s: a.Content, first: true, work: newWork(len(a.Content))}).s)
	}
	t.found, t.foundNormal = newFinder(plainTexts, plain), newFinder(normalTexts, normal)
	return nil
}

// idLimit bounds ids, so that a wrong one cannot cause unlimited memory.
func idLimit(tokens int) int { return 4*tokens + 1<<16 }

// checkTemplate returns an error if a token that the post-processor adds does not exist.
func (t *Tokenizer) checkTemplate() error {
	for _, id := range append(append([]int32(nil), t.post.before...), t.post.after...) {
		if _, ok := t.Token(id); !ok {
			return fmt.Errorf("post_processor: special token id %d is not in the vocabulary", id)
		}
	}
	return nil
}
