package train

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/train/objective"
)

// CSVFile is the name of the file that report_to: [csv] writes into a run's output folder: a table of the numbers of
// metrics.jsonl that people plot.
const CSVFile = "metrics.csv"

// csvFile writes metrics.csv: a row for each line of metrics.jsonl about steps or an evaluation.
type csvFile struct {
	Silent
	file *os.File
	// Names of the objective's numbers that tables list; they are the last columns, first for steps and
	// then for evaluations.
	names []string
}

func newCSV(opened) Observer { return &csvFile{} }

// Files returns the names of the files that it writes.
func (*csvFile) Files() []string { return []string{CSVFile} }

var csvHeader = []string{"step", "epoch", "loss", "grad_norm", "learning_rate", "tokens_seen",
	"tokens_per_second", "eval_loss"}

// Start begins the table with the rows of a checkpoint's history.
func (c *csvFile) Start(r RunInfo) error {
	path := filepath.Join(r.Dir, CSVFile)
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	for _, n := range r.Numbers {
		if n.Listed() {
			c.names = append(c.names, n.Name)
		}
	}
	rows := [][]string{slices.Concat(csvHeader, c.names, c.evalNames())}
	for _, line := range r.History {
		var s struct {
			StepMetrics
			Eval *float64 `json:"eval_loss"`
			Task string   `json:"task"` // lines about tasks have no row
		}
		var values map[string]any
		if err := errors.Join(json.Unmarshal(line, &s), json.Unmarshal(line, &values)); err != nil {
			return fmt.Errorf("start %s: %w", path, err)
		}
		numbers := func(names []string) (all Values) {
			for _, name := range names {
				if v, ok := values[name].(float64); ok {
					all = append(all, objective.Value{Name: name, Value: v})
				}
			}
			return all
		}
		switch {
		case s.Task != "":
		case s.Eval != nil:
			rows = append(rows, c.evalRow(s.Step, s.Epoch, *s.Eval, numbers(c.evalNames())))
		default:
			s.Numbers = numbers(c.names)
			rows = append(rows, c.stepRow(s.StepMetrics))
		}
	}
	err := w.WriteAll(rows)
	if err == nil {
		err = atomicfile.Write(path, text.Bytes())
	}
	if err == nil {
		c.file, err = atomicfile.Append(path, 0o644)
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}

func (c *csvFile) Step(s StepInfo) error {
	if s.Logged == nil {
		return nil
	}
	return c.row(c.stepRow(*s.Logged))
}

func (c *csvFile) Eval(e EvalMetrics) error {
	return c.row(c.evalRow(e.Step, e.Epoch, e.Loss, e.Numbers))
}

func (c *csvFile) End(EndInfo) error {
	if c.file == nil {
		return nil
	}
	return c.file.Close()
}

func (c *csvFile) row(fields []string) error {
	var text bytes.Buffer
	err := csv.NewWriter(&text).WriteAll([][]string{fields})
	if err == nil {
		err = appendTo(c.file, text.Bytes())
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", c.file.Name(), err)
	}
	return nil
}

func (c *csvFile) stepRow(s StepMetrics) []string {
	row := []string{strconv.Itoa(s.Step), number(s.Epoch), number(s.Loss), number(s.GradNorm), number(s.LearningRate),
		strconv.FormatInt(s.TokensSeen, 10), number(s.TokensPerSecond), ""}
	return slices.Concat(row, columns(c.names, s.Numbers), make([]string, len(c.names)))
}

func (c *csvFile) evalRow(step int, epoch, loss float64, values Values) []string {
	row := []string{strconv.Itoa(step), number(epoch), "", "", "", "", "", number(loss)}
	return slices.Concat(row, make([]string, len(c.names)), columns(c.evalNames(), values))
}

// evalNames returns the columns of an evaluation's numbers.
func (c *csvFile) evalNames() []string {
	names := make([]string, len(c.names))
	for i, name := range c.names {
		names[i] = evalPrefix + name
	}
	return names
}

// columns returns the values of the given names, with an empty cell for a name without a value.
func columns(names []string, values Values) []string {
	row := make([]string, len(names))
	for _, v := range values {
		if i := slices.Index(names, v.Name); i >= 0 {
			row[i] = number(v.Value)
		}
	}
	return row
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
