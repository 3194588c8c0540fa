package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/tierlora/tierlora/model"
	"github.com/tierlora/tierlora/model/families"
	"github.com/tierlora/tierlora/model/hub"
	"github.com/tierlora/tierlora/model/nn"
	"github.com/tierlora/tierlora/model/quantised"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/text/tokenizer"
)

// OpenBase finds a model by name, folder or embedded name, and reads everything except the weights' values.
func OpenBase(ctx context.Context, name string, env Env) (*Base, error) {
	files, err := locate(ctx, name, env)
	if err != nil {
		return nil, fmt.Errorf("open base model: %w", err)
	}
	b := &Base{Name: name, Folder: files.fileSystem(), Dir: files.dir}
	if err := b.open(files, env); err != nil {
		return nil, errors.Join(fmt.Errorf("open base model: %w", err), b.Close())
	}
	return b, nil
}

// open reads configuration, tokenizer and the headers of the weights, in this order, because each depends on the one
// before.
func (b *Base) open(files modelFiles, env Env) (err error) {
	if b.Config, err = files.readConfig(); err != nil {
		return err
	}
	if b.Tokenizer, err = files.readTokenizer(); errors.Is(err, tokenizer.ErrNone) {
		b.Tokenizer, err = tokenizer.Numbers(b.Config.VocabSize) // rows of ids need no other tokenizer
	}
	if err != nil {
		return err
	}
	if env.WithoutWeights && files.withoutWeights() {
		return b.declare(env.StandIn)
	}
	if b.Weights, err = files.openWeights(); err != nil {
		return err
	}
	if b.Config, err = families.Fit(b.Config, b.Weights); err != nil {
		return err
	}
	b.tensors, err = quantised.Open(b.Weights, b.Config.Quantization)
	return err
}

// declare gives a model without weights the tensors that its configuration describes; standIn reads numbers in their
// place.
func (b *Base) declare(standIn nn.Reader) (err error) {
	b.Declared, b.standIn = true, standIn
	if b.Weights, err = DeclaredWeights(b.Config); err != nil {
		return err
	}
	b.tensors, err = DeclaredCheckpoint(b.Config, b.Weights)
	return err
}

// modelFiles are the files of a model: a folder on disk, whose weights are mapped, or embedded files.
type modelFiles struct {
	dir      string // "" = the files are embedded
	embedded fs.FS
}

// locate finds a model's files. It downloads a model of the hub if env says so.
func locate(ctx context.Context, name string, env Env) (f modelFiles, err error) {
	short, embedded := strings.CutPrefix(name, EmbeddedPrefix)
	switch {
	case embedded && env.Model == nil:
		return f, fmt.Errorf("%q: this program carries no models", name)
	case embedded:
		f.embedded, err = env.Model(short)
	default:
		f.dir, err = hub.Resolve(ctx, name, env.Hub)
	}
	return f, err
}

func (f modelFiles) fileSystem() fs.FS {
	if f.embedded != nil {
		return f.embedded
	}
	return os.DirFS(f.dir)
}

func (f modelFiles) readConfig() (model.Config, error) {
	if f.embedded == nil {
		return families.LoadConfig(f.dir)
	}
	raw, err := fs.ReadFile(f.embedded, "config.json")
	if err != nil {
		return model.Config{}, err
	}
	c, err := families.ParseConfig(raw)
	if err != nil {
		return c, fmt.Errorf("config.json: %w", err)
	}
	return c, nil
}

func (f modelFiles) readTokenizer() (*tokenizer.Tokenizer, error) {
	if f.embedded == nil {
		return tokenizer.Load(f.dir)
	}
	return tokenizer.LoadFS(f.embedded, ".")
}

func (f modelFiles) withoutWeights() bool { return f.embedded == nil && weights.HasNone(f.dir) }

func (f modelFiles) openWeights() (*weights.Set, error) {
	if f.embedded == nil {
		return weights.OpenDir(f.dir)
	}
	return weights.OpenFS(f.embedded, ".")
}
