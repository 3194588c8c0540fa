package adapter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tierlora/tierlora/internal/jsonerr"
	"github.com/tierlora/tierlora/internal/regular"
	"github.com/tierlora/tierlora/model/weights"
)

// Files of a PEFT adapter folder.
const (
	ConfigFile  = "adapter_config.json"
	WeightsFile = "adapter_model.safetensors"

	peftPrefix = "base_model.model."
	maxConfig  = 1 << 20
)

// PEFTName is the name of a trained tensor in PEFT's files.
func PEFTName(name string) string { return peftPrefix + name }

// Codec is a method's share of PEFT's adapter folder. Tensors carry PEFT's names from the start, so only
// adapter_config.json differs between methods.
type Codec struct {
	// Type is the file's peft_type. Of methods with one type, Flag names the key that is true in this one's files;
	// "" = the method of the files in which no other's flag is true.
	Type, Flag string
	// Parse reads the file, whose keys it is given too: the configuration and the base model's name.
	Parse func(raw []byte, keys map[string]json.RawMessage) (c Config, base string, err error)
	// Format writes the file. layers are the adapted layers' paths.
	Format func(c Config, base string, layers []string) ([]byte, error)
	// Frozen returns tensors that the folder has beside the trained ones, under PEFT's whole names; nil = none. Opened
	// takes them from a folder's weights.
	Frozen func(c Config) []Param
	Opened func(s *Saved) error
}

// Saved is an adapter folder that was read.
type Saved struct {
	Method    Method // as the folder says
	Config    Config
	BaseModel string
	Dir       string // the folder; "" = it was decoded from files
	file      *weights.File
}

// Close releases the mapped weights.
func (s *Saved) Close() error { return s.file.Close() }

// Open reads an adapter folder: PEFT's, or mlx-lm's.
func Open(dir string) (*Saved, error) {
	path := filepath.Join(dir, ConfigFile)
	raw, err := readBounded(path, maxConfig)
	if err != nil {
		return nil, fmt.Errorf("read adapter: %w", err)
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal(raw, &keys) == nil && isMLX(keys) {
		return openMLX(dir, raw)
	}
	s, err := parseConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("read adapter %s: %w", path, err)
	}
	if s.file, err = weights.Open(filepath.Join(dir, WeightsFile)); err != nil {
		if other := noWeights(dir); other != nil && errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read adapter %s: %w", dir, other)
		}
		return nil, fmt.Errorf("read adapter: %w", err)
	}
	s.Dir = dir
	s.tensorNames()
	if err := s.opened(); err != nil {
		return nil, fmt.Errorf("read adapter %s: %w", dir, errors.Join(err, s.file.Close()))
	}
	return s, nil
}

// Decode is Open for the two files' contents.
func Decode(config, model []byte) (*Saved, error) {
	s, err := parseConfig(config)
	if err != nil {
		return nil, fmt.Errorf("read adapter: %s: %w", ConfigFile, err)
	}
	if s.file, err = weights.Decode(model); err != nil {
		return nil, fmt.Errorf("read adapter: %s: %w", WeightsFile, err)
	}
	s.tensorNames()
	if err := s.opened(); err != nil {
		return nil, fmt.Errorf("read adapter: %s: %w", WeightsFile, errors.Join(err, s.file.Close()))
	}
	return s, nil
}

// opened reads what a folder's configuration does not say: the labels of a head, and frozen tensors.
func (s *Saved) opened() error {
	if err := s.headShape(); err != nil || s.Method.PEFT.Opened == nil {
		return err
	}
	return s.Method.PEFT.Opened(s)
}

func readBounded(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, more than the %d that such a file may have", path, info.Size(), limit)
	}
	return regular.ReadFile(path)
}

// parseConfig reads adapter_config.json by the codec of the method that it names.
func parseConfig(raw []byte) (*Saved, error) {
	var keys map[string]json.RawMessage
	if err := jsonerr.Unmarshal(raw, &keys); err != nil {
		return nil, err
	}
	m, err := methodOf(keys)
	if err != nil {
		return nil, err
	}
	s := &Saved{Method: m}
	s.Config, s.BaseModel, err = m.PEFT.Parse(raw, keys)
	return s, err
}

// methodOf finds the method that wrote a file with these keys.
func methodOf(keys map[string]json.RawMessage) (Method, error) {
	var typ string
	if raw, ok := keys["peft_type"]; ok && json.Unmarshal(raw, &typ) != nil {
		return Method{}, fmt.Errorf("peft_type is %s, which is no text", bytes.TrimSpace(raw))
	}
	var plain *Method
	var types []string
	for _, name := range sortedKeys(Methods) {
		m := Methods[name]
		if m.PEFT.Type == "" { // it writes no adapter
			continue
		}
		types = append(types, m.PEFT.Type)
		switch on := string(bytes.TrimSpace(keys[m.PEFT.Flag])) == "true"; {
		case m.PEFT.Type != typ:
		case m.PEFT.Flag == "":
			plain = &m
		case on:
			return m, nil
		}
	}
	if typ == "" {
		return Method{}, fmt.Errorf("it has no peft_type, so it is not a file of PEFT's")
	}
	if plain == nil {
		return Method{}, fmt.Errorf("peft_type %q is not one of %s", typ, strings.Join(slices.Compact(slices.Sorted(slices.Values(types))), ", "))
	}
	return *plain, nil
}

