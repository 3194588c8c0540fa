package train

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
)

// metricsFile writes metrics.jsonl.
type metricsFile struct {
	Silent
	file  *os.File
	ended bool // the file already has its last line
}

// Start rewrites the file with exactly the lines of a checkpoint's history. This removes lines, or half a line, that a
// crashed run wrote after its last checkpoint. A run that was at its last step keeps its end line. The file is replaced
// atomically.
func (m *metricsFile) Start(r RunInfo) error {
	path := filepath.Join(r.Dir, MetricsFile)
	text, err := historyText(r.History)
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	if r.Done > 0 && r.Done == r.Total {
		end := endOf(path, text)
		text, m.ended = append(text, end...), end != nil
	}
	if err := atomicfile.Write(path, text); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	if m.file, err = atomicfile.Append(path, 0o644); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}

// historyText returns the lines of a history as text.
func historyText(history []json.RawMessage) ([]byte, error) {
	var text bytes.Buffer
	for i, line := range history {
		if err := json.Compact(&text, line); err != nil {
			return nil, fmt.Errorf("line %d of the history is no JSON: %w", i+1, err)
		}
		text.WriteByte('\n')
	}
	return text.Bytes(), nil
}

// endOf returns the line about a finished run that follows the history in a file; nil if there is none.
func endOf(path string, history []byte) []byte {
	old, err := regular.ReadFile(path)
	if err != nil {
		return nil
	}
	rest, ok := bytes.CutPrefix(old, history)
	var line EndMetrics
	if !ok || bytes.Count(rest, []byte("\n")) != 1 || json.Unmarshal(rest, &line) != nil || line.Runtime == 0 {
		return nil
	}
	return rest
}

func (m *metricsFile) Step(s StepInfo) error {
	if s.Logged == nil {
		return nil
	}
	return m.append(*s.Logged)
}

func (m *metricsFile) Eval(e EvalMetrics) error { return m.append(e) }

// Task adds a line about a task.
func (m *metricsFile) Task(t TaskMetrics) error { return m.append(t) }

// End writes the last line and syncs the file to disk.
func (m *metricsFile) End(e EndInfo) error {
	if m.file == nil {
		return nil
	}
	var err error
	if e.Logged != nil && !m.ended {
		err = m.append(*e.Logged)
	}
	if serr := m.file.Sync(); err == nil && serr != nil {
		err = fmt.Errorf("close %s: %w", m.file.Name(), serr)
	}
	if cerr := m.file.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("close %s: %w", m.file.Name(), cerr)
	}
	m.file = nil
	return err
}

// appendTo appends text to a file. Its error names a full disk.
func appendTo(f *os.File, text []byte) error {
	_, err := f.Write(text)
	return atomicfile.Room(err, f.Name(), int64(len(text)))
}

func (m *metricsFile) append(line any) error {
	data, err := encodeLine(line)
	if err == nil {
		err = appendTo(m.file, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", m.file.Name(), err)
	}
	return nil
}
