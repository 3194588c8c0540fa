package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Card is what NVIDIA's management library (NVML, as nvidia-smi reads it) says of a card. A nil pointer or an empty
// text is what it does not say: the card, its driver or the container leaves it out.
type Card struct {
	Index   int    `json:"index"` // as nvidia-smi counts, whatever CUDA_VISIBLE_DEVICES says
	Name    string `json:"name"`
	UUID    string `json:"uuid"`
	PCI     string `json:"pci_bus_id"` // 00000000:17:00.0
	Driver  string `json:"driver"`     // 580.159.04
	Problem string `json:"problem,omitempty"`

	Total    int64 `json:"total_bytes"`
	Reserved int64 `json:"reserved_bytes"` // the driver's and the firmware's own
	Used     int64 `json:"used_bytes"`     // without Reserved, where the driver tells them apart
	Free     int64 `json:"free_bytes"`
	// with memory on it, this one included; empty in many containers
	Processes []CardProcess `json:"processes,omitempty"`

	Temperature   *int64 `json:"temperature_c,omitempty"`
	SlowdownAt    *int64 `json:"slowdown_temperature_c,omitempty"` // clocks fall from here on
	ShutdownAt    *int64 `json:"shutdown_temperature_c,omitempty"` // the card turns itself off
	Power         *int64 `json:"power_mw,omitempty"`
	PowerLimit    *int64 `json:"power_limit_mw,omitempty"` // in force
	PowerDefault  *int64 `json:"power_default_limit_mw,omitempty"`
	Clock         *int64 `json:"sm_clock_mhz,omitempty"`
	ClockMax      *int64 `json:"sm_clock_max_mhz,omitempty"`
	ClockApp      *int64 `json:"sm_application_clock_mhz,omitempty"` // asked for by nvidia-smi -ac
	ClockAppUsual *int64 `json:"sm_application_clock_default_mhz,omitempty"`
	MemoryClock   *int64 `json:"memory_clock_mhz,omitempty"`
	MemoryMax     *int64 `json:"memory_clock_max_mhz,omitempty"`
	// Throttled are the reasons that clocks are below the highest, in words; [] = none.
	Throttled []string `json:"throttled,omitempty"`

	ECC           string `json:"ecc,omitempty"`         // enabled or disabled
	ECCPending    string `json:"ecc_pending,omitempty"` // after the next start of the machine
	Corrected     *int64 `json:"ecc_corrected_since_start,omitempty"`
	Uncorrected   *int64 `json:"ecc_uncorrected_since_start,omitempty"`
	CorrectedEver *int64 `json:"ecc_corrected_ever,omitempty"`
	UncorrectEver *int64 `json:"ecc_uncorrected_ever,omitempty"`

	RetiredSingle  *int64 `json:"retired_pages_single_bit,omitempty"` // before Ampere
	RetiredDouble  *int64 `json:"retired_pages_double_bit,omitempty"`
	RetirePending  *bool  `json:"retired_pages_pending,omitempty"`
	RemappedFixed  *int64 `json:"remapped_rows_corrected,omitempty"` // Ampere and later
	RemappedBroken *int64 `json:"remapped_rows_uncorrected,omitempty"`
	RemapPending   *bool  `json:"remapping_pending,omitempty"`
	RemapFailed    *bool  `json:"remapping_failed,omitempty"`

	MIG         string         `json:"mig,omitempty"` // enabled or disabled
	MIGPending  string         `json:"mig_pending,omitempty"`
	Instances   []CardInstance `json:"mig_instances,omitempty"`
	Persistence *bool          `json:"persistence_mode,omitempty"`
	ComputeMode string         `json:"compute_mode,omitempty"` // default, exclusive_process, prohibited

	// What joins the card to the machine and to the cards behind it in the list.
	PCIe        PCIe       `json:"pcie,omitzero"`
	NVLinks     int        `json:"nvlinks,omitempty"` // that the card has
	NVLinksDown int        `json:"nvlinks_down,omitempty"`
	Links       []CardLink `json:"links,omitempty"`

	// Xids are the driver's critical errors since this process watches (WatchCards), oldest first.
	Xids []int `json:"xids,omitempty"`
}

