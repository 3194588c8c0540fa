package export

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tierlora/tierlora/export/gguf"
	"github.com/tierlora/tierlora/export/llamacpp"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
	runlock "github.com/tierlora/tierlora/train/checkpoint"
)

// The files of a folder for Ollama.
const (
	ollamaModel   = "model.gguf"
	ollamaAdapter = "adapter.gguf"
	modelfileName = "Modelfile"
)

// ollama writes a folder with a GGUF file and a Modelfile; with Separate, the adapter is a file of its own. The folder
// gets its name when it is complete, so that an interrupted export does not block the next one.
func ollama(ctx context.Context, o Options, env session.Env) (r Report, err error) {
	if _, err := os.Lstat(o.Out); err == nil && !o.Overwrite {
		return r, errors.New("it is there already; --overwrite replaces what it holds by these names")
	}
	if info, err := os.Stat(o.Out); err == nil && !info.IsDir() {
		return r, fmt.Errorf("it is %s; name a folder", regular.Kind(info))
	}
	for name, is := range map[string][2]string{
		modelfileName: {"a Modelfile", "FROM "}, ollamaModel: {"a GGUF file", gguf.Mark},
		ollamaAdapter: {"a GGUF file", gguf.Mark},
	} {
		if err := atomicfile.CheckOwn(filepath.Join(o.Out, name), is[0], is[1]); err != nil {
			return r, err
		}
	}
	base := o
	if o.Separate {
		base.Adapter = ""
	}
	c, names, err := openCheckpoint(ctx, base, env)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.s.Close()) }()
	plan, err := c.plan(o, names)
	if err != nil {
		return r, err
	}
	sources, err := chat.FindFor(c.s.Base.Folder, o.Adapter)
	if err != nil {
		return r, err
	}
	var adapters []string
	if o.Adapter != "" {
		adapters = []string{o.Adapter}
	}
	trained, err := promptFormat(c.s.Base, adapters)
	if err != nil {
		return r, err
	}
	model := llamacpp.Model{Config: c.s.Base.Config, Tokenizer: c.s.Base.Tokenizer, Chat: sources}
	if trained != nil {
		model.System = trained.System
	}
	file, notes := llamacpp.NewModelfile(model, ollamaModel)
	if trained != nil && trained.Plain() {
		notes = append(notes, "the adapter was trained on plain text ("+strings.Join(trained.Prompts, ", ")+
			"), and Ollama asks by a chat template: "+
			"ask with \"raw\": true and the text of training, or train with dataset.as_chat: yes")
	}
	if o.Separate {
		file.Adapter = ollamaAdapter
	}
	text, err := file.String()
	if err != nil {
		return r, err
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(o.Out)), 0o755); err != nil {
		return r, runlock.Unwritable(fmt.Errorf("make the folder: %w", err))
	}
	err = staged(o.Out, func(dir string) error {
		if r, err = writeGGUF(ctx, filepath.Join(dir, ollamaModel), plan, o, env, c); err != nil {
			return err
		}
		r.Notes = append(r.Notes, notes...)
		r.Files = []string{ollamaModel}
		if o.Separate {
			lora := o
			lora.Out, lora.DType = filepath.Join(dir, ollamaAdapter), "f32"
			own, err := ggufLoRA(ctx, lora, env)
			if err != nil {
				return fmt.Errorf("%s: %w", ollamaAdapter, err)
			}
			r.Bytes += own.Bytes
			r.Files = append(r.Files, ollamaAdapter)
		}
		return atomicfile.Write(filepath.Join(dir, modelfileName), []byte(text))
	})
	if err != nil {
		return r, err
	}
	r.Files = append(r.Files, modelfileName)
	r.Bytes += int64(len(text))
	return r, nil
}
