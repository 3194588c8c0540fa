package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
)

// Load reads a checkpoint folder and compares every file with its recorded size and SHA-256. The error lists every
// missing or damaged file.
func Load(path string) (map[string][]byte, State, error) {
	fail := func(err error) (map[string][]byte, State, error) {
		return nil, State{}, fmt.Errorf("load checkpoint %s: %w", path, err)
	}
	all, err := readSums(path)
	if err != nil {
		return fail(err)
	}
	files := make(map[string][]byte, len(all.Files))
	var problems []error
	for _, s := range all.Files {
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
	if err := jsonerr.Unmarshal(data, &state); err != nil {
		return fail(fmt.Errorf("%s: %w", StateFile, err))
	}
	if state.GlobalStep != all.Step {
		return fail(fmt.Errorf("%s is of step %d, the checkpoint of step %d", StateFile, state.GlobalStep, all.Step))
	}
	return files, state, nil
}

// Sums returns the SHA-256 of a checkpoint's files in hexadecimal, as recorded when the checkpoint was saved.
func Sums(path string) (map[string]string, error) {
	all, err := readSums(path)
	if err != nil {
		return nil, fmt.Errorf("read the hashes of checkpoint %s: %w", path, err)
	}
	sums := make(map[string]string, len(all.Files))
	for _, s := range all.Files {
		sums[s.Name] = s.SHA256
	}
	return sums, nil
}

// maxFile is the most bytes of a file in a checkpoint: optimizer states of 100 billion numbers fit.
const maxFile = 1 << 40

func readSums(path string) (summary, error) {
	var all summary
	name := filepath.Join(path, SumFile)
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return all, fmt.Errorf("%s is missing: this is no complete checkpoint", SumFile)
	}
	if err != nil {
		return all, err
	}
	if info.Size() > 1<<20 {
		return all, fmt.Errorf("%s is damaged: %d bytes", SumFile, info.Size())
	}
	data, err := regular.ReadFile(name)
	if err != nil {
		return all, err
	}
	if err := jsonerr.Strict(data, &all); err != nil {
		return all, fmt.Errorf("%s is damaged: %w", SumFile, err)
	}
	if all.Format != format {
		return all, fmt.Errorf("%s has format %d, this program reads %d", SumFile, all.Format, format)
	}
	seen := map[string]bool{}
	for _, s := range all.Files {
		switch {
		case !simpleName(s.Name):
			return all, fmt.Errorf("%s is damaged: %q is no file name", SumFile, s.Name)
		case seen[s.Name]:
			return all, fmt.Errorf("%s is damaged: %s stands there twice", SumFile, s.Name)
		case s.Bytes < 0 || s.Bytes > maxFile:
			return all, fmt.Errorf("%s is damaged: %s has %d bytes", SumFile, s.Name, s.Bytes)
		}
		seen[s.Name] = true
	}
	return all, nil
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
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The hash first, which needs no memory: the size in an untrusted file may be wrong.
	hash := sha256.New()
	if _, err := io.Copy(hash, io.LimitReader(f, s.Bytes)); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.Name, err)
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != s.SHA256 {
		return nil, fmt.Errorf("%s is damaged: its SHA-256 is %s, saved was %s", s.Name, sum, s.SHA256)
	}
	data := make([]byte, s.Bytes)
	if _, err := f.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", s.Name, err)
	}
	return data, nil
}

// simpleName reports whether name is a single path element and not a special one.
func simpleName(name string) bool {
	return filepath.IsLocal(name) && name != "." && !strings.ContainsAny(name, `/\`) && len(name) < 200
}

// Steps lists the steps of the checkpoint folders in dir, oldest first, complete or not. It returns none if dir does
// not exist.
func Steps(dir string) ([]int, error) {
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
		if ok && err == nil && step >= 0 && Name(step) == e.Name() && e.IsDir() {
			steps = append(steps, step)
		}
	}
	sort.Ints(steps)
	return steps, nil
}

// Latest returns the newest undamaged checkpoint folder in dir, or "" if there is none. damaged lists the errors of
// newer checkpoints that were skipped, to be shown to the user.
func Latest(dir string) (path string, damaged []error, err error) {
	if err := restoreAside(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", nil, fmt.Errorf("look for checkpoints: %w", err)
	}
	steps, err := Steps(dir)
	if err != nil {
		return "", nil, err
	}
	for _, step := range slices.Backward(steps) {
		path := filepath.Join(dir, Name(step))
		_, _, err := Load(path)
		if err == nil {
			return path, damaged, nil
		}
		damaged = append(damaged, err)
	}
	return "", damaged, nil
}
