package adapter

import (
	"strings"
)

// loraPlusRate is LoRA+ (Hayou et al. 2024): B learns faster than A, by lora.loraplus_lr_ratio.
func loraPlusRate(c Config, name string) float64 {
	ofB := strings.HasSuffix(name, suffixB) || strings.HasSuffix(name, suffixBiasB)
	if ratio := c.lora().LoRAPlusLRRatio; ratio > 0 && ofB {
		return ratio
	}
	return 1
}
