package adapter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPoolingIsSaved checks that what Files writes is read back, that a folder without these files pools the mean, and
// that a folder of another pooling is refused.
func TestPoolingIsSaved(t *testing.T) {
	write := func(dir, name, text string) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []Pooling{{}, {Last: true}, {Normalise: true}, {Last: true, Normalise: true}} {
		dir := t.TempDir()
		files, err := want.Files(64, 128)
		if err != nil {
			t.Fatal(err)
		}
		settings, err := want.Settings()
		if err != nil {
			t.Fatal(err)
		}
		write(dir, settingsFile, string(settings[settingsFile]))
		if got, err := ReadPooling(dir); err != nil || got != want {
			t.Errorf("%+v in a checkpoint is read as %+v, %v", want, got, err)
		}
		for name, data := range files {
			write(dir, name, string(data))
		}
		if got, err := ReadPooling(dir); err != nil || got != want {
			t.Errorf("%+v is read as %+v, %v", want, got, err)
		}
		write(dir, poolingFile, `{"pooling_mode_cls_token": true}`)
		if _, err := ReadPooling(dir); err == nil || !strings.Contains(err.Error(), "none of mean and lasttoken") {
			t.Errorf("the vector of the first token: %v", err)
		}
		write(dir, modulesFile, `{`)
		if _, err := ReadPooling(dir); err == nil {
			t.Error("broken JSON is accepted")
		}
	}
	if got, err := ReadPooling(t.TempDir()); err != nil || got != (Pooling{}) {
		t.Errorf("a folder without files: %+v, %v", got, err)
	}
}
