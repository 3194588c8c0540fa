package hub

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tierlora/tierlora/dataset/source"
)

// chooseSplit is what a run asks for: a subset and a split.
func chooseSplit(subset, split string) Choose {
	return func(names []string, card []byte) (wanted []string, err error) {
		files, err := source.Subset(names, card, subset)
		if err != nil {
			return nil, err
		}
		if files, err = source.Pick(files, split); err != nil {
			return nil, err
		}
		for _, f := range files {
			wanted = append(wanted, f.Path)
		}
		return wanted, nil
	}
}

const gsmCard = "---\nlicense: mit\nconfigs:\n- config_name: main\n  default: true\n  data_files:\n  - split: " +
	"train\n    path: main/train-*\n" +
	"  - split: test\n    path: main/test-*\n- config_name: socratic\n  data_files:\n  - split: train\n    path: " +
	"socratic/train-*\n---\n# GSM8K\n"

func gsm() map[string][]byte {
	return map[string][]byte{
		"README.md": []byte(gsmCard), ".gitattributes": []byte("x"),
		"main/train-00000-of-00002.parquet": []byte("PAR1 a"), "main/train-00001-of-00002.parquet": []byte("PAR1 b"),
		"main/test-00000-of-00001.parquet": []byte("PAR1 c"), "socratic/train-00000-of-00001.parquet": []byte("PAR1 d"),
	}
}

// dataset asks the fake hub, with retries that do not wait.
func (h *fakeHub) askDataset(opts Options, choose Choose) (string, error) {
	opts.pause = time.Millisecond
	return Dataset(context.Background(), "org/name", opts, choose)
}

func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestDatasetDownload(t *testing.T) {
	h := (&fakeHub{dataset: true, files: gsm(), token: "hf_good",
		cut: map[string]int{"main/train-00001-of-00002.parquet": 2}}).start(t)
	t.Setenv("HF_TOKEN", "hf_good")
	if _, err := h.askDataset(Options{}, chooseSplit("", "train")); err == nil || !strings.Contains(err.Error(),
		"pass --download, fetch it with `hf download --repo-type dataset org/name`") {
		t.Errorf("without consent: %v", err)
	}
	if lines := h.noted(""); lines != nil {
		t.Fatalf("the network was asked without consent: %q", lines)
	}
	dir, err := h.askDataset(Options{Download: true}, chooseSplit("", "train"))
	if err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(os.Getenv("HF_HOME"), "hub", "datasets--org--name", "snapshots", commit)
	if dir != want {
		t.Errorf("folder %s, want %s", dir, want)
	}
	if got := filesIn(t, dir); !slices.Equal(got, []string{"README.md", "main/train-00000-of-00002.parquet",
		"main/train-00001-of-00002.parquet"}) {
		t.Errorf("files %q: only those of the split are wanted", got)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "main/train-00001-of-00002.parquet")); err != nil ||
		string(got) != "PAR1 b" {
		t.Errorf("%q, %v", got, err)
	}
	before := len(h.noted(""))
	t.Setenv("HF_HUB_OFFLINE", "1")
	if _, err := h.askDataset(Options{}, chooseSplit("main", "train")); err != nil || len(h.noted("")) != before {
		t.Errorf("from the cache: %v", err)
	}
	if _, err := h.askDataset(Options{Download: true}, chooseSplit("socratic", "train")); err == nil ||
		!strings.Contains(err.Error(), "unset HF_HUB_OFFLINE, fetch it") {
		t.Errorf("offline: %v", err)
	}
	t.Setenv("HF_HUB_OFFLINE", "")
	if _, err := h.askDataset(Options{Download: true}, chooseSplit("socratic", "train")); err != nil {
		t.Errorf("another subset: %v", err)
	}
}

func TestDatasetBranch(t *testing.T) {
	files := map[string][]byte{"default/train/0000.parquet": []byte("PAR1"),
		"default/partial-test/0000.parquet": []byte("PAR1")}
	h := (&fakeHub{dataset: true, files: files, revision: source.ParquetRevision}).start(t)
	for _, split := range []string{"train", "test"} {
		if _, err := h.askDataset(Options{Download: true, Revision: source.ParquetRevision},
			chooseSplit("", split)); err != nil {
			t.Error(err)
		}
	}
	ref := filepath.Join(os.Getenv("HF_HOME"), "hub", "datasets--org--name", "refs", "refs", "convert", "parquet")
	if got, err := os.ReadFile(ref); err != nil || string(got) != commit {
		t.Errorf("%q, %v", got, err)
	}
}

func TestDatasetRefusals(t *testing.T) {
	loose := map[string][]byte{"train.csv": []byte("text\na\n"), "train.jsonl": []byte("{}")}
	scripts := map[string][]byte{"name.py": []byte("print()"), "README.md": []byte("no head")}
	lacking := gsm()
	delete(lacking, "main/train-00001-of-00002.parquet")
	for _, c := range []struct {
		name   string
		hub    *fakeHub
		choose Choose
		want   string
	}{
		{"no token", &fakeHub{dataset: true, files: gsm(), token: "hf_good"}, chooseSplit("", "train"),
			"answers 401 Unauthorized: the data set does not exist or needs a token"},
		{"unknown revision", &fakeHub{dataset: true, files: gsm(), revision: "other"}, chooseSplit("", "train"),
			"404 Not Found: no such data set, revision or file"},
		{"a model", &fakeHub{files: smallModel()}, chooseSplit("", "train"),
			"404 Not Found: no such data set, revision or file"},
		{"unknown subset", &fakeHub{dataset: true, files: gsm()}, chooseSplit("plain", "train"),
			`the revision main has no subset "plain"; it has main, socratic`},
		{"unknown split", &fakeHub{dataset: true, files: gsm()}, chooseSplit("main", "dev"),
			`there is no split "dev"; there is train, test`},
		{"only a script", &fakeHub{dataset: true, files: scripts}, chooseSplit("", "train"),
			"the revision main holds no data file (.arrow, .csv, .json,"},
		{"two kinds", &fakeHub{dataset: true, files: loose}, chooseSplit("", "train"),
			"holds files of several kinds (train.jsonl, train.csv): name those to read, such as *.jsonl"},
		{"a shard is missing", &fakeHub{dataset: true, files: lacking}, chooseSplit("", "train"),
			"lacks main/train-00001-of-00002.parquet: main/train-00000-of-00002.parquet is one of 2"},
		{"parent folder in the list", &fakeHub{dataset: true, files: gsm(), names: []string{"../train.csv"}},
			chooseSplit("", "train"), `the name "../train.csv", which leads out of its folder`},
		{"a choice that is not listed", &fakeHub{dataset: true, files: gsm()},
			func([]string, []byte) ([]string, error) {
				return []string{"x"}, nil
			}, `the hub's file list lacks "x"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.hub.start(t)
			_, err := c.hub.askDataset(Options{Download: true}, c.choose)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(),
				"download data set org/name: ") {
				t.Errorf("error %v, expected %q", err, c.want)
			}
			if _, err := os.Stat(filepath.Join(os.Getenv("HF_HOME"), "hub", "datasets--org--name", "refs",
				"main")); err == nil {
				t.Error("refs/main was written")
			}
		})
	}
	(&fakeHub{}).start(t)
	for _, name := range []string{"squad", "a/b/c", "./a/b", "org/..", "/org/name"} {
		if _, err := Dataset(context.Background(), name, Options{}, chooseSplit("", "train")); err == nil ||
			!strings.Contains(err.Error(), "is no hub name") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := Dataset(context.Background(), "org/name", Options{}, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("not in the cache: %v", err)
	}
}
