// Package dataset turns data files into batches of tokens. A format reads a row; the row becomes token ids and labels;
// rows become batches, each as long as one of a few token budgets. A seed decides the order, and a cursor can resume
// it.
//
//	file -> rows (source) -> Example (one file a format) -> ids, labels (encode.go) -> Set -> Loader -> Batch
//
// Dimensions: M tokens a batch; B sequences, T tokens a sequence. Labels[t] belongs to IDs[t]; the loss does the shift.
package dataset

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
)

// Ignore is the label of a token that is not trained.
const Ignore = int32(-100)

// Tokenizer is what the package needs from a tokenizer. It is safe for concurrent use.
type Tokenizer interface {
	IDs(text string, addSpecial bool) []int32
	BOS() (int32, bool)
	EOS() (int32, bool)
	PAD() (int32, bool)
	// AddsBOS reports whether the model's own encoding starts with BOS.
	AddsBOS() bool
	Decode(ids []int32, skipSpecial bool) string
	// Token returns the vocabulary entry of an id; false if the id is not in the vocabulary.
	Token(id int32) (string, bool)
}

// filed is an optional capability of a Tokenizer: it returns the files that the tokenizer was made from, which decide
// its ids. The token cache needs it.
type filed interface {
	Files() map[string][]byte
}

// Row is one tokenised row: a single sequence, or a group of several sequences that stay together, one after the other.
// The label of each sequence's first token is always Ignore, because no position of the sequence predicts that token;
// in a packed sequence the row before would predict it.
type Row struct {
	IDs    []int32 // [n] token ids; no sequence has more than Config.MaxLength tokens
	Labels []int32 // [n] labels, Ignore for tokens that are not trained
	// Borders are the tokens at which the second and each further sequence of the row begins: ascending, above 0 and
	// below n, at most MaxSequences-1. nil = the row is one sequence.
	Borders []int32
	// Prefix says that the first sequence of the row is the prefix of all the others, such as the prompt of several
	// answers: each of them continues it, and its positions begin where the prefix ends. No token of the prefix is
	// trained.
	Prefix bool
	// Desirable is the label of an unpaired preference row.
	Desirable Desirability
	// Weights [n] are the factors of the tokens' losses, 0 or more; nil = all are one.
	Weights []float32
	// Rollout is what is known of the sampled answers that the row's sequences are; nil = they are none.
	Rollout *Rollout
	// Targets are numbers that the row is to be given, whose meaning depends on the format: the margin of a preference
	// pair, the class or the numbers of a labelled text, the class of each token. nil = it has none.
	Targets []float32
	// Columns is the row's JSON object as its file has it, where answers are sampled for the row; nil otherwise.
	Columns []byte
	// Images are the row's images; nil = it has none.
	Images *RowImages

	Index  int    // number of the row in its source, from 0, dropped rows included
	Line   int    // line of the source at which the row starts, from 1; 0 in Parquet, which has no lines
	Source string // path of the source
}

// Where names the row's place in its source: "data.jsonl:17", or "data.json:1 (row 6)" where several rows share a line.
func (r Row) Where() string { return place(r.Source, r.Line, r.Index) }

func place(path string, line, index int) string {
	if line == 0 {
		return fmt.Sprintf("%s row %d", path, index+1) // a format without lines
	}
	if index < line {
		return fmt.Sprintf("%s:%d", path, line)
	}
	return fmt.Sprintf("%s:%d (row %d)", path, line, index+1)
}

// Trained returns the number of trained tokens of the row.
func (r Row) Trained() int { return countTrained(r.Labels) }

func countTrained(labels []int32) int {
	n := 0
	for _, l := range labels {
		if l != Ignore {
			n++
		}
	}
	return n
}

// Set is the tokenised data of one run.
type Set struct {
	Train  Rows // training rows in file order
	Val    Rows // validation rows in file order; empty without val_split and val_path
	Config Config
	PadID  int32 // token id of padding; its label is Ignore

	chat  *chatOnce                          // nil if no row is a conversation
	again func(context.Context, *look) error // reads the sources again
	// Vocab bounds the ids of rows that are read later: each must be less than Vocab. 0 = no bound.
	Vocab int
	// Positions is the most tokens that a sequence of the model may have. No row's length is rounded up beyond it. 0 =
	// no bound.
	Positions int

	origin []part  // origin of the validation rows, or of the training rows that they were held out of
	stream *stream // the stream whose first window Train is; nil = Train holds all rows
}

// Streaming reports whether Train is only the first window of a stream.
func (s *Set) Streaming() bool { return s.stream != nil }

