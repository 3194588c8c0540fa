package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/config"
	"github.com/tierlora/tierlora/configs"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/model/hub"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/quant"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/text/tokenizer"
	"github.com/tierlora/tierlora/train"
)

// findModel checks that a model exists. An empty *model is set to the base model that the adapter folder dir names.
func findModel(ctx context.Context, c *console, env session.Env, model *string, dir string) error {
	if *model != "" {
		return checkModel(ctx, *model, env)
	}
	var err error
	if *model, err = adapter.BaseModel(dir); err != nil {
		return usage(fmt.Errorf("%w; name a model: --model DIR", err))
	}
	if err := checkModel(ctx, *model, env); err != nil {
		return unfit(fmt.Errorf("the base model that adapter %s names: %w; name where it is now: --model DIR", dir,
			err))
	}
	c.say("base model: %s, which the adapter names", *model)
	return nil
}

// findBase finds a configuration's base model and prints what the configuration takes over from it.
func findBase(ctx context.Context, l *config.Loaded, c *console, env session.Env) error {
	note, err := takeStorage(ctx, l, env)
	if note != "" {
		c.say("note: %s", note)
	}
	return err
}

// takeStorage finds the base model. If its weights are quantised already and the configuration has no quantization
// section, it sets that section from the weights; note describes what it set.
func takeStorage(ctx context.Context, l *config.Loaded, env session.Env) (note string, err error) {
	name := l.Spec.BaseModel
	if err := checkModel(ctx, name, env); err != nil || !l.AssumedStorage {
		return "", err
	}
	var have *quant.Config
	if have = session.StorageOf(ctx, name, env); have == nil {
		return "", nil
	}
	l.Spec.Quantization = have
	return fmt.Sprintf("the weights of %s are quantised already: adapter %s takes them as they are, %d bits, type "+
		"%s, double_quant %v",
		name, l.Spec.Adapter, have.Bits, have.Type, have.DoubleQuant), nil
}

// unfit wraps an error that means that this machine lacks something; the program then exits with exitUnfit.
func unfit(err error) error { return &exitError{code: exitUnfit, err: err} }

// checkModel looks for a model before any work starts, so that a missing model gets another exit code than a failed
// run.
func checkModel(ctx context.Context, name string, env session.Env) error {
	if short, ok := strings.CutPrefix(name, session.EmbeddedPrefix); ok {
		if _, err := configs.Model(short); err != nil {
			return usage(err)
		}
		return nil
	}
	dir, err := hub.Resolve(ctx, name, env.Hub)
	if err != nil {
		return unfit(err)
	}
	if err := plainFiles(dir); err != nil {
		return usage(fmt.Errorf("model %s: %w", name, err))
	}
	return nil
}

// isModel reports whether a folder holds a whole model.
func isModel(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "config.json"))
	return err == nil && !weights.HasNone(dir)
}

// checkAdapter returns an error if dir is not an adapter folder. An empty dir means no adapter.
func checkAdapter(dir string) error {
	if dir == "" {
		return nil
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return usage(fmt.Errorf("--adapter %s: it is a file; name the folder in PEFT's format, which has "+
			"adapter_config.json and adapter_model.safetensors", dir))
	}
	if _, err := os.Stat(filepath.Join(dir, "adapter_config.json")); err != nil {
		if isModel(dir) {
			return usage(fmt.Errorf("--adapter %s: it is a whole model, as adapter: full writes it: name it with "+
				"--model, or in a configuration as base_model", dir))
		}
		return usage(fmt.Errorf("--adapter %s: no adapter folder in PEFT's format: %w%s", dir, err, adapterWithin(dir)))
	}
	if err := plainFiles(dir); err != nil {
		return usage(fmt.Errorf("--adapter %s: %w", dir, err))
	}
	return nil
}

// adapterWithin returns a hint that names an adapter folder below dir. The folder of an interrupted run has adapters in
// its checkpoints only.
func adapterWithin(dir string) string {
	inside, _ := os.ReadDir(dir)
	newest, step, one := "", -1, ""
	for _, d := range inside {
		at := filepath.Join(dir, d.Name())
		if _, err := os.Stat(filepath.Join(at, "adapter_config.json")); err != nil {
			continue
		}
		number, is := strings.CutPrefix(d.Name(), "checkpoint-")
		if n, err := strconv.Atoi(number); is && err == nil && n > step {
			newest, step = at, n
		}
		one = at
	}
	switch {
	case newest != "":
		return "; its newest checkpoint is " + newest
	case one != "":
		return "; there is one in " + one
	}
	return ""
}

// openTokenizer loads the tokenizer of a model folder, hub name or embedded model, and returns the model's folder too.
func openTokenizer(ctx context.Context, name string, env session.Env) (*tokenizer.Tokenizer, fs.FS, error) {
	if short, ok := strings.CutPrefix(name, session.EmbeddedPrefix); ok {
		fsys, err := configs.Model(short)
		if err != nil {
			return nil, nil, usage(err)
		}
		tok, err := tokenizer.LoadFS(fsys, ".")
		return tok, fsys, err
	}
	dir, err := hub.Resolve(ctx, name, env.Hub)
	if err != nil {
		return nil, nil, unfit(err)
	}
	if err := plainFiles(dir); err != nil {
		return nil, nil, usage(fmt.Errorf("tokenizer %s: %w", name, err))
	}
	tok, err := tokenizer.Load(dir)
	return tok, os.DirFS(dir), err
}

// openData reads a configuration's data as a run does, for inspection.
func openData(ctx context.Context, s train.Spec, tok dataset.Tokenizer, folder fs.FS,
	env session.Env) (*dataset.Set, *dataset.Report, error) {
	c := s.Data()
	c.Seed, c.Progress = s.Seed, env.Reading
	c.Chat = func() (*chat.Sources, error) { return session.ChatSources(folder, "") }
	if images := session.TokensOfImages(s.BaseModel, folder, tok); images != nil {
		c.Images = images
	}
	short, embedded := strings.CutPrefix(c.Path, session.EmbeddedPrefix)
	if !embedded {
		c, err := session.FindData(ctx, c, env.Hub)
		if err != nil {
			return nil, nil, unfit(err)
		}
		return dataset.Load(ctx, c, tok)
	}
	fsys, err := configs.Data(short)
	if err != nil {
		return nil, nil, usage(err)
	}
	if c.ValPath != "" {
		val, ok := strings.CutPrefix(c.ValPath, session.EmbeddedPrefix)
		if !ok {
			return nil, nil, usage(errors.New("dataset.val_path: must be embedded too where dataset.path is"))
		}
		c.ValPath = val
	}
	c.Path = short
	return dataset.LoadFS(ctx, fsys, c, tok)
}
