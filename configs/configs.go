// Package configs carries the runnable configurations and the small model and data set that some of them use, so
// that the program works where nothing but its binary is.
package configs

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

//go:embed *.yaml examples/*.yaml assets
var files embed.FS

// Names lists the configurations, sorted, without their ".yaml".
func Names() []string { return named("*.yaml") }

// Examples lists the example configurations, one for a common task each, sorted, as "examples/NAME".
func Examples() []string { return named("examples/*.yaml") }

func named(pattern string) []string {
	entries, err := fs.Glob(files, pattern)
	if err != nil {
		panic(err) // the patterns are constants
	}
	for i, e := range entries {
		entries[i] = strings.TrimSuffix(e, ".yaml")
	}
	return entries
}

// Read gives the text of a configuration; ok is false where there is none of that name. ".yaml" may be left out.
func Read(name string) (text []byte, ok bool) {
	text, err := files.ReadFile(strings.TrimSuffix(name, ".yaml") + ".yaml")
	return text, err == nil
}

// Model is the folder of an embedded model: what "embedded:<name>" stands for as a base model.
func Model(name string) (fs.FS, error) {
	dir := path.Join("assets", name)
	if info, err := fs.Stat(files, path.Join(dir, "config.json")); err != nil || info.IsDir() || strings.Contains(name, "/") {
		return nil, fmt.Errorf("there is no embedded model %q; there is %s", name, list(func(e fs.DirEntry) bool { return e.IsDir() }))
	}
	return fs.Sub(files, dir)
}

// Data is a file system that holds the embedded data set, or reference curve (.json), under its name: what
// "embedded:<name>" stands for as the path of one.
func Data(name string) (fs.FS, error) {
	isData := func(e fs.DirEntry) bool {
		name := strings.TrimSuffix(e.Name(), packedEnding)
		return strings.HasSuffix(name, ".jsonl") || strings.HasSuffix(name, ".jsonl.gz")
	}
	what := "data set"
	if strings.HasSuffix(name, ".json") {
		what, isData = "reference curve", func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".json") }
	}
	assets, err := fs.Sub(files, "assets")
	if err != nil {
		return nil, err
	}
	assets = unpacking{assets}
	if info, err := fs.Stat(assets, name); err != nil || info.IsDir() || strings.Contains(name, "/") {
		return nil, fmt.Errorf("there is no embedded %s %q; there is %s", what, name, list(isData))
	}
	return assets, nil
}

// list names the assets of one kind.
func list(kind func(fs.DirEntry) bool) string {
	entries, err := files.ReadDir("assets")
	if err != nil {
		panic(err) // embedded at build time
	}
	var names []string
	for _, e := range entries {
		if kind(e) {
			names = append(names, strings.TrimSuffix(e.Name(), packedEnding))
		}
	}
	return strings.Join(names, ", ")
}
