package source

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// CardName is the file of a hub data set that can assign files to subsets and splits.
const CardName = "README.md"

const (
	maxCard    = 4 << 20
	maxSubsets = 10_000
)

// ParquetRevision is the branch on which the hub keeps Parquet copies of a data set, in a folder for each subset and
// split.
const ParquetRevision = "refs/convert/parquet"

// subset is a subset (configuration) of a hub data set.
type subset struct {
	name  string
	main  bool
	files []cardFiles
}

// cardFiles holds patterns for the files of a split.
type cardFiles struct {
	split    string
	patterns []string
}

// FindSubset lists the files of a subset in the folder of a hub data set. name "" means the only subset, or the default
// one.
func FindSubset(fsys fs.FS, folder, name string) ([]File, error) {
	names, err := walk(fsys, folder)
	if err != nil {
		return nil, err
	}
	for i := range names {
		names[i] = strings.TrimPrefix(strings.TrimPrefix(names[i], folder), "/")
	}
	card, err := readCard(fsys, path.Join(folder, CardName))
	if err != nil {
		return nil, err
	}
	files, err := Subset(names, card, name)
	if err != nil {
		return nil, fmt.Errorf("the folder %s %w", folder, err)
	}
	for i := range files {
		files[i].Path = path.Join(folder, files[i].Path)
	}
	return files, nil
}

func readCard(fsys fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxCard:
		return nil, fmt.Errorf("%s is no file of at most %s", name, byteSize(maxCard))
	}
	return fs.ReadFile(fsys, name)
}

// Subset selects the files of a subset among the files of a hub data set, as the library datasets does: those that the
// head of its card names, or a folder of that name, or those whose names identify it.
func Subset(names []string, card []byte, name string) ([]File, error) {
	subsets, err := parseCard(card)
	if err != nil {
		return nil, err
	}
	if len(subsets) > 0 {
		return cardSubset(names, subsets, name)
	}
	folders := splitFolders(names)
	if len(folders) == 0 {
		if name != "" && name != "default" {
			return nil, fmt.Errorf("has no subset %q: it has one, without a name", name)
		}
		return Split(names)
	}
	var known []string
	for _, f := range folders {
		if !slices.Contains(known, f.subset) {
			known = append(known, f.subset)
		}
	}
	if name, err = pickSubset(known, name, ""); err != nil {
		return nil, err
	}
	var files []File
	for _, f := range folders {
		if f.subset == name {
			files = append(files, f.File)
		}
	}
	return files, nil
}

type folderFile struct {
	subset string
	File
}

// splitFolders reads the names on the Parquet branch: subset/split/0000.parquet, or subset/partial-split if the copy is
// incomplete. It returns none if a data file has another name.
func splitFolders(names []string) (files []folderFile) {
	for _, name := range names {
		if containerOf(name) == "" || slices.Contains(notData, path.Base(name)) {
			continue
		}
		parts := strings.Split(name, "/")
		if len(parts) != 3 || strings.Trim(strings.TrimSuffix(parts[2], ".parquet"), "0123456789") != "" {
			return nil
		}
		files = append(files, folderFile{parts[0], File{name, strings.TrimPrefix(parts[1], "partial-")}})
	}
	return files
}

func cardSubset(names []string, subsets []subset, name string) ([]File, error) {
	var known []string
	preferred := ""
	for _, s := range subsets {
		known = append(known, s.name)
		if s.main && preferred == "" {
			preferred = s.name
		}
	}
	name, err := pickSubset(known, name, preferred)
	if err != nil {
		return nil, err
	}
	chosen := subsets[slices.Index(known, name)]
	var files []File
	for _, group := range chosen.files {
		for _, file := range names {
			f := File{file, group.split}
			if slices.ContainsFunc(group.patterns, func(p string) bool { return cardMatches(p, file) }) &&
				!slices.Contains(files, f) {
				files = append(files, f)
			}
		}
	}
	if len(files) == 0 { // most downloads have only a part, such as one split
		return nil, fmt.Errorf("has no file that its card names for %q", name)
	}
	for _, f := range files {
		if containerOf(f.Path) == "" {
			return nil, fmt.Errorf("has the rows of %q in %s: %w", name, f.Path, &NoDataError{})
		}
	}
	return files, checkShards(files)
}

