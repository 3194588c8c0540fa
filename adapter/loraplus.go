package adapter

import (
	"fmt"
	"math"
	"strings"
)

// loraPlusRate is LoRA+ (Hayou et al. 2024): B learns faster than A, by lora.loraplus_lr_ratio.
func loraPlusRate(c Config, name string) float64 {
	if c.LoRAPlusLRRatio > 0 && strings.HasSuffix(name, suffixB) {
		return c.LoRAPlusLRRatio
	}
	return 1
}

func checkLoRAPlus(ratio float64) error {
	if ratio >= 0 && !math.IsInf(ratio, 0) {
		return nil
	}
	return fmt.Errorf("lora.loraplus_lr_ratio: %v must not be negative: it is the learning rate of B over that of A, 0 for off", ratio)
}
