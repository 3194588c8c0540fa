package adapter

import (
	"reflect"
	"strings"

	"github.com/tierlora/tierlora/internal/keys"
)

// Sections are the sections of adapter methods in a run's configuration, by the names of their fields' keys. A method reads
// one of them: see Method.Section.
type Sections struct {
	// LoRA is what is trained: rank, scale and layers of the adapter.
	LoRA LoRA `yaml:"lora"`
	// Full is which weights of the base model adapter: full trains.
	Full Full `yaml:"full,omitempty"`
	// IA3 is which layers adapter: ia3 scales.
	IA3 IA3 `yaml:"ia3,omitempty"`
	// MiSS is rank and layers of adapter: miss.
	MiSS MiSS `yaml:"miss,omitempty"`
	// VeRA is rank, random matrices and layers of adapter: vera.
	VeRA VeRA `yaml:"vera,omitempty"`
	// LoKr is rank, scale, sizes of the factors and layers of adapter: lokr.
	LoKr LoKr `yaml:"lokr,omitempty"`
	// OFT is the size of the rotated blocks and layers of adapter: oft.
	OFT OFT `yaml:"oft,omitempty"`
}

// Problems returns what is wrong with the section of the method that a value of `adapter:` stands for, each error naming
// its key.
func (s Sections) Problems(name string) []error {
	problems := s.Config(name).Validate()
	if m, _, err := Lookup(name); err == nil && m.Check != nil {
		problems = append(problems, m.Check(s.Config(name))...)
	}
	read := s.Config(name).own().section()
	s.each(func(key string, section reflect.Value) {
		if key != read {
			problems = append(problems, keys.Check(key+".", section.Interface())...)
		}
	})
	return problems
}

// each calls see for every section with the name of its key.
func (s Sections) each(see func(key string, section reflect.Value)) {
	all := reflect.ValueOf(s)
	for i := range all.NumField() {
		key, _, _ := strings.Cut(all.Type().Field(i).Tag.Get("yaml"), ",")
		see(key, all.Field(i))
	}
}

// Config returns the configuration of the method that a value of `adapter:` stands for; of an unknown one LoRA's.
func (s Sections) Config(name string) Config {
	m, _, err := Lookup(name)
	if err != nil {
		m = Methods[DefaultMethod]
	}
	return m.Section(s)
}
