package train

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/tierlora/tierlora/internal/atomicfile"
)

// SamplesFile is the name of the file in a run's output folder with the model's answers to training.sample_prompts:
// JSON lines.
const SamplesFile = "samples.jsonl"

// Bounds of samples.jsonl in bytes: of a prompt and of an answer, and of the file.
const (
	mostSampleText  = 32 << 10
	mostSamplesFile = 64 << 20
)

// SampleLine is a line of samples.jsonl.
type SampleLine struct {
	Step   int    `json:"step"` // the last step before the sample; 0 = the base model
	Prompt string `json:"prompt"`
	Text   string `json:"text"`
}

// CompletionsFile is the name of the file in a run's output folder with the best and the worst of the answers that a
// run sampled to train on: JSON lines.
const CompletionsFile = "completions.jsonl"

// boundedFile writes a file of JSON lines with a step each in a run's output folder. The file has a largest size, at
// which no more lines are written.
type boundedFile struct {
	Silent
	name string
	logf func(format string, args ...any)
	file *os.File
	size int64
	most int64  // largest size in bytes
	full string // what the log says when the file has this size
}

// samplesFile writes SamplesFile.
type samplesFile struct{ boundedFile }

func newSamplesFile(logf func(string, ...any)) *samplesFile {
	return &samplesFile{boundedFile{name: SamplesFile, logf: logf, most: mostSamplesFile,
		full: "no more samples are written to it, the log has them all"}}
}

// Sample appends a line unless the file is full.
func (s *samplesFile) Sample(i SampleInfo) error {
	return s.add(SampleLine{Step: i.Step, Prompt: cutText(i.Prompt), Text: cutText(i.Answer)})
}

// completionsFile writes CompletionsFile.
type completionsFile struct{ boundedFile }

func newCompletionsFile(logf func(string, ...any)) *completionsFile {
	return &completionsFile{boundedFile{name: CompletionsFile, logf: logf, most: mostSamplesFile,
		full: "no more answers are written to it; record_rollouts writes all of them to " + RolloutsFile}}
}

// Completions appends lines unless the file is full.
func (c *completionsFile) Completions(lines []CompletionLine) error {
	for _, l := range lines {
		if err := c.add(l); err != nil {
			return err
		}
	}
	return nil
}

// Start rewrites the file with its lines up to the step that the run resumes from. The file is replaced atomically.
func (b *boundedFile) Start(r RunInfo) error {
	path := filepath.Join(r.Dir, b.name)
	kept, err := linesUpTo(path, r.Done)
	if err == nil {
		err = atomicfile.Write(path, kept)
	}
	if err == nil {
		b.size = int64(len(kept))
		b.file, err = atomicfile.Append(path, 0o644)
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}

// add appends a line unless the file is full.
func (b *boundedFile) add(value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write %s: %w", b.file.Name(), err)
	}
	line = append(line, '\n')
	if b.size+int64(len(line)) > b.most {
		if b.size <= b.most {
			b.logf("%s has %d MiB: %s", b.file.Name(), b.most>>20, b.full)
			b.size = b.most + 1
		}
		return nil
	}
	if err := appendTo(b.file, line); err != nil {
		return fmt.Errorf("write %s: %w", b.file.Name(), err)
	}
	b.size += int64(len(line))
	return nil
}

// End closes the file.
func (b *boundedFile) End(EndInfo) error {
	if b.file == nil {
		return nil
	}
	if err := b.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", b.file.Name(), err)
	}
	return nil
}

// cutText returns a text cut to at most mostSampleText bytes.
func cutText(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if len(text) <= mostSampleText {
		return text
	}
	n := mostSampleText - len("…")
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