func cardMatches(pattern, name string) bool {
	pattern = strings.TrimPrefix(pattern, "./")
	if pattern == name || !IsPattern(pattern) && strings.HasPrefix(name, strings.TrimSuffix(pattern, "/")+"/") {
		return true
	}
	return matches(strings.Split(pattern, "/"), strings.Split(name, "/"))
}

// pickSubset returns the subset to use among several known ones.
func pickSubset(known []string, name, preferred string) (string, error) {
	switch {
	case name != "":
		if slices.Contains(known, name) {
			return name, nil
		}
		return "", fmt.Errorf("has no subset %q; it has %s", name, list(known))
	case preferred != "":
		return preferred, nil
	case len(known) == 1:
		return known[0], nil
	case slices.Contains(known, "default"):
		return "default", nil
	}
	return "", fmt.Errorf("has several subsets: set name to one of %s", list(known))
}

func list(names []string) string {
	const shown = 20
	if len(names) > shown {
		return strings.Join(names[:shown], ", ") + fmt.Sprintf(" and %d more", len(names)-shown)
	}
	return strings.Join(names, ", ")
}

// parseCard reads `configs` in the YAML head of a card; nil if there is none.
func parseCard(card []byte) (subsets []subset, err error) {
	text := strings.ReplaceAll(string(card), "\r\n", "\n")
	head, ok := strings.CutPrefix(text, "---\n")
	if !ok || len(card) > maxCard {
		return nil, nil
	}
	head, _, ok = strings.Cut(head, "\n---")
	if !ok {
		return nil, nil
	}
	defer func() {
		if r := recover(); r != nil { // hostile text can violate the parser's own invariants
			subsets, err = nil, fmt.Errorf("has a card (%s) whose head is no YAML: %v", CardName, r)
		}
	}()
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(head), &root); err != nil {
		return nil, fmt.Errorf("has a card (%s) whose head is no YAML: %v", CardName,
			strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(root.Content) == 0 {
		return nil, nil
	}
	configs := child(root.Content[0], "configs")
	if configs == nil || configs.Kind != yaml.SequenceNode {
		return nil, nil
	}
	for i, c := range configs.Content {
		if i == maxSubsets {
			return nil, fmt.Errorf("has a card (%s) with more than %d subsets", CardName, maxSubsets)
		}
		s := subset{name: textOf(child(c, "config_name")), main: textOf(child(c, "default")) == "true"}
		if s.name == "" {
			s.name = "default"
		}
		if s.files = cardData(child(c, "data_files"), textOf(child(c, "data_dir"))); len(s.files) > 0 {
			subsets = append(subsets, s)
		}
	}
	return subsets, nil
}

// cardData reads data_files: a pattern, a list of patterns, or a list of {split, path}.
func cardData(n *yaml.Node, folder string) (files []cardFiles) {
	join := func(patterns []string) []string {
		if folder != "" {
			for i := range patterns {
				patterns[i] = path.Join(folder, patterns[i])
			}
		}
		return patterns
	}
	switch {
	case n == nil && folder != "":
		return []cardFiles{{DefaultSplit, []string{folder + "/**"}}}
	case n == nil:
		return nil
	case n.Kind == yaml.ScalarNode:
		return []cardFiles{{DefaultSplit, join([]string{n.Value})}}
	case n.Kind != yaml.SequenceNode:
		return nil
	}
	var loose []string
	for _, item := range n.Content {
		if item.Kind == yaml.ScalarNode {
			loose = append(loose, item.Value)
			continue
		}
		split, at := textOf(child(item, "split")), child(item, "path")
		if split == "" || at == nil {
			continue
		}
		patterns := []string{at.Value}
		if at.Kind == yaml.SequenceNode {
			patterns = nil
			for _, p := range at.Content {
				patterns = append(patterns, p.Value)
			}
		}
		files = append(files, cardFiles{split, join(patterns)})
	}
	if len(loose) > 0 {
		files = append(files, cardFiles{DefaultSplit, join(loose)})
	}
	return files
}

// child returns the value of a mapping's key, nil if there is none.
func child(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

func textOf(n *yaml.Node) string {
	if n == nil {
		return ""
	}
	return n.Value
}
