package infer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/text/chat"
)

// PredictRowsOptions says which rows PredictRows reads, and what it writes of them.
type PredictRowsOptions struct {
	// Data names the rows: Path or Sources, and Fields.
	Data dataset.Config
	// Texts are texts in place of rows of Data; nil = Data.
	Texts []string
	// Keep lists keys of the rows whose values are copied into the lines, under columns.
	Keep []string
	// Plain leaves scores as they are, in place of probabilities.
	Plain bool
	// Written are the lines that an earlier call wrote. PredictRows leaves their rows out.
	Written Lines
	// Write is called with complete lines of JSON, one for each row, in the order of the rows.
	Write func(lines []byte) error
	// Keys is called with the keys that hold the texts of each file; nil = not called.
	Keys func(file string, keys []string)
	// Progress is called with the number of rows that are done, of an unknown number; nil = not called.
	Progress func(rows int)
}

// Lines are lines of an earlier call of PredictRows.
type Lines struct {
	// Count is the number of lines; 0 = there are none, and First and Last are not used.
	Count int
	// First and Last are the first and the last of the lines, without their line ends. PredictRows computes both again
	// and refuses to continue where they differ.
	First, Last []byte
}

// RowsReport counts what PredictRows did.
type RowsReport struct {
	Rows    int   `json:"rows"`             // rows of the data
	Found   int   `json:"found,omitempty"`  // of them, rows of an earlier call
	Skipped int   `json:"skipped"`          // rows without a text
	Cut     int   `json:"cut"`              // rows with more tokens than the predictor's MaxLen
	Lost    int64 `json:"lost_tokens"`      // their tokens beyond it
	Tokens  int64 `json:"tokens,omitempty"` // tokens that were computed
}

// ErrOtherLines is returned by PredictRows if Lines are of other rows, of another model or of another device.
var ErrOtherLines = errors.New("the lines that are there are not those that would be written")

// Bounds of the rows that PredictRows computes together: as many as make full steps of texts of one length likely, and
// not more numbers than fit in little memory.
const (
	predictWindowRows    = 512
	predictWindowTokens  = 1 << 16
	predictWindowNumbers = 1 << 22
)

// PredictRows computes the predictor's first model for the rows of a data set, in the order of the rows, and writes a
// line of JSON for each. A line begins with row, the number of the row from 0, and columns, the values of Keep. It
// goes on by the model's task:
//
//   - embedding, a vector.
//   - label, score and scores, the probability of each label by its name, for single_label_classification.
//   - labels, those with a probability of at least 0.5, and scores for multi_label_classification.
//   - score for heads of one score, and scores for other regressions.
//   - words, labels and scores for token_classification, an element for each word.
//   - skipped, the reason, for a row without a text.
func PredictRows(ctx context.Context, p *Predictor, o PredictRowsOptions) (RowsReport, error) {
	c := o.Data
	c.MaxLength = p.MaxLen()
	c.Chat = func() (*chat.Sources, error) { return chat.Find(p.Base.Folder) }
	w := &rowWindow{p: p, o: o, model: p.models[0]}
	kind, err := p.reads(w.model, &c)
	if err != nil {
		return w.report, err
	}
	w.reader = dataset.NewTextReader(c, kind, p.Base.Tokenizer)
	if err := w.reader.CheckFields(); err != nil {
		return w.report, err
	}
	err = w.each(ctx, c)
	if err == nil {
		err = w.flush(ctx)
	}
	if err == nil && w.report.Rows < o.Written.Count {
		err = fmt.Errorf("%w: there are %d lines, and the data has %d rows", ErrOtherLines, o.Written.Count,
			w.report.Rows)
	}
	return w.report, err
}

// each adds the rows of data, or the texts in their place.
func (w *rowWindow) each(ctx context.Context, c dataset.Config) error {
	if w.o.Texts == nil {
		return w.p.EachRow(ctx, c, func(item dataset.Item) error { return w.add(ctx, item) })
	}
	for i, text := range w.o.Texts {
		if err := w.add(ctx, dataset.TextItem("text", i, text)); err != nil {
			return err
		}
	}
	return nil
}

