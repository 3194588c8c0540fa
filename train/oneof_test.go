package train

import (
	"strings"
	"testing"
)

func TestOneOf(t *testing.T) {
	for _, c := range []struct {
		devices       string
		cpu           bool
		there         int
		chosen        bool
		local, locals int
		gpu           int
		err           string
	}{
		{devices: "1", there: 4, local: 3, locals: 4, gpu: 3},
		{devices: "1", there: 4, local: 3, gpu: 3},
		{devices: "all", there: 4, local: 1, locals: 2, gpu: 1},
		{devices: "4", there: 4, local: 1, locals: 4, gpu: 1},
		{devices: "[2, 0]", there: 4, local: 1, locals: 2, gpu: 0},
		{devices: "[2, 0]", there: 4, local: 0, locals: 2, gpu: 2},
		{devices: "1", there: 1, chosen: true, local: 3, locals: 4, gpu: 0},
		{devices: "1", there: 1, local: 1, locals: 2,
			err: "process 1 of this host has no GPU of its own: there are 1 here"},
		{devices: "1", there: 2, chosen: true, local: 2, locals: 4, err: "process 2 of this host has no GPU"},
		{devices: "2", there: 4, local: 0, locals: 4, err: "devices: 2 is fewer than the 4 processes"},
		{devices: "[0, 1]", there: 4, local: 0, locals: 3, err: "devices: [0, 1] is fewer than the 3 processes"},
		{devices: "all", cpu: true, local: 2, locals: 3},
	} {
		s, gpu, err := Spec{Devices: c.devices}.oneOf(c.cpu, c.there, c.chosen, c.local, c.locals)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%+v: %v", c, err)
			}
		} else if err != nil || gpu != c.gpu || s.Devices != "1" {
			t.Errorf("%+v: GPU %d, devices %s, %v", c, gpu, s.Devices, err)
		}
	}
}
