package train

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
)

// WindowsFile is the name of the file that training.record_windows writes into the output folder: a JSON line for each
// optimizer step, with the token ids and labels of its micro-batches.
const WindowsFile = "windows.jsonl"

// mostWindow is the largest length of a line of WindowsFile in bytes.
const mostWindow = 1 << 28

// recordedWindow is a line of WindowsFile: the window of all ranks, and the place before it.
type recordedWindow struct {
	Before    json.RawMessage `json:"before"`
	Data      string          `json:"data"`
	At        string          `json:"at"`
	Trained   int             `json:"trained"`
	Groups    int             `json:"groups"`
	Sequences int             `json:"sequences"`
	Progress  float64         `json:"progress"`
	Batches   []recordedBatch `json:"batches"`
}

// recordedBatch is a micro-batch: its rows, or its sequences if rows are not stored end to end.
type recordedBatch struct {
	Rows  [][]recordedRow `json:"rows"`
	Epoch int             `json:"epoch"`
	Last  bool            `json:"last,omitempty"`
}

type recordedRow struct {
	IDs       []int32              `json:"ids"`
	Labels    []int32              `json:"labels"`
	Borders   []int32              `json:"borders,omitempty"`
	Prefix    bool                 `json:"prefix,omitempty"`
	Desirable dataset.Desirability `json:"desirable,omitempty"`
	Weights   []float32            `json:"weights,omitempty"`
	Targets   []float32            `json:"targets,omitempty"`
}

// recordBatch returns the rows of a batch with the given shape.
func recordBatch(b dataset.Batch, s dataset.Shape) recordedBatch {
	sequences := 1
	if !s.Flat {
		sequences = s.Sequences
	}
	r := recordedBatch{Rows: make([][]recordedRow, sequences), Epoch: b.Epoch, Last: b.Last}
	for k := range b.Rows {
		row := recordedRow{Borders: b.Borders(k), Prefix: b.SharesPrefix(k), Weights: b.RowWeights(k),
			Targets: b.RowTargets(k)}
		row.IDs, row.Labels = b.Row(k)
		if b.Desirable != nil {
			row.Desirable = b.Desirable[k]
		}
		at := 0
		if !s.Flat {
			at = b.Starts[k] / s.T
		}
		r.Rows[at] = append(r.Rows[at], row)
	}
	return r
}

// recordingWindows are Windows that write each window to WindowsFile as it is dealt. When a run resumes, lines that the
// interrupted run wrote after its checkpoint are cut off.
type recordingWindows struct {
	Windows
	path string
	file *os.File // nil before the first window
}

// Next deals a window and writes it to the file.
func (w *recordingWindows) Next() (dataset.Step, error) {
	before := w.State()
	s, err := w.Windows.Next()
	if err != nil {
		return s, err
	}
	if w.file == nil {
		if err := w.open(before); err != nil {
			return s, fmt.Errorf("record windows: %w", err)
		}
	}
	line := recordedWindow{Before: before.State, Data: before.Data, At: before.At, Trained: s.Trained, Groups: s.Groups,
		Sequences: s.Sequences, Progress: s.Progress}
	all := s.All
	if all == nil {
		all = s.Batches
	}
	for _, b := range all {
		line.Batches = append(line.Batches, recordBatch(b, w.Shape()))
	}
	text, err := json.Marshal(line)
	if err == nil {
		err = appendTo(w.file, append(text, '\n'))
	}
	if err != nil {
		return s, fmt.Errorf("record windows: %w", err)
	}
	return s, nil
}

// Close closes the file.
func (w *recordingWindows) Close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// open truncates the file before the line of a place, and appends from there.
func (w *recordingWindows) open(at Place) error {
	var kept int64
	if f, err := regular.Open(w.path); err == nil {
		in := bufio.NewReader(f)
		for {
			text, err := windowLine(in)
			var line recordedWindow
			if err != nil || json.Unmarshal(text, &line) != nil || bytes.Equal(line.Before, at.State) {
				break
			}
			kept += int64(len(text)) + 1
		}
		f.Close() //nolint:errcheck // read only
	}
	var err error
	if w.file, err = atomicfile.Append(w.path, 0o644); err != nil {
		return err
	}
	return w.file.Truncate(kept)
}

// windowLine reads a line without its line end.
func windowLine(in *bufio.Reader) (line []byte, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > mostWindow {
			return nil, fmt.Errorf("a line has more than %d bytes", mostWindow)
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(line, []byte("\n")), err
		}
	}
}

// recordedWindows deals the windows of a WindowsFile in place of a data set's.
type recordedWindows struct {
	division
	path  string
	shape func() dataset.Shape // shape of the micro-batches that the run is planned for
	vocab int
	all   bool // deals the micro-batches of the other ranks too
	file  *os.File
	in    *bufio.Reader
	next  *recordedWindow // next window; nil = none is left
	line  int             // line number of next, from 1
}

