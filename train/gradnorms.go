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

// GradNormsFile is the name of the file that training.grad_norm_steps writes into a run's output folder: JSON lines.
const GradNormsFile = "grad_norms.jsonl"

// gradNormsFile writes grad_norms.jsonl.
type gradNormsFile struct {
	Silent
	file *os.File
}

// Start rewrites the file with its lines up to the step that the run resumes from. The file is replaced atomically.
func (g *gradNormsFile) Start(r RunInfo) error {
	path := filepath.Join(r.Dir, GradNormsFile)
	kept, err := linesUpTo(path, r.Done)
	if err == nil {
		err = atomicfile.Write(path, kept)
	}
	if err == nil {
		g.file, err = atomicfile.Append(path, 0o644)
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}

// linesUpTo returns the complete lines of a file about steps up to the given one; none if the file does not exist.
func linesUpTo(path string, step int) ([]byte, error) {
	if step == 0 {
		return nil, nil
	}
	text, err := regular.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	end := 0
	for line := range bytes.Lines(text) {
		var l struct {
			Step int `json:"step"`
		}
		if line[len(line)-1] != '\n' || json.Unmarshal(line, &l) != nil || l.Step > step {
			break
		}
		end += len(line)
	}
	return text[:end], err
}

func (g *gradNormsFile) Step(s StepInfo) error {
	if s.TensorNorms == nil {
		return nil
	}
	line, err := gradNormsLine(s)
	if err == nil {
		err = appendTo(g.file, line)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", g.file.Name(), err)
	}
	return nil
}

// gradNormsLine returns the line about a step: the global norm, then the norm of each tensor in the order of the model.
func gradNormsLine(s StepInfo) ([]byte, error) {
	head, err := encodeLine(struct {
		Step            int     `json:"step"`
		GradNorm        float64 `json:"grad_norm"`
		GradNormClipped float64 `json:"grad_norm_clipped"`
	}{s.Step, s.GradNorm, s.GradNormClipped})
	if err != nil {
		return nil, err
	}
	b := bytes.NewBuffer(bytes.TrimSuffix(head, []byte("}")))
	for i, n := range s.TensorNorms {
		before := ","
		if i == 0 {
			before = `,"tensors":{`
		}
		name, err := json.Marshal(n.Name)
		if err != nil {
			return nil, err
		}
		norm := []byte("null")
		if finite(n.Norm) {
			if norm, err = json.Marshal(n.Norm); err != nil {
				return nil, err
			}
		}
		fmt.Fprintf(b, "%s%s:%s", before, name, norm)
	}
	b.WriteString("}}\n")
	return b.Bytes(), nil
}

func (g *gradNormsFile) End(EndInfo) error {
	if g.file == nil {
		return nil
	}
	if err := g.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", g.file.Name(), err)
	}
	return nil
}
