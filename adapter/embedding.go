package adapter

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Pooling is how an adapter for FEATURE_EXTRACTION makes a vector of a text. The zero value takes the mean of the
// tokens' vectors as it is.
type Pooling struct {
	// Last takes the vector of the last token in place of the mean.
	Last bool
	// Normalise divides a vector by its length.
	Normalise bool
}

// Files of sentence-transformers in a folder of an adapter for FEATURE_EXTRACTION.
const (
	modulesFile  = "modules.json"
	encoderFile  = "sentence_bert_config.json"
	settingsFile = "config_sentence_transformers.json"
	poolingFile  = "1_Pooling/config.json"
)

// sentenceModule is an entry of modules.json.
type sentenceModule struct {
	Index int    `json:"idx"`
	Name  string `json:"name"`
	Path  string `json:"path"`
	Type  string `json:"type"`
}

// normaliseType is the type of the module of sentence-transformers that divides vectors by their length.
const normaliseType = "sentence_transformers.models.Normalize"

// poolingConfig is 1_Pooling/config.json.
type poolingConfig struct {
	Width         int  `json:"word_embedding_dimension"`
	CLS           bool `json:"pooling_mode_cls_token"`
	Mean          bool `json:"pooling_mode_mean_tokens"`
	Max           bool `json:"pooling_mode_max_tokens"`
	SqrtLen       bool `json:"pooling_mode_mean_sqrt_len_tokens"`
	WeightedMean  bool `json:"pooling_mode_weightedmean_tokens"`
	Last          bool `json:"pooling_mode_lasttoken"`
	IncludePrompt bool `json:"include_prompt"`
}

// pooledBy is the part of the settings that says how vectors are made in folders without modules, such as checkpoints.
type pooledBy struct {
	Pooling   string `json:"pooling_mode,omitempty"` // lasttoken or mean
	Normalise bool   `json:"normalize_embeddings"`
}

// Files returns the files by which sentence-transformers loads the folder of an adapter whose vectors have a width,
// from texts of at most length tokens. Those of a checkpoint, which has no folders in it, are Settings.
func (p Pooling) Files(width, length int) (map[string][]byte, error) {
	modules := []sentenceModule{
		{0, "0", "", "sentence_transformers.models.Transformer"},
		{1, "1", filepath.ToSlash(filepath.Dir(poolingFile)), "sentence_transformers.models.Pooling"},
	}
	if p.Normalise {
		modules = append(modules, sentenceModule{2, "2", "2_Normalize", normaliseType})
	}
	return encodeFiles(map[string]any{
		modulesFile: modules,
		encoderFile: map[string]any{"max_seq_length": length, "do_lower_case": false},
		poolingFile: poolingConfig{Width: width, Mean: !p.Last, Last: p.Last, IncludePrompt: true},
	})
}

// Settings returns the file that every folder of the adapter has, those of checkpoints included.
func (p Pooling) Settings() (map[string][]byte, error) {
	of := struct {
		Prompts    map[string]string `json:"prompts"`
		Default    *string           `json:"default_prompt_name"`
		Similarity string            `json:"similarity_fn_name"`
		pooledBy
	}{Prompts: map[string]string{}, Similarity: "dot", pooledBy: pooledBy{"mean", p.Normalise}}
	if p.Normalise {
		of.Similarity = "cosine"
	}
	if p.Last {
		of.Pooling = "lasttoken"
	}
	return encodeFiles(map[string]any{settingsFile: of})
}

// encodeFiles writes values as JSON, by the names of their files.
func encodeFiles(all map[string]any) (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, of := range all {
		data, err := json.MarshalIndent(of, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
		files[name] = append(data, '\n')
	}
	return files, nil
}

// ReadPooling reads how the adapter in a folder makes vectors, from the files of sentence-transformers. A folder
// without them has the default of sentence-transformers: the mean.
func ReadPooling(dir string) (p Pooling, err error) {
	var modules []sentenceModule
	switch found, err := readJSON(filepath.Join(dir, modulesFile), &modules); {
	case err != nil:
		return p, err
	case !found:
		var own pooledBy
		_, err := readJSON(filepath.Join(dir, settingsFile), &own)
		return Pooling{Last: own.Pooling == "lasttoken", Normalise: own.Normalise}, err
	}
	for _, m := range modules {
		p.Normalise = p.Normalise || m.Type == normaliseType ||
			m.Type == "sentence_transformers.sentence_transformer.modules.Normalize"
	}
	var c poolingConfig
	path := filepath.Join(dir, filepath.FromSlash(poolingFile))
	found, err := readJSON(path, &c)
	switch p.Last = c.Last; {
	case err != nil:
		return p, err
	case found && (c.CLS || c.Max || c.SqrtLen || c.WeightedMean || c.Mean == c.Last):
		return p, fmt.Errorf("read %s: the pooling is none of mean and lasttoken alone, which are supported", path)
	}
	return p, nil
}

// ReadLength reads the most tokens of a text from the files of sentence-transformers in a folder; most if the folder
// does not say it.
func ReadLength(dir string, most int) (int, error) {
	var c struct {
		Length int `json:"max_seq_length"`
	}
	if _, err := readJSON(filepath.Join(dir, encoderFile), &c); err != nil {
		return 0, err
	}
	if c.Length > 0 {
		most = min(most, c.Length)
	}
	return most, nil
}

// readJSON decodes a small file; found is false where there is none.
func readJSON(path string, to any) (found bool, err error) {
	raw, err := readBounded(path, maxConfig)
	if os.IsNotExist(err) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, to)
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return true, nil
}