// reads returns what a model reads of a row. A reward model that learned from pairs reads a prompt and its answer as it
// did there, as conversations if those were.
func (p *Predictor) reads(m PredictorModel, c *dataset.Config) (dataset.TextKind, error) {
	switch m.Task.Type {
	case adapter.TokenClassification:
		return dataset.WordsOfRow, nil
	case adapter.FeatureExtraction:
		return dataset.TextOfRow, nil
	}
	if m.Task.Labels != 1 {
		return dataset.TextsOfRow, nil
	}
	trained, err := dataset.FindPromptFormat(p.Base.Folder, m.dir)
	if err != nil || trained == nil || !trained.OfAnswers() {
		return dataset.TextsOfRow, err
	}
	if slices.Contains(trained.Prompts, dataset.PromptChat) {
		c.AsChat, c.System = dataset.AsChatYes, trained.System
	}
	return dataset.AnswerOfRow, nil
}

// rowWindow collects rows that are computed together.
type rowWindow struct {
	p      *Predictor
	o      PredictRowsOptions
	model  PredictorModel
	reader *dataset.TextReader
	report RowsReport
	file   string // file of the newest row
	rows   []pendingRow
	tokens int
}

// pendingRow is a row that waits for its prediction.
type pendingRow struct {
	dataset.TextRow
	number  int
	columns []byte // JSON of Keep; nil = none
	where   string
}

// add takes a row, unless an earlier call wrote its line and it is neither the first nor the last of these.
func (w *rowWindow) add(ctx context.Context, item dataset.Item) error {
	number, written := w.report.Rows, w.o.Written.Count
	w.report.Rows++
	if number < written {
		w.report.Found++
		if number > 0 && number < written-1 {
			return nil
		}
	}
	text, err := w.reader.Read(item)
	if err != nil {
		return err
	}
	if w.file != item.Source {
		if w.file = item.Source; w.o.Keys != nil {
			w.o.Keys(item.Source, w.reader.Keys(item))
		}
	}
	row := pendingRow{TextRow: text, number: number, where: item.Where()}
	if row.columns, err = columns(item, w.o.Keep); err != nil {
		return err
	}
	if row.Skipped != "" {
		w.report.Skipped++
	}
	if row.Lost > 0 {
		w.report.Cut, w.report.Lost = w.report.Cut+1, w.report.Lost+int64(row.Lost)
	}
	w.rows, w.tokens = append(w.rows, row), w.tokens+len(row.IDs)
	if len(w.rows) < predictWindowRows && w.tokens < predictWindowTokens && w.numbers() < predictWindowNumbers {
		return nil
	}
	return w.flush(ctx)
}

// numbers returns how many scores the rows that wait have.
func (w *rowWindow) numbers() int {
	if w.model.Task.Type == adapter.TokenClassification {
		return w.tokens * w.model.Task.Labels
	}
	return len(w.rows) * w.model.Task.Labels
}

