package model_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
)

// checkReleases reads a file of config.json files, each with a key added that no release has, and compares; refused is
// what is said of that key. also sees each file that was read.
func checkReleases(t *testing.T, file string, want []model.Config, key, refused string, also func(name, text string,
	got model.Config)) {
	t.Helper()
	var all []struct {
		Name, Source string
		Config       json.RawMessage
	}
	golden.JSON(t, "testdata/"+file, &all)
	if len(all) != len(want) {
		t.Fatalf("%d releases, want %d", len(all), len(want))
	}
	for i, r := range all {
		got, err := families.ParseConfig(r.Config)
		if err != nil {
			t.Errorf("%s, %s: %v", r.Name, r.Source, err)
		} else if !reflect.DeepEqual(got, want[i]) {
			t.Errorf("%s, %s:\n%+v, want\n%+v", r.Name, r.Source, got, want[i])
		}
		// A key that a new release brings is refused by name.
		text := strings.Replace(string(r.Config), "{", "{"+key+", ", 1)
		if _, err := families.ParseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), refused) {
			t.Errorf("%s with %s: %v", r.Name, key, err)
		}
		if also != nil {
			also(r.Name, string(r.Config), got)
		}
	}
}
