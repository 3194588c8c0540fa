package runs

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/train"
	"github.com/tierlora/tierlora/train/checkpoint"
	"github.com/tierlora/tierlora/train/hardware"
	"github.com/tierlora/tierlora/train/journal"
	"github.com/tierlora/tierlora/train/replay"
)

// written are the names of files that this program writes into a run's folder: the run itself, its trackers, the
// reports, the model card and what a person wrote about the run.
var written = []string{
	train.MetricsFile, train.ConfigFile, replay.ManifestFile, train.DataReportFile, train.PlanReportFile, train.ReferenceCurveFile,
	train.GradNormsFile, train.SamplesFile, train.CompletionsFile, train.RolloutsFile,
	checkpoint.LockFile, journal.StatusFile, journal.LogFile, hardware.File, AboutFile,
	adapter.ConfigFile, adapter.WeightsFile, "README.md", "report.html", "report.md", "metrics.csv",
	"prompt_format.json", "generation_config.json", "chat_template.jinja", "tokenizer.json", "tokenizer_config.json",
	"special_tokens_map.json", "added_tokens.json", "tokenizer.model", "vocab.json", "merges.txt",
}

// writtenToo matches the names of such files that contain a number.
var writtenToo = regexp.MustCompile(`^(train\.rank[0-9]+\.log|train\.log\.[0-9]+|events\.out\.tfevents\..+)$`)

// size counts the content of a run's folder.
type size struct {
	Bytes       int64
	Checkpoints int
}

// Deletable returns the size of a run's folder in bytes and its number of checkpoints. The error says why the folder
// must not be deleted: it is a link, a process uses it, or it holds something that no run writes.
func Deletable(dir string) (bytes int64, checkpoints int, err error) {
	s, err := deletable(dir)
	return s.Bytes, s.Checkpoints, err
}

func deletable(dir string) (s size, err error) {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return s, fmt.Errorf("delete a run: %w", err)
	case !info.IsDir():
		return s, fmt.Errorf("%s is no folder: only folders of runs are deleted", dir)
	case !IsRun(dir):
		return s, fmt.Errorf("%s holds no run: only folders of runs are deleted", dir)
	}
	r, err := Read(dir)
	if err != nil {
		return s, err
	}
	if r.Held {
		return s, fmt.Errorf("%s is running: stop it first", dir)
	}
	if r.Journal == nil && r.Manifest == nil && r.Plan == nil && len(r.Steps) == 0 {
		return s, fmt.Errorf("nothing in %s says that this program trained there: delete the folder by hand", dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return s, fmt.Errorf("delete a run: %w", err)
	}
	var foreign []string
	for _, e := range entries {
		switch {
		case e.IsDir() && isCheckpoint(e.Name()):
			s.Checkpoints++
		case e.Type().IsRegular() && (slices.Contains(written, e.Name()) || writtenToo.MatchString(e.Name())):
		default:
			foreign = append(foreign, e.Name())
		}
	}
	if len(foreign) > 0 {
		return s, fmt.Errorf("%s holds %s, which no run writes: move it away, or delete the folder by hand", dir, strings.Join(foreign[:min(len(foreign), 3)], ", "))
	}
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			s.Bytes += info.Size()
		}
		return err
	})
	return s, err
}

func isCheckpoint(name string) bool {
	prefix := strings.TrimSuffix(checkpoint.Name(0), "0")
	number, ok := strings.CutPrefix(name, prefix)
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// Delete deletes the folder of a run after the checks of Deletable. It first renames the folder to a hidden name beside
// its own, so that no list shows a part of a run. It removes links inside and does not follow them.
func Delete(dir string) error {
	if _, err := deletable(dir); err != nil {
		return err
	}
	lock, err := checkpoint.Acquire(dir) // the lock keeps runs from starting in the folder
	if err != nil {
		return fmt.Errorf("delete a run: %w", err)
	}
	mark := make([]byte, 4)
	rand.Read(mark) //nolint:errcheck // it never fails
	gone := filepath.Join(filepath.Dir(dir), ".deleted-"+hex.EncodeToString(mark))
	err = atomicfile.Rename(dir, gone)
	lock.Release() //nolint:errcheck // its file has moved away, or stays in a folder that stays
	if err != nil {
		return fmt.Errorf("delete a run: %w", err)
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("delete a run: %w; what is left is in %s", err, gone)
	}
	return nil
}
