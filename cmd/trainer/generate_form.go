package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tierlora/tierlora/infer"
	"github.com/tierlora/tierlora/infer/jsonform"
	"github.com/tierlora/tierlora/internal/regular"
)

// maxSchemaFile bounds a file of --json-schema in bytes.
const maxSchemaFile = 4 << 20

// formOptions are the flags of generate that make the answer JSON.
type formOptions struct {
	object bool
	file   string

	schema *jsonform.Schema // nil: any text
}

func (o *formOptions) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.object, "json-object", false, "make the answer a JSON object")
	pathVar(cmd, &o.file, "json-schema", "", "make the answer JSON that the JSON Schema in `FILE` allows; - reads standard input")
}

// read checks the flags and reads the schema; others are the flags that may read standard input too.
func (o *formOptions) read(cmd *cobra.Command, c *console, others ...string) error {
	if !cmd.Flags().Changed("json-schema") {
		if o.object {
			o.schema = jsonform.Object()
		}
		return nil
	}
	if o.object {
		return errors.New("--json-object and --json-schema: give one of them")
	}
	if o.file == "-" && slices.Contains(others, "-") {
		return errors.New("--json-schema -: standard input is the prompt already; name a file")
	}
	if strings.HasPrefix(strings.TrimSpace(o.file), "{") {
		return fmt.Errorf("--json-schema %s: it takes the name of a file: write the schema into one", o.file)
	}
	text, err := o.text(c)
	if err == nil {
		o.schema, err = jsonform.Parse(text)
	}
	if err != nil {
		return fmt.Errorf("--json-schema %s: %w", o.file, err)
	}
	return nil
}

func (o *formOptions) text(c *console) ([]byte, error) {
	var r io.Reader = c.in
	if o.file != "-" {
		if err := regular.CheckPath(o.file); err != nil {
			return nil, err
		}
		f, err := os.Open(o.file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	text, err := io.ReadAll(io.LimitReader(r, maxSchemaFile+1))
	if err == nil && len(text) > maxSchemaFile {
		err = fmt.Errorf("it has more than %d MB", maxSchemaFile>>20)
	}
	return text, err
}

// formOf is the form of answers of a model, nil for any text.
func (o *formOptions) formOf(g *infer.Generator) *jsonform.Form {
	if o.schema == nil {
		return nil
	}
	return &jsonform.Form{Schema: o.schema, Vocabulary: infer.Vocabulary(g.Base.Tokenizer)}
}

// cut says that an answer is no whole JSON, "" where it is or need not be.
func (o *formOptions) cut(answer infer.Generated, most int) string {
	switch {
	case o.schema == nil || answer.Stopped == infer.StoppedEnd:
		return ""
	case answer.Stopped == infer.StoppedText:
		return fmt.Sprintf("the JSON is not whole: --stop %q cut it off", answer.StoppedBy)
	}
	return fmt.Sprintf("the JSON is not whole: --max-tokens %d cut it off", most)
}