// Param is a trained tensor by our name: PEFT's without its prefix.
type Param struct {
	Name  string
	Shape []int
	Data  []float32
}

// Read copies the adapter's tensors into params. It refuses tensors that do not fit, the first of them by name
// with what the adapter was made for, and numbers that are not finite.
func (s *Saved) Read(params []Param) error {
	want := make([]weights.Spec, len(params))
	for i, p := range params {
		want[i] = weights.Spec{Name: s.tensorName(p.Name), Shape: p.Shape}
	}
	if s.Method.PEFT.Frozen != nil {
		for _, p := range s.Method.PEFT.Frozen(s.Config) {
			want = append(want, weights.Spec{Name: p.Name, Shape: p.Shape})
		}
	}
	var allowed []string
	head, tied := s.tiedHead(params)
	if tied {
		allowed = append(allowed, head)
	}
	for _, name := range s.file.Names() { // PEFT saves the frozen tables beside their updates
		if adaptsTables(s.Config) && strings.HasSuffix(name, baseLayerSuffix+weightSuffix) {
			allowed = append(allowed, name)
		}
	}
	if err := weights.Check(s.file, want, allowed...); err != nil {
		var misfit *weights.CheckError
		if !errors.As(err, &misfit) {
			return fmt.Errorf("read adapter: %w", err)
		}
		return fmt.Errorf("the adapter does not fit the model: it was made for %s with rank %d and has %d tensors, here %d are expected:%s",
			s.madeFor(), s.Config.R, len(s.file.Names()), len(params), misfit.List())
	}
	for _, p := range params {
		t, _ := s.file.Tensor(s.tensorName(p.Name))
		if err := weights.Float32s(t, p.Data); err != nil {
			return fmt.Errorf("read adapter tensor %s: %w", t.Name, err)
		}
		if i := slices.IndexFunc(p.Data, func(x float32) bool { return x-x != 0 }); i >= 0 {
			return fmt.Errorf("the adapter is broken: tensor %s is %v at %v; use a checkpoint from before its training went wrong",
				t.Name, p.Data[i], place(i, p.Shape))
		}
	}
	if tied {
		if err := s.checkTiedHead(head, params); err != nil {
			return err
		}
	}
	if err := s.file.Unchanged(); err != nil {
		return fmt.Errorf("read adapter: %w", err)
	}
	return nil
}

func (s *Saved) madeFor() string {
	if s.BaseModel == "" {
		return "a model that it does not name"
	}
	return fmt.Sprintf("%q", s.BaseModel)
}

// place is where element i of a tensor lies: an index for each dimension.
func place(i int, shape []int) []int {
	at := make([]int, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		at[d], i = i%shape[d], i/shape[d]
	}
	return at
}

// Encode makes the two files of a PEFT adapter folder: byte for byte the same for the same numbers.
// layers are the adapted layers' paths, base is the model's name as the run gives it.
func (m Method) Encode(c Config, base string, layers []string, params []Param) (map[string][]byte, error) {
	config, err := m.PEFT.Format(c, base, layers)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", ConfigFile, err)
	}
	tensors, values := make([]weights.Tensor, len(params)), make(map[string][]float32, len(params))
	for i, q := range params {
		tensors[i] = weights.Tensor{Name: peftTensor(c, q.Name), DType: weights.F32, Shape: q.Shape}
		values[tensors[i].Name] = q.Data
	}
	if m.PEFT.Frozen != nil {
		for _, p := range m.PEFT.Frozen(c) {
			tensors = append(tensors, weights.Tensor{Name: p.Name, DType: weights.F32, Shape: p.Shape})
			values[p.Name] = p.Data
		}
	}
	model, err := weights.EncodeFloat32s(tensors, map[string]string{"format": "pt"}, values)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", WeightsFile, err)
	}
	return map[string][]byte{ConfigFile: append(config, '\n'), WeightsFile: model}, nil
}

// BaseModel is the base model that an adapter folder names.
func BaseModel(dir string) (string, error) {
	path := filepath.Join(dir, ConfigFile)
	raw, err := readBounded(path, maxConfig)
	if err != nil {
		return "", fmt.Errorf("read adapter: %w", err)
	}
	var keys map[string]json.RawMessage
	s := &Saved{}
	if json.Unmarshal(raw, &keys) == nil && isMLX(keys) {
		var c mlxConfig
		c, err = parseMLX(raw)
		s.BaseModel = c.Model
	} else {
		s, err = parseConfig(raw)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("read adapter %s: %w", path, err)
	case s.BaseModel == "":
		return "", fmt.Errorf("adapter %s names no base model: base_model_name_or_path is empty in its %s", dir, ConfigFile)
	}
	return s.BaseModel, nil
}
