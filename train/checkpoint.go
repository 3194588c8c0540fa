package train

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Files of a checkpoint that this package knows by name.
const (
	StateFile         = "trainer_state.json" // a State
	CheckpointSumFile = "checkpoint.json"    // size and SHA-256 of every other file
)

// State is trainer_state.json: the fields that transformers' has, and our cursor.
type State struct {
	GlobalStep          int               `json:"global_step"` // finished optimizer steps
	Epoch               float64           `json:"epoch"`
	MaxSteps            int               `json:"max_steps"`
	TokensSeen          int64             `json:"num_input_tokens_seen"`
	BestMetric          *float64          `json:"best_metric"`           // least eval_loss; null before the first
	BestModelCheckpoint string            `json:"best_model_checkpoint"` // folder name of the best one, or ""
	LogHistory          []json.RawMessage `json:"log_history"`           // lines of metrics.jsonl
	Cursor              json.RawMessage   `json:"data_cursor,omitempty"` // where the next batch comes from
}

// Better records an evaluation at the state's step and reports whether it is the best so far. The checkpoint
// of this step is then the best one: save it.
func (s *State) Better(evalLoss float64) bool {
	if s.BestMetric != nil && !(evalLoss < *s.BestMetric) || math.IsNaN(evalLoss) {
		return false
	}
	s.BestMetric, s.BestModelCheckpoint = &evalLoss, CheckpointName(s.GlobalStep)
	return true
}

// Bytes is the state as trainer_state.json.
func (s State) Bytes() ([]byte, error) {
	if s.LogHistory == nil {
		s.LogHistory = []json.RawMessage{}
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", StateFile, err)
	}
	return append(data, '\n'), nil
}

type fileSum struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

type checkpointSums struct {
	Format int       `json:"format"`
	Step   int       `json:"step"`
	Files  []fileSum `json:"files"`
}

const checkpointFormat = 1

// CheckpointName is the folder name of a step's checkpoint.
func CheckpointName(step int) string { return "checkpoint-" + strconv.Itoa(step) }

// Names of folders that are not checkpoints: half-written, to be deleted, moved aside by a newer one.
const (
	partialPrefix = ".partial-"
	deadPrefix    = ".dead-"
	asidePrefix   = ".aside-"
)

// SaveCheckpoint writes dir/checkpoint-<step> with the given files, which must hold a trainer_state.json. The
// folder appears under its name only when all of it is on the disk. A checkpoint of the same step that is
// there already is replaced.
func SaveCheckpoint(dir string, step int, files map[string][]byte) error {
	if err := saveCheckpoint(dir, step, files); err != nil {
		return fmt.Errorf("save %s: %w", filepath.Join(dir, CheckpointName(step)), err)
	}
	return nil
}

