// Package export writes what other programs load: models whose weights hold an adapter.
package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/kernel"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
)

// MergeReport is what Merge wrote.
type MergeReport struct {
	Model  string `json:"model"`
	Output string `json:"output"`
	Layers int    `json:"layers"` // that the adapter changed
	Bytes  int64  `json:"bytes"`  // of the tensors
}

// Merge writes a model folder whose weights hold the adapter, rounded through float32 to the type that the base has. Weights
// that are stored quantised are dequantised, all of them, to the type that they had before: to quantise a merged weight
// again would change it.
// The folder must not hold a model already. A merge that fails or is cut short leaves nothing that stands in the way of
// the next into the same folder.
func Merge(ctx context.Context, modelDir, adapterDir, outDir string, env session.Env) (report MergeReport, err error) {
	if adapterDir == "" {
		return report, errors.New("merge: name an adapter folder")
	}
	for _, name := range []string{weights.SingleFile, weights.IndexFile, adapter.ConfigFile} { // beside an adapter, readers would apply it again
		if _, err := os.Lstat(filepath.Join(outDir, name)); err == nil {
			return report, fmt.Errorf("merge into %s: it holds %s already; name another folder", outDir, name)
		}
	}
	s, err := session.Open(ctx, session.Options{Model: modelDir, Device: "cpu"}, env)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.UseAdapter(adapterDir); err != nil {
		return report, err
	}
	updates, err := s.Mergers()
	if err != nil {
		return report, fmt.Errorf("merge %s: %w", adapterDir, err)
	}
	report = MergeReport{Model: modelDir, Output: outDir, Layers: len(updates)}
	if report.Bytes, err = write(ctx, s, updates, outDir); err != nil {
		return MergeReport{}, fmt.Errorf("merge into %s: %w", outDir, err)
	}
	return report, nil
}

// write makes the folder under another name beside its own, which it gets when it is whole.
func write(ctx context.Context, s *session.Session, updates map[string]adapter.Merger, outDir string) (bytes int64, err error) {
	outDir = filepath.Clean(outDir)
	files, err := modelFiles(s.Base)
	if err != nil {
		return 0, err
	}
	if err := refuseOthers(files, outDir); err != nil {
		return 0, err
	}
	above := filepath.Dir(outDir)
	if err := os.MkdirAll(above, 0o755); err != nil {
		return 0, err
	}
	partial, err := os.MkdirTemp(above, ".partial-"+filepath.Base(outDir)+"-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(partial) //nolint:errcheck // nobody reads it
	if err := os.Chmod(partial, 0o755); err != nil {
		return 0, err
	}
	for name, data := range files {
		if err := atomicfile.Write(filepath.Join(partial, name), data); err != nil {
			return 0, err
		}
	}
	if bytes, err = writeWeights(ctx, s, updates, filepath.Join(partial, weights.SingleFile)); err != nil {
		return 0, err
	}
	if err := refuseOthers(files, outDir); err != nil {
		return 0, err
	}
	return bytes, install(partial, outDir)
}

// refuseOthers is an error where a folder has one of the files with other content. The same content is what a merge
// left that was cut short while it moved its files there.
func refuseOthers(files map[string][]byte, dir string) error {
	for name, data := range files {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err != nil {
			continue
		}
		if old, err := regular.ReadFile(path); err != nil || !bytes.Equal(old, data) {
			return fmt.Errorf("it holds %s already; name another folder", name)
		}
	}
	return nil
}

// install gives a finished folder its name, or moves its files into a folder of that name that is there, the weights
// last.
func install(partial, outDir string) error {
	there, err := os.Lstat(outDir)
	if err == nil && there.IsDir() {
		err = os.Remove(outDir) // if it is empty
	}
	if err == nil && there.IsDir() || errors.Is(err, fs.ErrNotExist) {
		if err := os.Rename(partial, outDir); err != nil {
			return err
		}
		return atomicfile.SyncDir(filepath.Dir(outDir))
	}
	entries, err := os.ReadDir(partial)
	if err != nil {
		return err
	}
	names := []string{}
	for _, e := range entries {
		if e.Name() != weights.SingleFile {
			names = append(names, e.Name())
		}
	}
	for _, name := range append(names, weights.SingleFile) {
		if err := os.Rename(filepath.Join(partial, name), filepath.Join(outDir, name)); err != nil {
			return err
		}
	}
	return atomicfile.SyncDir(outDir)
}

// writeWeights streams the tensors, one at a time, with the updates.
func writeWeights(ctx context.Context, s *session.Session, updates map[string]adapter.Merger, path string) (bytes int64, err error) {
	var tensors []weights.Tensor
	names := map[string]string{} // the model's, by those in the file
	for _, name := range s.Base.Tensors().Names() {
		t, _ := s.Base.Tensors().Tensor(name)
		tensors = append(tensors, t)
		names[t.Name] = name
		bytes += int64(t.Len() * t.DType.Size())
	}
	cpu := kernel.NewCPU(s.Workers)
	return bytes, weights.WriteEach(path, tensors, map[string]string{"format": "pt"}, func(t weights.Tensor) ([]byte, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name := names[t.Name]
		t, err := dequantised(s.Base, name)
		if err != nil {
			return nil, err
		}
		if err := session.CheckFinite(t); err != nil {
			return nil, fmt.Errorf("the base model's %w: get the model again", err)
		}
		update, ok := updates[strings.TrimSuffix(name, ".weight")]
		if !ok {
			return t.Data, nil
		}
		merged, err := mergeInto(t, update, cpu)
		if err != nil {
			return nil, err
		}
		if err := session.CheckFinite(merged); err != nil {
			return nil, fmt.Errorf("with the adapter, %w: its numbers are too large for the type", err)
		}
		return merged.Data, nil
	})
}

// mergeInto is a layer's weight [out,in], or experts' parameter [experts,in,out], with its update.
func mergeInto(t weights.Tensor, update adapter.Merger, cpu *kernel.CPU) (weights.Tensor, error) {
	w := make([]float32, t.Len())
	if err := weights.Float32s(t, w); err != nil {
		return t, err
	}
	cpu.Range(t.Len()/max(1, t.Shape[len(t.Shape)-1]), 16, func(from, to int) { update(w, from, to) })()
	return weights.FromFloat32s(t.Name, t.DType, t.Shape, w)
}

// modelFiles are what a model folder holds besides its weights.
func modelFiles(b *session.Base) (map[string][]byte, error) {
	files := b.Tokenizer.Files()
	for _, name := range []string{"config.json", "generation_config.json"} {
		data, err := regular.ReadFS(b.Folder, name)
		if errors.Is(err, fs.ErrNotExist) && name != "config.json" {
			continue
		}
		if err != nil {
			return nil, err
		}
		files[name] = data
	}
	var err error
	if b.Tensors().Quantised() > 0 {
		files["config.json"], err = withoutKey(files["config.json"], "quantization_config")
	}
	return files, err
}
