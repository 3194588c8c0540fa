package train

import (
	"github.com/tierlora/tierlora/adapter"
	"github.com/tierlora/tierlora/dataset"
	"github.com/tierlora/tierlora/quant"
)

// Spec is a run's whole configuration, as the YAML file has it. Each section belongs to the package that
// reads it.
type Spec struct {
	BaseModel    string         `mapstructure:"base_model" yaml:"base_model"`
	Adapter      string         `mapstructure:"adapter" yaml:"adapter"` // one of adapter.Names
	LoRA         adapter.Config `mapstructure:"lora" yaml:"lora"`
	Quantization *quant.Config  `mapstructure:"quantization" yaml:"quantization,omitempty"` // nil = base weights as they are
	Dataset      dataset.Config `mapstructure:"dataset" yaml:"dataset"`
	Training     Config         `mapstructure:"training" yaml:"training"`
	Expect       Expect         `mapstructure:"expect" yaml:"expect,omitempty"`
	Seed         uint64         `mapstructure:"seed" yaml:"seed"`
	OutputDir    string         `mapstructure:"output_dir" yaml:"output_dir"`
	Device       string         `mapstructure:"device" yaml:"device"` // auto | cpu | cuda
	// VRAM is the memory that the run may hold on its device, such as "8GiB"; empty = what is free.
	VRAM string `mapstructure:"vram" yaml:"vram,omitempty"`
}

// DefaultSpec is a configuration with nothing set.
func DefaultSpec() Spec {
	return Spec{
		Adapter: adapter.DefaultMethod, LoRA: adapter.Default(), Dataset: dataset.Default(), Training: Default(),
		Seed: 42, Device: "auto",
	}
}
