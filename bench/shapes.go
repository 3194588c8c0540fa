package bench

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
)

// shapesJSON are models known by their sizes alone: what config.json says, by a name.
//
//go:embed shapes.json
var shapesJSON []byte

// Shapes returns the names of the models that can be timed on random weights, sorted.
func Shapes() []string {
	all, err := shapes()
	if err != nil {
		panic(err) // the file is embedded, and a test reads it
	}
	return slices.Sorted(maps.Keys(all))
}

func shapes() (all map[string]json.RawMessage, err error) {
	err = json.Unmarshal(shapesJSON, &all)
	return all, err
}

// Shape returns a model's configuration by its name in Shapes.
func Shape(name string) (model.Config, error) {
	all, err := shapes()
	if err != nil {
		return model.Config{}, err
	}
	text, ok := all[name]
	if !ok {
		return model.Config{}, fmt.Errorf("bench: shape %q is not one of %s", name, strings.Join(Shapes(), ", "))
	}
	return families.ParseConfig(text)
}