// CardLoad is what a card does at one moment. A number below zero is not known.
type CardLoad struct {
	Index       int     // as nvidia-smi counts
	Utilisation float64 // per cent of the last moments in which a kernel ran
	Memory      float64 // bytes in use, by whichever process
	Power       float64 // watts
	Temperature float64 // degrees Celsius
}

// PCIe is what card and slot are made for; 0 = not told.
type PCIe struct {
	Generation int `json:"generation"`
	Lanes      int `json:"lanes"`
}

// gigabytes a second that a lane of each generation moves in one direction, by its standards, coding taken off.
var laneRates = []float64{0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563}

func (p PCIe) String() string {
	if p.Generation < 1 || p.Generation >= len(laneRates) || p.Lanes < 1 {
		return "PCIe"
	}
	return fmt.Sprintf("PCIe %d.0 x%d (%.0f GB/s)", p.Generation, p.Lanes, laneRates[p.Generation]*float64(p.Lanes))
}

// CardLink is what joins two cards.
type CardLink struct {
	To      int    `json:"to"`             // the other card's index
	NVLinks int    `json:"nvlinks"`        // between them, or to the switch that joins them
	Path    string `json:"path,omitempty"` // over PCIe, in words
	// ok where each reads and writes the other's memory, else why not; "" = not told
	Access string `json:"access,omitempty"`
}

// AccessOK is CardLink.Access of cards that read and write one another's memory.
const AccessOK = "ok"

// CardProcess is a process with memory on a card.
type CardProcess struct {
	PID   int    `json:"pid"`
	Name  string `json:"name,omitempty"` // "" where this process may not know
	Bytes int64  `json:"bytes"`          // 0 where NVML does not say
}

// CardInstance is a part of a card that MIG split.
type CardInstance struct {
	UUID  string `json:"uuid"`
	Total int64  `json:"total_bytes"`
	Used  int64  `json:"used_bytes"`
	Free  int64  `json:"free_bytes"`
}

// throttles are the bits of nvmlClocksEventReasons in words; being idle is no throttling.
var throttles = []struct {
	bit  int64
	text string
}{
	{0x02, "application clocks set"},
	{0x04, "power limit"},
	{0x08, "hardware slowdown (temperature or power)"},
	{0x10, "sync boost with another card"},
	{0x20, "temperature (driver)"},
	{0x40, "temperature (hardware)"},
	{0x80, "power brake of the power supply"},
	{0x100, "display clocks"},
}

func throttleWords(bits int64) []string {
	words := []string{}
	for _, t := range throttles {
		if bits&t.bit != 0 {
			words = append(words, t.text)
			bits &^= t.bit
		}
	}
	if bits &^= 1; bits != 0 {
		words = append(words, fmt.Sprintf("reason %#x", bits))
	}
	return words
}

// pciNumbers reads domain, bus and device of a PCI bus id, in either of its spellings: 0000:17:00.0, 00000000:17:00.0.
func pciNumbers(id string) (n [3]uint64, ok bool) {
	parts := strings.Split(strings.TrimSpace(id), ":")
	if len(parts) != 3 {
		return n, false
	}
	parts[2], _, _ = strings.Cut(parts[2], ".")
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 16, 32)
		if err != nil {
			return n, false
		}
		n[i] = v
	}
	return n, true
}

// sameUUID compares what CUDA and NVML call a device: "GPU-" or "MIG-" may lead.
func sameUUID(a, b string) bool {
	bare := func(s string) string {
		s = strings.ToLower(s)
		return strings.TrimPrefix(strings.TrimPrefix(s, "gpu-"), "mig-")
	}
	return a != "" && bare(a) == bare(b)
}

// CardOf finds the card of a CUDA device: by UUID, a MIG instance's too, else by PCI bus id. CUDA and NVML count
// devices differently, and CUDA_VISIBLE_DEVICES leaves some out.
func CardOf(cards []Card, p Properties) (Card, bool) {
	for _, c := range cards {
		if sameUUID(p.UUID, c.UUID) || slices.ContainsFunc(c.Instances,
			func(i CardInstance) bool { return sameUUID(p.UUID, i.UUID) }) {
			return c, true
		}
	}
	if want, ok := pciNumbers(p.PCI); ok {
		for _, c := range cards {
			if got, ok := pciNumbers(c.PCI); ok && got == want {
				return c, true
			}
		}
	}
	return Card{}, false
}
