package train

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/internal/atomicfile"
	"github.com/tierlora/tierlora/session"
	"github.com/tierlora/tierlora/text/chat"
	"github.com/tierlora/tierlora/train/objective"
)

// DataReportFile is the report on the data in a run's output folder, a dataset.Report as JSON.
const DataReportFile = "data_report.json"

// writeDataReport saves the report on the data, which the log shows too.
func (p *inputs) writeDataReport() error {
	report := *p.report
	report.CacheNote = "" // a repeated run writes the same file
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // tokens such as </s> stay readable
	enc.SetIndent("", "  ")
	err := enc.Encode(report)
	if err == nil {
		err = atomicfile.Write(filepath.Join(p.spec.OutputDir, DataReportFile), text.Bytes())
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", DataReportFile, err)
	}
	return nil
}

// besideAdapter returns the files that a run writes beside the adapter's own, for other programs: the tokenizer's
// files; the chat template of the training, under the name where generation looks first; the prompt format of the rows;
// the tokens that end an answer.
func (p *inputs) besideAdapter() (map[string][]byte, error) {
	files, err := p.tokenizerFiles()
	if err != nil {
		return files, err
	}
	if files[dataset.PromptFormatFile], err = p.report.PromptFormat(p.spec.Dataset).Bytes(); err != nil {
		return files, err
	}
	if pooling, ok := objective.Pooling(p.spec.Objective()); ok {
		settings, err := pooling.Settings()
		if err != nil {
			return files, err
		}
		maps.Copy(files, settings)
		if err := session.NamePadding(p.Base, files); err != nil {
			return files, err
		}
	}
	if head, count, ok := objective.Head(p.spec.Objective(), p.spec.Task); ok {
		meaning, err := head.Files(count)
		if err != nil {
			return files, err
		}
		maps.Copy(files, meaning)
	}
	c, err := p.data.Chat()
	if err != nil {
		return files, err
	}
	return files, chat.Answering{Base: p.Base.Folder, EOS: p.Base.Config.EOS, Vocab: p.Base.Config.VocabSize, Tok: p.Base.Tokenizer, Chat: c}.Save(files)
}

// tokenizerFiles returns the base model's tokenizer files with the chat template of the training. A run's manifest has
// their hash.
func (p *inputs) tokenizerFiles() (map[string][]byte, error) {
	files := p.Base.Tokenizer.Files()
	c, err := p.data.Chat()
	if c == nil || err != nil {
		return files, err
	}
	plain, tools := c.Used()
	return files, chat.Save(files, plain, tools)
}
