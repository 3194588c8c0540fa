package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/viper"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/importer"
)

// renamed gives the new path of keys that had another name, in the same section. Files with the old name keep
// working: the value is taken, and a note says so.
var renamed = map[string]string{
	"training.decoded_weights": "training.dequantised_weights",
}

// renamedValues gives the new name of values that had another one, by key. They keep working, with a note.
var renamedValues = map[string]map[string]string{
	"dataset.pad_to": {dataset.PadLongest: dataset.PadNone},
}

// renameValues replaces values by their new names.
func renameValues(v *viper.Viper) (notes []string) {
	for _, path := range slices.Sorted(maps.Keys(renamedValues)) {
		if to, ok := renamedValues[path][v.GetString(path)]; ok {
			notes = append(notes, fmt.Sprintf("%s: %s is %s now; the old name still works", path, v.GetString(path), to))
			v.Set(path, to)
		}
	}
	return notes
}

// removed are keys that did nothing, and why. Without a value they are passed over with a note.
var removed = map[string]string{
	"dataset.template": "dataset.chat_template chooses the template of conversations",
}

// newName is the key that an old path stands for, or nil.
func newName(path string) *key {
	if to, ok := renamed[path]; ok {
		if k, rest := schema.find(to); rest == "" {
			return k
		}
	}
	return nil
}

// foreign is what the keys of other programs are here. A key is also known with the dashes of a command line.
var foreign = importer.Keys()

// guess is what an unknown key was most likely meant as.
type guess struct {
	text  string
	meant string // our key, "" where there is none
	list  string // all keys of the section, where nothing is near
}

// unknownKey is what is said about a name that the section does not have.
func unknownKey(section *key, name string) guess {
	plain := strings.ReplaceAll(strings.ToLower(name), "-", "_")
	c, known := foreign[plain]
	switch {
	case c.Key != "" && c.Say == "":
		return guess{text: fmt.Sprintf("is %s here", c.Key), meant: c.Key}
	case c.Key != "":
		return guess{text: "is not a key here: " + c.Say, meant: c.Key}
	}
	if section.child(plain) == nil { // the right name in the wrong place
		for _, k := range append(schema.leaves(), schema.keys...) {
			if _, gone := removed[k.path]; k.name != plain || gone {
				continue
			}
			if k.path == k.name {
				return guess{text: "stands at the top level here", meant: k.path}
			}
			return guess{text: fmt.Sprintf("is %s here", k.path), meant: k.path}
		}
	}
	if known {
		return guess{text: "has no counterpart here: " + c.Say}
	}
	if near := nearest(plain, section.names()); near != "" {
		path := section.child(near).path
		return guess{text: "unknown key; the nearest is " + path, meant: path}
	}
	for _, k := range schema.leaves() { // misspelt in the wrong place: short names are near to anything
		if within(plain, []string{k.name}, len(plain)/6) != "" {
			return guess{text: "unknown key; the nearest is " + k.path, meant: k.path}
		}
	}
	what := "the keys here are "
	if section.path != "" {
		what = "the keys of " + section.path + " are "
	}
	return guess{text: "unknown key", list: what + strings.Join(section.names(), ", ")}
}

// nearest is the name with the fewest edits to s, or "" when none is near. Of equally near ones it is the first.
func nearest(s string, names []string) string { return within(s, names, max(1, len(s)/3)) }

// within is the nearest name that takes at most so many edits and keeps a letter of s.
func within(s string, names []string, edits int) string {
	best, least := "", edits+1
	for _, n := range names {
		if d := editDistance(s, n); d < least && d < max(len(s), len(n)) {
			best, least = n, d
		}
	}
	return best
}

// editDistance counts insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
