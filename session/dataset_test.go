package session

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/model/hub"
)

const revision = "0123456789abcdef0123456789abcdef01234567"

// cachedData makes a data set in a cache as huggingface_hub would.
func cachedData(t *testing.T, ref string, files map[string]string) (opts hub.Options, folder string) {
	t.Helper()
	t.Setenv("HF_HUB_OFFLINE", "1")
	root := t.TempDir()
	folder = filepath.Join(root, "datasets--org--name", "snapshots", revision)
	write := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(root, "datasets--org--name", "refs", ref), revision)
	for name, text := range files {
		write(filepath.Join(folder, name), text)
	}
	return hub.Options{CacheDir: root}, folder
}

func TestFindData(t *testing.T) {
	files := map[string]string{"a/train.jsonl": `{"text":"a"}`, "a/test.jsonl": `{"text":"b"}`,
		"README.md": "---\nconfigs:\n- config_name: a\n  data_files: [{split: train, path: a/train.jsonl}, {split: test, path: [a/test.jsonl]}]\n---\n"}
	opts, folder := cachedData(t, "main", files)
	c := dataset.Default()
	c.Path = "org/name"
	c.ValSources = []dataset.Source{{Path: "org/name", Name: "a", Split: "test[:50%]", Weight: 1}, {Path: "x.jsonl", Weight: 1}}
	found, err := FindData(context.Background(), c, opts)
	if err != nil {
		t.Fatal(err)
	}
	if found.PathFolder != folder || found.ValSources[0].Folder != folder || found.ValSources[1].Folder != "" || c.ValSources[0].Folder != "" {
		t.Errorf("%+v", found)
	}
	for _, want := range []struct {
		change func(*dataset.Config)
		err    string
	}{
		{func(c *dataset.Config) { c.Path = "org/none" }, "dataset.path: find data set org/none: there is no file or folder of that name, and in the cache no "},
		{func(c *dataset.Config) { c.ValSources[0].Name = "b" }, `dataset.val_sources[0].path: find data set org/name: there is no file or folder of that name, and in the cache ` + folder + ` has no subset "b"; it has a`},
		{func(c *dataset.Config) { c.ValSources[0].Split = "dev" }, `lacks a split: there is no split "dev"; there is train, test`},
		{func(c *dataset.Config) { c.ValSources[0].Revision = "v2" }, `refs/v2, which would say the commit of "v2"`},
		{func(c *dataset.Config) { c.ValSources[1].Revision = "v2" }, `dataset.val_sources[1].path: x.jsonl is no data set of the hub, so it has no revision "v2"`},
	} {
		own := c
		own.ValSources = append([]dataset.Source{}, c.ValSources...)
		want.change(&own)
		if _, err := FindData(context.Background(), own, opts); err == nil || !strings.Contains(err.Error(), want.err) {
			t.Errorf("%v\nwant %s", err, want.err)
		}
	}
}

// TestFindDataOfPaths: what is a path stays one.
func TestFindDataOfPaths(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll("here/data", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"rows.jsonl", "data/rows.jsonl.gz", "here/data", "data/*", "./a/b", "/a/b", "a", "embedded:a/b"} {
		c := dataset.Default()
		c.Path = path
		if got, err := FindData(context.Background(), c, hub.Options{}); err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
}

// TestParquetBranch: copies in the cache are taken where main has nothing that can be read.
func TestParquetBranch(t *testing.T) {
	opts, folder := cachedData(t, "refs/convert/parquet", map[string]string{"default/train/0000.parquet": "PAR1"})
	c := dataset.Default()
	c.Path = "org/name"
	if found, err := FindData(context.Background(), c, opts); err != nil || found.PathFolder != folder {
		t.Errorf("%+v, %v", found, err)
	}
}