// columns returns the values of keys as a JSON object, null for a key that the row lacks; nil if there are no keys.
func columns(item dataset.Item, keys []string) ([]byte, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	for i, key := range keys {
		value, err := item.JSON(key)
		if err != nil {
			value = json.RawMessage("null")
		}
		b.WriteByte("{,"[min(i, 1)])
		name, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		if err := json.Compact(&b, value); err != nil {
			return nil, fmt.Errorf("%s: field %q: %w", item.Where(), key, err)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// flush computes the rows that wait, and writes their lines.
func (w *rowWindow) flush(ctx context.Context) error {
	var passages []Passage
	for _, row := range w.rows {
		if row.Skipped == "" {
			passages = append(passages, Passage{IDs: row.IDs})
		}
	}
	out, err := w.p.Predict(ctx, passages)
	if err != nil {
		return w.blame(ctx, err)
	}
	var lines []byte
	for _, row := range w.rows {
		var numbers []float32
		if row.Skipped == "" {
			numbers, out = out[0].Numbers, out[1:]
			w.report.Tokens += int64(len(row.IDs))
		}
		line, err := w.line(row, numbers)
		if err != nil {
			return err
		}
		if row.number >= w.o.Written.Count {
			lines = append(append(lines, line...), '\n')
		} else if err := w.same(row.number, line); err != nil {
			return err
		}
	}
	if w.rows, w.tokens = w.rows[:0], 0; w.o.Progress != nil {
		w.o.Progress(w.report.Rows)
	}
	if len(lines) == 0 {
		return nil
	}
	return w.o.Write(lines)
}

// blame finds the row whose numbers are not finite by computing each row of the window alone.
func (w *rowWindow) blame(ctx context.Context, err error) error {
	if !errors.Is(err, ErrNotFinite) {
		return err
	}
	for _, row := range w.rows {
		if row.Skipped != "" {
			continue
		}
		if _, err := w.p.Predict(ctx, []Passage{{IDs: row.IDs}}); err != nil {
			return fmt.Errorf("%s: %w", row.where, err)
		}
	}
	return err
}

// same compares a line with that of an earlier call.
func (w *rowWindow) same(number int, line []byte) error {
	for at, was := range map[int][]byte{0: w.o.Written.First, w.o.Written.Count - 1: w.o.Written.Last} {
		if at == number && !bytes.Equal(line, was) {
			return fmt.Errorf("%w: line %d has other numbers or columns", ErrOtherLines, number+1)
		}
	}
	return nil
}

// line returns a row's line without its line end.
func (w *rowWindow) line(row pendingRow, numbers []float32) ([]byte, error) {
	m := w.model
	l := &jsonLine{}
	l.add("row", row.number)
	if row.columns != nil {
		l.add("columns", json.RawMessage(row.columns))
	}
	switch {
	case row.Skipped != "":
		l.add("skipped", row.Skipped)
	case !m.Task.HasScores():
		l.add("embedding", numbers)
	case m.Task.Type == adapter.TokenClassification:
		w.words(l, row, numbers)
	case m.Task.Labels == 1:
		_, scores := m.Judge(numbers, w.o.Plain)
		l.add("score", scores[0])
	default:
		w.labels(l, numbers)
	}
	return l.bytes()
}

// labels adds the labels of a text of a head with several scores.
func (w *rowWindow) labels(l *jsonLine, numbers []float32) {
	label, scores := w.model.Judge(numbers, w.o.Plain)
	switch w.model.Head.Problem {
	case adapter.Regression:
	case adapter.MultiLabel:
		likely := []string{}
		for i, x := range numbers {
			if x >= 0 { // a probability of 0.5
				likely = append(likely, w.model.Head.LabelName(i))
			}
		}
		l.add("labels", likely)
	default:
		l.add("label", label)
		l.add("score", slices.Max(scores))
	}
	each := &jsonLine{}
	for i, x := range scores {
		each.add(w.model.Head.LabelName(i), x)
	}
	all, err := each.bytes()
	if l.err == nil {
		l.err = err
	}
	l.add("scores", json.RawMessage(all))
}

// words adds a label and its probability for each word, null for a word without a token.
func (w *rowWindow) words(l *jsonLine, row pendingRow, numbers []float32) {
	n := w.model.Task.Labels
	labels, scores := make([]*string, len(row.Words)), make([]*float32, len(row.Words))
	for i, t := range row.First {
		if t < 0 {
			continue
		}
		label, all := w.model.Judge(numbers[t*n:][:n], w.o.Plain)
		most := slices.Max(all)
		labels[i], scores[i] = &label, &most
	}
	l.add("words", row.Words)
	l.add("labels", labels)
	l.add("scores", scores)
}

// jsonLine writes a JSON object with its keys in the order of add.
type jsonLine struct {
	b   bytes.Buffer
	err error
}

func (l *jsonLine) add(key string, value any) {
	if l.err != nil {
		return
	}
	l.b.WriteByte("{,"[min(l.b.Len(), 1)])
	enc := json.NewEncoder(&l.b)
	enc.SetEscapeHTML(false)
	if l.err = enc.Encode(key); l.err != nil {
		return
	}
	l.b.Truncate(l.b.Len() - 1) // the line end of Encode
	l.b.WriteByte(':')
	if l.err = enc.Encode(value); l.err == nil {
		l.b.Truncate(l.b.Len() - 1)
	}
}

func (l *jsonLine) bytes() ([]byte, error) {
	l.b.WriteByte('}')
	return l.b.Bytes(), l.err
}