// Load reads and tokenises the data of cfg. Malformed rows, missing fields, an unknown format and a source without a
// usable row are errors that name file and line. Dropped and truncated rows are counted in the report. The report is
// not nil if a source could be read, even if err says that no row is left.
func Load(ctx context.Context, cfg Config, tok Tokenizer) (*Set, *Report, error) {
	return load(ctx, cfg, tok, disk{})
}

// LoadFS is Load with the paths opened in fsys, for data embedded in the binary.
func LoadFS(ctx context.Context, fsys fs.FS, cfg Config, tok Tokenizer) (*Set, *Report, error) {
	return load(ctx, cfg, tok, fsys)
}

func load(ctx context.Context, cfg Config, tok Tokenizer, fsys fs.FS) (*Set, *Report, error) {
	if problems := cfg.Validate(); len(problems) > 0 {
		return nil, nil, joinProblems(problems)
	}
	if !cfg.onlyIDs() {
		if err := checkTokenizer(tok); err != nil {
			return nil, nil, err
		}
	}
	set := &Set{Config: cfg, Val: Memory(nil)}
	set.again = func(ctx context.Context, l *look) error {
		once := cfg
		once.look, once.CacheDir = l, ""
		_, _, err := load(ctx, once, tok, fsys)
		return err
	}
	cfg.chat = newChatOnce(cfg, tok)
	if cfg.Streaming {
		cfg.CacheDir = ""
	}
	if cfg.Streaming && cfg.Images != nil {
		cfg.Images = streamedImages{cfg.Images}
	}
	if id, ok := tok.PAD(); ok {
		set.PadID = id
	}
	report, err := set.loadTrain(ctx, cfg, tok, fsys)
	if err != nil {
		return nil, report, err
	}
	if val := cfg.validation(); len(val) > 0 {
		var parts []part
		parts, report.Val, err = loadSources(ctx, cfg, val, tok, fsys)
		if none := (*noRowError)(nil); errors.As(err, &none) {
			err = none.validation()
		}
		if err != nil {
			return nil, report, err
		}
		set.Val, _ = weigh(parts, nil, cfg.Seed)
		set.origin = parts
	}
	report.TrainRows, report.ValRows = set.Train.Len(), set.Val.Len()
	report.Leaked = leaked(set.Train, set.Val)
	if err := set.unpair(); err != nil {
		return nil, report, err
	}
	if report.conversations() {
		set.chat = cfg.chat
	}
	return set, report, report.describe(cfg, tok)
}

// loadTrain reads the training rows and holds validation rows out of them. For a stream it reads the first window.
func (s *Set) loadTrain(ctx context.Context, cfg Config, tok Tokenizer, fsys fs.FS) (*Report, error) {
	if cfg.Streaming {
		var report *Report
		var err error
		if s.stream, report, err = openStream(ctx, cfg, tok, fsys); err == nil {
			s.Train = s.stream.first
		}
		return report, err
	}
	train, report, err := loadSources(ctx, cfg, cfg.training(), tok, fsys)
	if err != nil {
		return report, err
	}
	rows := joinParts(train)
	held, err := hold(rows, cfg.ValSplit, cfg.Seed)
	if err != nil {
		return report, fmt.Errorf("%s: %w", report.Source, err)
	}
	if n := rows.Len(); n > math.MaxInt32 {
		return report, fmt.Errorf("%s: %d rows, more than %d: take fewer", report.Source, n, math.MaxInt32)
	}
	s.Train, s.Val = weigh(train, held, cfg.Seed)
	s.origin = train
	return report, nil
}

// onlyNumbers reports whether the model has no tokenizer, so that rows must be token ids.
func onlyNumbers(tok Tokenizer) bool {
	t, ok := tok.(interface{ OnlyNumbers() bool })
	return ok && t.OnlyNumbers()
}

// onlyIDs reports whether the configuration says that all rows are token ids, to which nothing is added.
func (c Config) onlyIDs() bool {
	text := func(s Source) bool { return cmp.Or(s.Format, c.Format) != "tokenized" }
	return c.Format == "tokenized" && !slices.ContainsFunc(c.Sources, text) && !slices.ContainsFunc(c.ValSources, text)
}

// checkTokenizer rejects a tokenizer with which no model could learn to stop.
func checkTokenizer(tok Tokenizer) error {
	if onlyNumbers(tok) {
		return nil
	}
	if _, ok := tok.EOS(); !ok {
		return fmt.Errorf("prepare data: the tokenizer names no end token (eos_token), so a model could not learn to " +
			"stop")
	}
	if _, ok := tok.BOS(); tok.AddsBOS() && !ok {
		return fmt.Errorf("prepare data: the tokenizer adds a start token but names none (bos_token)")
	}
	return nil
}
