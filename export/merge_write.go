package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/internal/jsonedit"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/model/weights"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/vision"
)

// write makes the folder.
func (m *merging) write(ctx context.Context, env session.Env) (report MergeReport, err error) {
	files, err := m.modelFiles()
	if err != nil {
		return report, err
	}
	var dirs []string
	for _, a := range m.o.Adapters {
		dirs = append(dirs, a.Dir)
	}
	var answers Answers
	var notes []string
	if m.head == nil {
		answers, notes, err = answering(m.s.Base, dirs, files, true)
	} else {
		err = errors.Join(m.head.describe(m.s.Base, files), keepPromptFormat(m.s.Base, dirs, files))
	}
	if err != nil {
		return report, err
	}
	if answers.other {
		delete(files, olderTemplateFile)
	}
	if err := refuseOthers(files, m.o.Out); err != nil {
		return report, err
	}
	tensors, err := m.tensors(ctx)
	if err != nil {
		return report, err
	}
	report = MergeReport{Model: m.o.Model, Output: m.o.Out, Base: m.baseText(), DType: m.o.DType,
		Layers: len(m.updates), Bytes: m.bytes,
		Adapters: dirs, Answers: answers, Notes: notes}
	if report.DType == "" {
		report.DType = "as the base"
	}
	if err := m.refuseLoss(ctx); err != nil {
		return report, err
	}
	err = staged(m.o.Out, func(dir string) error {
		if err := m.checkRoom(dir); err != nil {
			return err
		}
		if err := makeFolders(dir, files); err != nil {
			return err
		}
		for name, data := range files {
			if err := atomicfile.Write(filepath.Join(dir, name), data); err != nil {
				return err
			}
		}
		if err := weights.WriteDir(dir, tensors, map[string]string{"format": "pt"}, m.o.ShardSize,
			m.data(ctx)); err != nil {
			return err
		}
		if err := m.s.Base.Weights.Unchanged(); err != nil {
			return err
		}
		report.Rounding = m.rounding()
		fp16, err := m.inFP16(ctx, report.Rounding)
		if err != nil {
			return err
		}
		if !m.o.AllowLoss && report.Rounding.Kept < leastKept {
			return &LossError{DType: m.typeText(), Rounding: report.Rounding, FP16: fp16}
		}
		if fp16 != nil {
			report.Notes = append(report.Notes, betterType(report.Rounding, *fp16, "fp16", "fp32"))
		}
		if err := m.readBack(ctx, dir); err != nil {
			return err
		}
		if err := m.measure(ctx, dir, env, &report); err != nil {
			return err
		}
		if report.Files, err = countWeights(dir); err != nil {
			return err
		}
		return refuseOthers(files, m.o.Out)
	})
	return report, err
}

// typeText names the type of the weights in messages.
func (m *merging) typeText() string {
	if m.o.DType != "" {
		return m.o.DType
	}
	for _, name := range m.s.Base.Tensors().Names() {
		if _, ok := m.updates[layer(name)]; ok {
			t, _ := m.s.Base.Tensors().Tensor(name)
			return "the base's " + t.DType.String()
		}
	}
	return "the base's type"
}

func countWeights(dir string) (n int, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".safetensors") {
			n++
		}
	}
	return n, err
}

// checkRoom returns an error, before the first byte, if the disk is too full for the merge.
func (m *merging) checkRoom(dir string) error {
	if free, ok := atomicfile.Free(dir); ok && free < m.bytes {
		return &atomicfile.FullError{Path: m.o.Out, Needed: m.bytes, Free: free}
	}
	return nil
}

// olderTemplateFile is where processors before transformers 4.51 keep the chat template.
const olderTemplateFile = "chat_template.json"

// imageFiles describe what a model of images and text makes of images and videos. Without them transformers loads the
// model and no processor.
var imageFiles = append(slices.Clone(vision.ProcessorFiles), "video_preprocessor_config.json", olderTemplateFile)

// modelFiles returns the files of a model folder besides its weights.
func (m *merging) modelFiles() (map[string][]byte, error) {
	b := m.s.Base
	files := b.Tokenizer.Files()
	for _, name := range slices.Concat([]string{configFile, "generation_config.json"}, imageFiles) {
		data, err := regular.ReadFS(b.Folder, name)
		if errors.Is(err, fs.ErrNotExist) && name != configFile {
			continue
		}
		if err != nil {
			return nil, err
		}
		files[name] = data
	}
	config := files[configFile]
	var err error
	if b.Tensors().Quantised()+b.Tensors().Dequantised() > 0 {
		if config, err = jsonedit.Delete(config, "quantization_config"); err != nil {
			return nil, err
		}
	}
	if m.o.DType != "" {
		if config, err = withDType(config, map[string]string{"bf16": "bfloat16", "fp16": "float16", "fp32": "float32",
			NF4: "bfloat16"}[m.o.DType]); err != nil {
			return nil, err
		}
	}
	if m.o.DType == NF4 {
		if len(m.stored) == 0 {
			return nil, errors.New("nf4: the model has no linear layer that is stored so; use another --dtype")
		}
		q, err := bitsandbytes(m.nf4(), m.modules())
		if err != nil {
			return nil, err
		}
		if config, err = jsonedit.Set(config, "quantization_config", q); err != nil {
			return nil, fmt.Errorf("%s: %w", configFile, err)
		}
	}
	if m.s.Net.UntiedHead() {
		if config, err = untied(config); err != nil {
			return nil, err
		}
	}
	files[configFile] = config
	return files, nil
}
