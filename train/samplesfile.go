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

// samplesFile writes samples.jsonl.
type samplesFile struct {
	Silent
	logf func(format string, args ...any)
	file *os.File
	size int64
	most int64
}

func newSamplesFile(logf func(string, ...any)) *samplesFile {
	return &samplesFile{logf: logf, most: mostSamplesFile}
}

// Start rewrites the file with its lines up to the step that the run resumes from. The file is replaced atomically.
func (s *samplesFile) Start(r RunInfo) error {
	path := filepath.Join(r.Dir, SamplesFile)
	kept, err := linesUpTo(path, r.Done)
	if err == nil {
		err = atomicfile.Write(path, kept)
	}
	if err == nil {
		s.size = int64(len(kept))
		s.file, err = atomicfile.Append(path, 0o644)
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}

// Sample appends a line unless the file is full.
func (s *samplesFile) Sample(i SampleInfo) error {
	line, err := json.Marshal(SampleLine{Step: i.Step, Prompt: cutText(i.Prompt), Text: cutText(i.Answer)})
	if err != nil {
		return fmt.Errorf("write %s: %w", s.file.Name(), err)
	}
	line = append(line, '\n')
	if s.size+int64(len(line)) > s.most {
		if s.size <= s.most {
			s.logf("%s has %d MiB: no more samples are written to it, the log has them all", s.file.Name(), s.most>>20)
			s.size = s.most + 1
		}
		return nil
	}
	if err := appendTo(s.file, line); err != nil {
		return fmt.Errorf("write %s: %w", s.file.Name(), err)
	}
	s.size += int64(len(line))
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

func (s *samplesFile) End(EndInfo) error {
	if s.file == nil {
		return nil
	}
	if err := s.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", s.file.Name(), err)
	}
	return nil
}