func saveCheckpoint(dir string, step int, files map[string][]byte) error {
	if _, ok := files[StateFile]; !ok {
		return fmt.Errorf("no %s among its files", StateFile)
	}
	sums := checkpointSums{Format: checkpointFormat, Step: step}
	for name, data := range files {
		if !simpleName(name) || name == CheckpointSumFile {
			return fmt.Errorf("%q can't be the name of a file in it", name)
		}
		sum := sha256.Sum256(data)
		sums.Files = append(sums.Files, fileSum{name, int64(len(data)), hex.EncodeToString(sum[:])})
	}
	slices.SortFunc(sums.Files, func(a, b fileSum) int { return strings.Compare(a.Name, b.Name) })
	list, err := json.MarshalIndent(sums, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := removeLeftovers(dir); err != nil {
		return err
	}
	partial, err := os.MkdirTemp(dir, partialPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(partial)
	if err := os.Chmod(partial, 0o755); err != nil {
		return err
	}
	for _, s := range sums.Files {
		if err := writeSynced(filepath.Join(partial, s.Name), files[s.Name]); err != nil {
			return err
		}
	}
	if err := writeSynced(filepath.Join(partial, CheckpointSumFile), append(list, '\n')); err != nil {
		return err
	}
	if err := syncDir(partial); err != nil {
		return err
	}
	return install(dir, partial, CheckpointName(step))
}

// install gives the finished folder its name. An older one of that name is moved aside first and deleted last:
// a crash in between leaves it where Latest finds it.
func install(dir, partial, name string) error {
	target, aside := filepath.Join(dir, name), filepath.Join(dir, asidePrefix+name)
	err := os.Rename(target, aside)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(partial, target); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	return os.RemoveAll(aside)
}

// removeLeftovers deletes what a killed process left behind, and puts back what it had moved aside.
func removeLeftovers(dir string) error {
	if err := restoreAside(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), partialPrefix) || strings.HasPrefix(e.Name(), deadPrefix) || strings.HasPrefix(e.Name(), asidePrefix) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// restoreAside puts a checkpoint back that was moved aside for a newer one which then did not come.
func restoreAside(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), asidePrefix)
		if !ok {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
			if err := os.Rename(filepath.Join(dir, e.Name()), filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// LoadCheckpoint reads a checkpoint folder and compares every file with its recorded size and SHA-256.
// A file that is missing or damaged is an error that names it; all of them are listed.
func LoadCheckpoint(path string) (map[string][]byte, State, error) {
	fail := func(err error) (map[string][]byte, State, error) {
		return nil, State{}, fmt.Errorf("load checkpoint %s: %w", path, err)
	}
	sums, err := readSums(path)
	if err != nil {
		return fail(err)
	}
	files := make(map[string][]byte, len(sums.Files))
	var problems []error
	for _, s := range sums.Files {
		data, err := readSummed(path, s)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		files[s.Name] = data
	}
	if len(problems) > 0 {
		return fail(errors.Join(problems...))
	}
	var state State
	data, ok := files[StateFile]
	if !ok {
		return fail(fmt.Errorf("%s is missing", StateFile))
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return fail(fmt.Errorf("%s: %w", StateFile, err))
	}
	if state.GlobalStep != sums.Step {
		return fail(fmt.Errorf("%s is of step %d, the checkpoint of step %d", StateFile, state.GlobalStep, sums.Step))
	}
	return files, state, nil
}

func readSums(path string) (checkpointSums, error) {
	var sums checkpointSums
	name := filepath.Join(path, CheckpointSumFile)
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return sums, fmt.Errorf("%s is missing: this is no complete checkpoint", CheckpointSumFile)
	}
	if err != nil {
		return sums, err
	}
	if info.Size() > 1<<20 {
		return sums, fmt.Errorf("%s is damaged: %d bytes", CheckpointSumFile, info.Size())
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return sums, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&sums); err != nil {
		return sums, fmt.Errorf("%s is damaged: %w", CheckpointSumFile, err)
	}
	if sums.Format != checkpointFormat {
		return sums, fmt.Errorf("%s has format %d, this program reads %d", CheckpointSumFile, sums.Format, checkpointFormat)
	}
	for _, s := range sums.Files {
		if !simpleName(s.Name) {
			return sums, fmt.Errorf("%s is damaged: %q is no file name", CheckpointSumFile, s.Name)
		}
	}
	return sums, nil
}

func readSummed(dir string, s fileSum) ([]byte, error) {
	path := filepath.Join(dir, s.Name)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s is missing", s.Name)
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is damaged: not a file", s.Name)
	case info.Size() != s.Bytes:
		return nil, fmt.Errorf("%s is damaged: it has %d bytes, saved were %d", s.Name, info.Size(), s.Bytes)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != s.SHA256 {
		return nil, fmt.Errorf("%s is damaged: its SHA-256 is %x, saved was %s", s.Name, sum, s.SHA256)
	}
	return data, nil
}

// simpleName reports whether name is one element of a path and no special one.
func simpleName(name string) bool {
	return filepath.IsLocal(name) && name != "." && !strings.ContainsAny(name, `/\`) && len(name) < 200
}

// Checkpoints lists the steps of the checkpoint folders in dir, oldest first, complete or not. A dir that
// does not exist has none.
func Checkpoints(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for checkpoints: %w", err)
	}
	var steps []int
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), "checkpoint-")
		step, err := strconv.Atoi(number)
		if ok && err == nil && step >= 0 && CheckpointName(step) == e.Name() && e.IsDir() {
			steps = append(steps, step)
		}
	}
	sort.Ints(steps)
	return steps, nil
}

// Latest is the newest checkpoint folder in dir that is whole, or "" when there is none. What was passed over
// because it is damaged is returned too, to be told to the user.
func Latest(dir string) (path string, damaged []error, err error) {
	if err := restoreAside(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", nil, fmt.Errorf("look for checkpoints: %w", err)
	}
	steps, err := Checkpoints(dir)
	if err != nil {
		return "", nil, err
	}
	for _, step := range slices.Backward(steps) {
		path := filepath.Join(dir, CheckpointName(step))
		_, _, err := LoadCheckpoint(path)
		if err == nil {
			return path, damaged, nil
		}
		damaged = append(damaged, err)
	}
	return "", damaged, nil
}

// Prune deletes all but the newest keep checkpoints of dir; 0 keeps all. The one named best (a folder name, or
// "") is never deleted and is not counted.
func Prune(dir string, keep int, best string) error {
	steps, err := Checkpoints(dir)
	if err != nil || keep < 1 {
		return err
	}
	steps = slices.DeleteFunc(steps, func(step int) bool { return CheckpointName(step) == best })
	for _, step := range steps[:max(0, len(steps)-keep)] {
		// renamed first, so that a crash leaves no half of one under its name
		name := CheckpointName(step)
		dead := filepath.Join(dir, deadPrefix+name)
		if err := os.Rename(filepath.Join(dir, name), dead); err != nil {
			return fmt.Errorf("delete old checkpoint: %w", err)
		}
		if err := os.RemoveAll(dead); err != nil {
			return fmt.Errorf("delete old checkpoint: %w", err)
		}
	}
	return nil
}
