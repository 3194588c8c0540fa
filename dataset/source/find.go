package source

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxFiles bounds the files of a folder or a pattern.
const maxFiles = 100_000

// File is one data file, and the split that its rows belong to.
type File struct{ Path, Split string }

// DefaultSplit is the split of files whose names identify none.
const DefaultSplit = "train"

// Find lists the data files of a path, sorted. The path is a file, a pattern such as data/*.jsonl or data/**/*.parquet,
// or a folder, whose names of folders and files identify the splits as in the library datasets.
func Find(fsys fs.FS, name string) ([]File, error) {
	info, err := fs.Stat(fsys, name)
	switch {
	case err == nil && info.IsDir():
		return findFolder(fsys, name)
	case err != nil && IsPattern(name):
		return findPattern(fsys, name)
	}
	return []File{{name, DefaultSplit}}, nil // opening the file reports what is wrong with it
}

// IsPattern reports whether a path is a pattern for several files.
func IsPattern(name string) bool { return strings.ContainsAny(name, "*?[") }

func findPattern(fsys fs.FS, pattern string) ([]File, error) {
	if _, err := path.Match(strings.ReplaceAll(pattern, "**", "*"), ""); err != nil {
		return nil, fmt.Errorf("the pattern %s has a bracket that is not closed", pattern)
	}
	root := "."
	for i, part := range strings.Split(pattern, "/") {
		if IsPattern(part) {
			break
		}
		if i == 0 {
			root = part
		} else {
			root += "/" + part
		}
	}
	if strings.HasPrefix(pattern, "/") && !strings.HasPrefix(root, "/") {
		root = "/"
	}
	all, err := walk(fsys, root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var files []File
	for _, name := range all {
		if matches(strings.Split(pattern, "/"), strings.Split(name, "/")) {
			files = append(files, File{name, DefaultSplit})
		}
	}
	if len(files) == 0 {
		return nil, noMatch(pattern)
	}
	return files, nil
}

// noMatch is the error of a pattern without matching files. It is fs.ErrNotExist.
type noMatch string

func (n noMatch) Error() string        { return "no file matches " + string(n) }
func (n noMatch) Is(target error) bool { return target == fs.ErrNotExist }

// matches compares a name with a pattern part by part; ** stands for any number of parts. Only the last ** is ever
// retried, so the time is bounded by the product of the lengths.
func matches(pattern, name []string) bool {
	p, n, star, from := 0, 0, -1, 0
	for n < len(name) {
		if p < len(pattern) && pattern[p] == "**" {
			star, from = p, n
			p++
			continue
		}
		if p < len(pattern) {
			if ok, err := path.Match(pattern[p], name[n]); ok && err == nil {
				p, n = p+1, n+1
				continue
			}
		}
		if star < 0 {
			return false
		}
		from++
		p, n = star+1, from
	}
	for p < len(pattern) && pattern[p] == "**" {
		p++
	}
	return p == len(pattern)
}

// walk lists the files below a folder, sorted, without hidden ones and folders like "__pycache__".
func walk(fsys fs.FS, root string) ([]string, error) {
	var names []string
	err := fs.WalkDir(fsys, root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if name != root && (strings.HasPrefix(base, ".") || entry.IsDir() && strings.HasPrefix(base, "__")) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if entry.IsDir() {
			return nil
		}
		if names = append(names, name); len(names) > maxFiles {
			return fmt.Errorf("%s holds more than %d files", root, maxFiles)
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

func findFolder(fsys fs.FS, folder string) ([]File, error) {
	if files, err := findSaved(fsys, folder); files != nil || err != nil {
		return files, err
	}
	all, err := walk(fsys, folder)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(all))
	for i, name := range all {
		names[i] = strings.TrimPrefix(strings.TrimPrefix(name, folder), "/")
	}
	files, err := Split(names)
	if err != nil {
		return nil, fmt.Errorf("the folder %s %w", folder, err)
	}
	for i := range files {
		files[i].Path = path.Join(folder, files[i].Path)
	}
	return files, nil
}

// notData lists files without rows despite their endings: those beside a data set and those of a model.
var notData = strings.Fields("config.json dataset_info.json dataset_infos.json dataset_dict.json state.json " +
	"package.json requirements.txt LICENSE.txt README.txt robots.txt tokenizer.json tokenizer_config.json " +
	"special_tokens_map.json added_tokens.json vocab.json generation_config.json chat_template.json " +
	"model.safetensors.index.json adapter_config.json trainer_state.json")

// splitWords are the names of folders and files that identify a split, in the order of the library datasets.
var splitWords = []struct {
	split string
	words *regexp.Regexp
}{
	{"train", word("train|training")},
	{"validation", word("validation|valid|dev|val")},
	{"test", word("test|testing|eval|evaluation")},
}

func word(words string) *regexp.Regexp {
	return regexp.MustCompile(`(?:^|[-._ 0-9])(?:` + words + `)(?:$|[-._ 0-9])`)
}

var (
	shard = regexp.MustCompile(
		`^(?:.*/)?data/([A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*)-[0-9]{5}-of-[0-9]{5}[^/]*\.[^/]*$`)
	shardNumbers = regexp.MustCompile(`-([0-9]{5})-of-([0-9]{5})`)
)

// Split returns the data files among names, relative to the folder of their data set, with their splits. The splits are
// identified by shard names (data/train-00000-of-00002.parquet), else by folders, else by file names; else all files
// belong to the split train.
func Split(names []string) ([]File, error) {
	var data []string
	kinds := map[string]string{} // ending -> first file
	for _, name := range names {
		kind := containerOf(name)
		// from a map call of the library datasets
		if kind == "" || slices.Contains(notData, path.Base(name)) ||
			kind == inArrow && strings.HasPrefix(path.Base(name), "cache-") {
			continue
		}
		data = append(data, name)
		if kinds[kind] == "" {
			kinds[kind] = name
		}
	}
	if len(data) == 0 {
		return nil, &NoDataError{}
	}
	if len(kinds) > 1 {
		var shown []string
		for _, kind := range []string{inJSON, inCSV, inTSV, inText, inParquet, inArrow} {
			if kinds[kind] != "" {
				shown = append(shown, kinds[kind])
			}
		}
		return nil, fmt.Errorf("holds files of several kinds (%s): name those to read, such as *%s",
			strings.Join(shown, ", "), path.Ext(shown[0]))
	}
	slices.Sort(data)
	for _, splitOf := range []func(name string) string{splitOfShard, splitOfFolder, splitOfName} {
		var files []File
		for _, name := range data {
			if split := splitOf(name); split != "" {
				files = append(files, File{name, split})
			}
		}
		if len(files) > 0 {
			return files, checkShards(files)
		}
	}
	files := make([]File, len(data))
	for i, name := range data {
		files[i] = File{name, DefaultSplit}
	}
	return files, checkShards(files)
}

// NoDataError means that none of the files can contain rows.
type NoDataError struct{}

func (*NoDataError) Error() string {
	return fmt.Sprintf("holds no data file (%s, also with .gz or .zst)", strings.Join(Endings(), ", "))
}

// IsDataName reports whether a name ends like that of a data file.
func IsDataName(name string) bool { return containerOf(name) != "" }

// Endings returns the file name endings of data files, sorted.
func Endings() []string {
	var all []string
	for ending := range endings {
		all = append(all, ending)
	}
	slices.Sort(all)
	return all
}

func splitOfShard(name string) string {
	if m := shard.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return ""
}

func splitOfFolder(name string) string {
	parts := strings.Split(path.Dir(name), "/")
	for i := len(parts) - 1; i >= 0; i-- {
		if split := splitNamed(parts[i]); split != "" {
			return split
		}
	}
	return ""
}

func splitOfName(name string) string { return splitNamed(path.Base(name)) }

func splitNamed(text string) string {
	for _, s := range splitWords {
		if s.words.MatchString(text) {
			return s.split
		}
	}
	return ""
}

// checkShards returns an error if a shard is missing: a file named 00001-of-00003 needs its siblings.
func checkShards(files []File) error {
	have := map[string]bool{}
	for _, f := range files {
		have[f.Path] = true
	}
	checked := map[string]bool{}
	for _, f := range files {
		m := shardNumbers.FindStringSubmatchIndex(f.Path)
		if m == nil {
			continue
		}
		before, behind, number, of := f.Path[:m[2]], f.Path[m[3]:], f.Path[m[2]:m[3]], f.Path[m[4]:m[5]]
		n, _ := strconv.Atoi(of) // five digits
		if checked[before+"*"+behind] || number >= of {
			continue
		}
		checked[before+"*"+behind] = true
		for i := range n {
			if sibling := fmt.Sprintf("%s%05d%s", before, i, behind); !have[sibling] {
				return fmt.Errorf("lacks %s: %s is one of %d", sibling, f.Path, n)
			}
		}
	}
	return nil
}

// Splits returns the names of the splits of files, in the order of the files.
func Splits(files []File) []string {
	var names []string
	for _, f := range files {
		if !slices.Contains(names, f.Split) {
			names = append(names, f.Split)
		}
	}
	return names
}

// ErrNoSplit marks errors about files without the requested split.
var ErrNoSplit = errors.New("there is no split")

// Pick returns the files of one split, or of all splits.
func Pick(files []File, split string) ([]File, error) {
	if split == AllSplits {
		return files, nil
	}
	var picked []File
	for _, f := range files {
		if f.Split == split {
			picked = append(picked, f)
		}
	}
	if len(picked) == 0 {
		return nil, fmt.Errorf("%w %q; there is %s", ErrNoSplit, split, strings.Join(Splits(files), ", "))
	}
	return picked, nil
}
