package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/viper"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/importer"
	"github.com/tierlora/tierlora/internal/words"
	"github.com/tierlora/tierlora/train/optimizer"
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

const optimizerPath = "training.optimizer"

// renameValues replaces values by their new names, and other programs' names of values by ours.
func renameValues(v *viper.Viper) (notes []string) {
	if name := v.GetString(optimizerPath); optimizer.Paged[name] != "" {
		to := optimizer.Paged[name]
		notes = append(notes, fmt.Sprintf("%s: %s is %s here: training.optimizer_offload moves the states of every "+
			"optimizer to host memory if they do not fit on the device", optimizerPath, name, to))
		v.Set(optimizerPath, to)
	}
	for _, path := range slices.Sorted(maps.Keys(renamedValues)) {
		if to, ok := renamedValues[path][v.GetString(path)]; ok {
			notes = append(notes, fmt.Sprintf("%s: %s is %s now; the old name still works", path,
				v.GetString(path), to))
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
func newName(path string) *Key {
	if to, ok := renamed[path]; ok {
		if k, rest := Root.Find(to); rest == "" {
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
func unknownKey(section *Key, name string) guess {
	plain := strings.ReplaceAll(strings.ToLower(name), "-", "_")
	c, known := foreign[plain]
	switch {
	case c.Key != "" && c.Say == "":
		return guess{text: fmt.Sprintf("unknown key; use %s", c.Key), meant: c.Key}
	case c.Key != "":
		return guess{text: "unknown key: " + c.Say, meant: c.Key}
	}
	if section.Child(plain) == nil { // the right name in the wrong place
		for _, k := range append(Root.Leaves(), Root.Keys...) {
			if _, gone := removed[k.Path]; k.Name != plain || gone {
				continue
			}
			if k.Path == k.Name {
				return guess{text: "unknown key; it belongs at the top level", meant: k.Path}
			}
			return guess{text: fmt.Sprintf("unknown key; use %s", k.Path), meant: k.Path}
		}
	}
	if known {
		return guess{text: "not supported: " + c.Say}
	}
	if near := words.Nearest(plain, section.Names()); near != "" {
		path := section.Child(near).Path
		return guess{text: "unknown key; the nearest is " + path, meant: path}
	}
	for _, k := range Root.Leaves() { // misspelt in the wrong place: short names are near to anything
		if words.Within(plain, []string{k.Name}, len(plain)/6) != "" {
			return guess{text: "unknown key; the nearest is " + k.Path, meant: k.Path}
		}
	}
	what := "the keys here are "
	if section.Path != "" {
		what = "the keys of " + section.Path + " are "
	}
	return guess{text: "unknown key", list: what + strings.Join(section.Names(), ", ")}
}

// KeyMeant returns the path of the key that a name stands for, here or in another program; "" = none.
func KeyMeant(name string) string {
	plain := strings.ReplaceAll(strings.ToLower(name), "-", "_")
	if k, rest := Root.Find(plain); k != Root && rest == "" && k.Kind != KindSection {
		return k.Path
	}
	if own := OwnKey(plain); own != "" {
		return own
	}
	if c := foreign[plain]; c.Say == "" && !strings.Contains(c.Key, "[]") {
		return c.Key
	}
	return ""
}

// OwnKey returns the path of the key that has this name here and the same meaning in other programs; "" = none.
func OwnKey(name string) string {
	for _, section := range []*Key{Root, Root.Child("training"), Root.Child("lora"), Root.Child("dataset")} {
		if k := section.Child(name); k != nil && k.Kind != KindSection && k.Kind != KindRows {
			return k.Path
		}
	}
	return ""
}
