package train

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// CSVFile is the name of what report_to: [csv] writes into a run's output folder: the numbers of metrics.jsonl that
// people plot, as a table.
const CSVFile = "metrics.csv"

// csvFile writes metrics.csv: a row for each line of metrics.jsonl about steps or an evaluation.
type csvFile struct {
	Silent
	file *os.File
}

func newCSV(*prepared) Observer { return &csvFile{} }

// Files are the names that it writes.
func (*csvFile) Files() []string { return []string{CSVFile} }

var csvHeader = []string{"step", "epoch", "loss", "grad_norm", "learning_rate", "tokens_seen", "tokens_per_second", "eval_loss"}

// Start begins the table with the rows of a checkpoint's history.
func (c *csvFile) Start(r RunInfo) error {
	path := filepath.Join(r.Dir, CSVFile)
	var text bytes.Buffer
	w := csv.NewWriter(&text)
	rows := [][]string{csvHeader}
	for _, line := range r.History {
		var s struct {
			StepMetrics
			Eval *float64 `json:"eval_loss"`
			Task string   `json:"task"` // its lines have no row
		}
		if err := json.Unmarshal(line, &s); err != nil {
			return fmt.Errorf("start %s: %w", path, err)
		}
		if s.Task != "" {
			continue
		}
		if s.Eval != nil {
			rows = append(rows, evalRow(s.Step, s.Epoch, *s.Eval))
			continue
		}
		rows = append(rows, stepRow(s.StepMetrics))
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
	return c.row(stepRow(*s.Logged))
}

func (c *csvFile) Eval(e EvalMetrics) error { return c.row(evalRow(e.Step, e.Epoch, e.Loss)) }

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

func stepRow(s StepMetrics) []string {
	return []string{strconv.Itoa(s.Step), number(s.Epoch), number(s.Loss), number(s.GradNorm), number(s.LearningRate),
		strconv.FormatInt(s.TokensSeen, 10), number(s.TokensPerSecond), ""}
}

func evalRow(step int, epoch, loss float64) []string {
	return []string{strconv.Itoa(step), number(epoch), "", "", "", "", "", number(loss)}
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
