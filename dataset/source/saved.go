package source

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
)

// Files that save_to_disk of the library datasets writes beside its Arrow files: state.json in the folder of a Dataset,
// and dataset_dict.json in the folder of a DatasetDict, which contains the folder of a Dataset for each split.
const (
	stateFile = "state.json"
	infoFile  = "dataset_info.json"
	dictFile  = "dataset_dict.json"
	maxState  = 16 << 20
)

// savedState holds what state.json records about the rows; the rest of the file is about the object in Python.
type savedState struct {
	Files   []savedFile `json:"_data_files"`
	Indices []savedFile `json:"_indices_data_files"` // of datasets before 1.9
}

type savedFile struct {
	Name string `json:"filename"`
}

// findSaved lists the files of a folder that save_to_disk wrote; nil for other folders. Other Arrow files in it are a
// cache of the library datasets.
func findSaved(fsys fs.FS, folder string) ([]File, error) {
	var dict struct {
		Splits []string `json:"splits"`
	}
	switch is, err := readState(fsys, path.Join(folder, dictFile), &dict); {
	case err != nil:
		return nil, err
	case !is:
		return findSavedSplit(fsys, folder, DefaultSplit)
	}
	if len(dict.Splits) == 0 || len(dict.Splits) > maxFiles {
		return nil, fmt.Errorf("the folder %s has a %s that names %d splits", folder, dictFile, len(dict.Splits))
	}
	var all []File
	for _, split := range dict.Splits {
		if !isPlainName(split) {
			return nil, fmt.Errorf("the folder %s has a %s with the split %q, which is no name of a folder", folder,
				dictFile, split)
		}
		files, err := findSavedSplit(fsys, path.Join(folder, split), split)
		if err != nil {
			return nil, err
		}
		if files == nil {
			return nil, fmt.Errorf("the folder %s lacks %s: %s names the split", folder, path.Join(split, stateFile),
				dictFile)
		}
		if all = append(all, files...); len(all) > maxFiles {
			return nil, fmt.Errorf("%s holds more than %d files", folder, maxFiles)
		}
	}
	return all, nil
}

// findSavedSplit lists the files of one Dataset; nil for other folders.
func findSavedSplit(fsys fs.FS, folder, split string) ([]File, error) {
	if _, err := fs.Stat(fsys, path.Join(folder, infoFile)); err != nil {
		return nil, nil // a lone state.json is another program's
	}
	var state savedState
	if is, err := readState(fsys, path.Join(folder, stateFile), &state); err != nil || !is || state.Files == nil {
		return nil, err
	}
	switch {
	case len(state.Indices) > 0:
		return nil, fmt.Errorf("the folder %s holds rows that a file of indices picks: load it with datasets and "+
			"save it again with flatten_indices().save_to_disk()", folder)
	case len(state.Files) == 0:
		return nil, fmt.Errorf("the folder %s names no file of rows in its %s", folder, stateFile)
	case len(state.Files) > maxFiles:
		return nil, fmt.Errorf("%s holds more than %d files", folder, maxFiles)
	}
	var files []File
	known := map[string]bool{}
	for _, f := range state.Files {
		name := path.Join(folder, f.Name)
		if !isPlainName(f.Name) {
			return nil, fmt.Errorf("the folder %s has a %s with the file %q, which is no name in the folder", folder,
				stateFile, f.Name)
		}
		if _, err := fs.Stat(fsys, name); err != nil {
			return nil, fmt.Errorf("the folder %s lacks a file that its %s names: %w", folder, stateFile, err)
		}
		if !known[name] {
			files = append(files, File{name, split})
		}
		known[name] = true
	}
	return files, nil
}

// isPlainName reports whether a name is that of an entry in a folder.
func isPlainName(name string) bool {
	return fs.ValidPath(name) && name != "." && path.Base(name) == name
}

// readState reads a small JSON file; false if it does not exist.
func readState(fsys fs.FS, name string, to any) (bool, error) {
	info, err := fs.Stat(fsys, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	case info.Size() > maxState:
		return false, fmt.Errorf("%s has more than %s", name, byteSize(maxState))
	}
	text, err := regular.ReadFS(fsys, name)
	if err != nil {
		return false, err
	}
	if err := jsonerr.Unmarshal(text, to); err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	return true, nil
}