// openRecorded opens a file of windows at its first window.
func (p *prepared) openRecorded(path string) (Windows, error) {
	w := &recordedWindows{division: p.division, path: path, shape: p.loader.Shape, vocab: p.Base.Config.VocabSize,
		all: p.env.team != nil && p.env.team.leads()}
	if err := w.rewind(); err != nil {
		return nil, fmt.Errorf("replay recorded windows: %w", err)
	}
	if w.next == nil {
		return nil, fmt.Errorf("replay recorded windows: %s has none", path)
	}
	return w, nil
}

func (w *recordedWindows) rewind() (err error) {
	if err := w.Close(); err != nil {
		return err
	}
	if w.file, err = regular.Open(w.path); err != nil {
		return err
	}
	w.in, w.line = bufio.NewReader(w.file), 0
	return w.read()
}

// read reads the next line.
func (w *recordedWindows) read() error {
	w.next = nil
	text, err := windowLine(w.in)
	if errors.Is(err, io.EOF) && len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	w.line++
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: line %d: %w", w.path, w.line, err)
	}
	var line recordedWindow
	if err := jsonerr.Unmarshal(text, &line); err != nil {
		return fmt.Errorf("%s: line %d: %w", w.path, w.line, jsonerr.Unplaced(err))
	}
	w.next = &line
	return nil
}

// Close closes the file.
func (w *recordedWindows) Close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// Shape returns the bounds of the micro-batches that the run is planned for.
func (w *recordedWindows) Shape() dataset.Shape { return w.shape() }

// State returns the place before the next window, as the recording run had it.
func (w *recordedWindows) State() Place {
	if w.next == nil {
		return Place{At: "behind the last recorded window"}
	}
	return Place{Data: w.next.Data, At: w.next.At, State: w.next.Before}
}

// Restore moves to the window with the given place.
func (w *recordedWindows) Restore(state json.RawMessage) error {
	if err := w.rewind(); err != nil {
		return err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, state); err != nil {
		return fmt.Errorf("the place in %s: %w", w.path, err)
	}
	for w.next != nil {
		if bytes.Equal(w.next.Before, compact.Bytes()) {
			return nil
		}
		if err := w.read(); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s has no window at the place of the checkpoint", w.path)
}

// Next returns the next window, arranged for the run's plans.
func (w *recordedWindows) Next() (dataset.Step, error) {
	if w.next == nil {
		return dataset.Step{}, fmt.Errorf("%s has no more than %d windows", w.path, w.line)
	}
	from, groups := *w.next, w.groups()
	s := dataset.Step{Trained: from.Trained, Groups: from.Groups, Sequences: from.Sequences, Progress: from.Progress,
		Rounds: (len(from.Batches) + groups - 1) / groups}
	for i, recorded := range from.Batches {
		own := i%groups == w.rank/w.sharing
		if !own && !w.all {
			continue
		}
		b, err := w.lay(recorded)
		if err != nil {
			return dataset.Step{}, fmt.Errorf("%s: line %d: micro-batch %d: %w", w.path, w.line, i+1, err)
		}
		if own {
			s.Batches = append(s.Batches, b)
		}
		if w.all {
			s.All = append(s.All, b)
		}
	}
	return s, w.read()
}

// lay checks the tokens of a micro-batch and arranges them for the run's plans.
func (w *recordedWindows) lay(r recordedBatch) (dataset.Batch, error) {
	var rows [][]dataset.Row
	for _, list := range r.Rows {
		var sequence []dataset.Row
		for _, row := range list {
			for t, id := range row.IDs {
				if id < 0 || int(id) >= w.vocab || t < len(row.Labels) && row.Labels[t] != dataset.Ignore &&
					(row.Labels[t] < 0 || int(row.Labels[t]) >= w.vocab) {
					return dataset.Batch{}, fmt.Errorf("a token or label is outside the vocabulary of %d", w.vocab)
				}
			}
			sequence = append(sequence, dataset.Row{IDs: row.IDs, Labels: row.Labels, Borders: row.Borders,
				Prefix: row.Prefix, Desirable: row.Desirable, Weights: row.Weights, Targets: row.Targets})
		}
		if len(sequence) > 0 {
			rows = append(rows, sequence)
		}
	}
	b, err := w.Shape().Lay(rows, 0)
	b.Epoch, b.Last = r.Epoch, r.Last
	return b, err
}

// record wraps the windows of the rank that writes, if training.record_windows is set, so that they are recorded.
func (p *prepared) record() {
	if _, done := p.windows.(*recordingWindows); !done && p.spec.Training.RecordWindows && p.env.team.leads() {
		p.windows = &recordingWindows{Windows: p.windows, path: filepath.Join(p.spec.OutputDir, WindowsFile)}
	}
}
