package tower

import (
	"fmt"
	"math"
	"slices"

	"github.com/tierlora/tierlora/vision"
)

// rope is what a text model's rotary settings say of positions with three coordinates.
type rope struct {
	Sections []int `json:"mrope_section"`
}

// sectionsOf returns the sections of frequencies of rope_parameters, or else of rope_scaling, its name before
// transformers 5.
func sectionsOf(params, scaling rope, absent [3]int) ([3]int, error) {
	sections := params.Sections
	if sections == nil {
		sections = scaling.Sections
	}
	switch {
	case sections == nil:
		return absent, nil
	case len(sections) != 3 || slices.Min(sections) < 0 || slices.Max(sections) < 1 || slices.Max(sections) > mostSizes:
		return absent, fmt.Errorf("config.json: mrope_section = %v: must be three numbers of frequencies", sections)
	}
	return [3]int(sections), nil
}

// axialRope is the rotation of a tower by a patch's row and by its column.
type axialRope struct {
	Theta float64 `json:"rope_theta"`
	Type  string  `json:"rope_type"`
}

func (r axialRope) check() error {
	if r.Type != "axial" || !(r.Theta > 1 && r.Theta < 1e30) {
		return fmt.Errorf("config.json: vision_config.rope_parameters: rope_type = %q, rope_theta = %g: supported is "+
			"axial, above 1", r.Type, r.Theta)
	}
	return nil
}

// axialFrequencies returns those of the rotation by a patch's row and by its column, which are the same.
func axialFrequencies(theta float64, count int) (both [2][]float32) {
	for j := range count {
		f := float32(1 / math.Pow(theta, float64(float32(2*j)/float32(2*count))))
		both[0], both[1] = append(both[0], f), append(both[1], f)
	}
	return both
}

// checkPatches refuses a processor whose patches are not those of config.json.
func checkPatches(p *vision.Patched, patch, merge, temporal int) error {
	if p.Patch != patch || p.Merge != merge || p.Temporal != temporal {
		return fmt.Errorf("the processor has patch_size, merge_size and temporal_patch_size %d, %d, %d, "+
			"config.json %d, %d, %d", p.Patch, p.Merge, p.Temporal, patch, merge, temporal)
	}
	return nil
}

// onlyTile returns the tile of an image of whole tokens, which are side x side pixels.
func onlyTile(tiles []*vision.RGB, side int) (*vision.RGB, error) {
	if len(tiles) != 1 || tiles[0].Width%side != 0 || tiles[0].Height%side != 0 {
		return nil, fmt.Errorf("an image must be one tile whose sides are multiples of %d pixels", side)
	}
	return tiles[0], nil
}
