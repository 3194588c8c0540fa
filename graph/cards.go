package graph

import (
	"fmt"

	"github.com/tierlora/tierlora/kernel/gpu"
)

// Card is what NVIDIA's management library says of a card: its memory and who holds it, temperature, clocks, errors.
type Card = gpu.Card

// CardLink is what joins two cards.
type CardLink = gpu.CardLink

// CardAccess is CardLink.Access of cards that read and write one another's memory.
const CardAccess = gpu.AccessOK

// CardProcess is a process with memory on a card.
type CardProcess = gpu.CardProcess

// CardInstance is a part of a card that MIG split.
type CardInstance = gpu.CardInstance

// ReadCards asks for all cards of this computer, in nvidia-smi's order, whatever CUDA_VISIBLE_DEVICES says. It opens no
// device. The error is why nothing can be read: nothing that trains depends on it.
func ReadCards() ([]Card, error) { return gpu.ReadCards() }

// CardLoad is what a card does at one moment: utilisation, memory, power, temperature.
type CardLoad = gpu.CardLoad

// ReadLoads asks for what all cards of this computer do now. It is empty where nothing can be read.
func ReadLoads() []CardLoad { return gpu.ReadLoads() }

// CardOf finds the card of a GPU as Open counts them: CUDA's order, without those that CUDA_VISIBLE_DEVICES leaves out.
func CardOf(cards []Card, index int) (Card, error) {
	p, err := gpu.DeviceProperties(index)
	if err != nil {
		return Card{}, err
	}
	c, ok := gpu.CardOf(cards, p)
	if !ok {
		return Card{}, fmt.Errorf("GPU %d (%s, %s): NVML lists no card of its UUID or bus id", index, p.Name, p.PCI)
	}
	return c, nil
}

// Card finds the GPU's card among those read.
func (g GPUInfo) Card(cards []Card) (Card, bool) { return gpu.CardOf(cards, g.Properties) }

// Diagnose adds to an error of a device what its card says of itself now, temperature, errors of its memory, Xid, and
// what to do about it. Any other error stays what it is.
func Diagnose(err error) error { return gpu.Diagnose(err) }
