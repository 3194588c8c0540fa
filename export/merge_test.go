package export

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/golden"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// trained is the folder of a small adapter of stories260K.
func trained(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{adapter.ConfigFile, adapter.WeightsFile} {
		data := golden.ReadFile(t, golden.Path(t, "lora_grad/lora_qv"), name)
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// spoiled is stories260K whose last tensor has a number that is NaN.
func spoiled(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(golden.StoriesDir(t))); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, weights.SingleFile)
	data := golden.ReadFile(t, path)
	copy(data[len(data)-4:], []byte{0, 0, 0xc0, 0x7f})
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// entries are the names in a folder, those of temporary files too.
func entries(t *testing.T, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// endsAfter is a context that counts as cancelled after so many looks at it.
type endsAfter struct {
	context.Context
	looks *int
}

func (e endsAfter) Err() error {
	if *e.looks--; *e.looks < 0 {
		return context.Canceled
	}
	return nil
}

// TestFailedMergeLeavesNothing: whatever ends a merge, the folder stays as it was and the next merge into it succeeds.
func TestFailedMergeLeavesNothing(t *testing.T) {
	from, model := trained(t), golden.StoriesDir(t)
	looks := 5
	for name, fail := range map[string]func(out string) error{
		"cancelled in the middle": func(out string) error {
			_, err := Merge(endsAfter{context.Background(), &looks}, MergeOptions{Model: model, Adapters: One(from),
				Out: out}, session.Env{})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
			return err
		},
		"a weight that is not finite": func(out string) error {
			_, err := Merge(context.Background(), MergeOptions{Model: spoiled(t), Adapters: One(from), Out: out},
				session.Env{})
			if err == nil || !strings.Contains(err.Error(),
				"the base model's tensor model.norm.weight has NaN at element 63 of [64]: get the model again") {
				t.Errorf("the error does not name the tensor: %v", err)
			}
			return err
		},
	} {
		for _, there := range []bool{false, true} {
			above := t.TempDir()
			out := filepath.Join(above, "merged")
			want := []string{}
			if there { // with a file of the user's
				want = []string{"merged"}
				if err := os.MkdirAll(out, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(out, "README"), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			looks = 5
			if err := fail(out); err == nil {
				t.Fatalf("%s: the merge succeeded", name)
			}
			if got := entries(t, above); strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("%s: the folder above holds %q, want %q", name, got, want)
			}
			if there {
				if got := entries(t, out); len(got) != 1 {
					t.Errorf("%s: the folder holds %q", name, got)
				}
			}
			if _, err := Merge(context.Background(), MergeOptions{Model: model, Adapters: One(from), Out: out},
				session.Env{}); err != nil {
				t.Errorf("%s: the next merge: %v", name, err)
			}
		}
	}
}

// TestMergeAfterAKill: a merge that was killed while it moved its files into a folder leaves some of them there.
func TestMergeAfterAKill(t *testing.T) {
	from, model, out := trained(t), golden.StoriesDir(t), t.TempDir()
	for _, name := range []string{"config.json", "tokenizer.json"} {
		if err := os.WriteFile(filepath.Join(out, name), golden.ReadFile(t, model, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Merge(context.Background(), MergeOptions{Model: model, Adapters: One(from), Out: out},
		session.Env{}); err != nil {
		t.Errorf("the merge after it: %v", err)
	}
	other, own := t.TempDir(), []byte(`{"of": "another model"}`)
	path := filepath.Join(other, "config.json")
	if err := os.WriteFile(path, own, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Merge(context.Background(), MergeOptions{Model: model, Adapters: One(from), Out: other},
		session.Env{}); err == nil || !strings.Contains(err.Error(),
		"it holds config.json already; name another folder") {
		t.Errorf("merging beside another model's configuration: %v", err)
	}
	if !bytes.Equal(golden.ReadFile(t, path), own) || len(entries(t, other)) != 1 {
		t.Errorf("the folder holds %q", entries(t, other))
	}
}
