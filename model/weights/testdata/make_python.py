"""Writes python.safetensors with the Python safetensors library: every dtype
that Go knows, a scalar, an empty tensor, names that need escapes.
Run: python make_python.py (torch and safetensors; made with safetensors 0.8.0)."""
import os
import torch
from safetensors.torch import save_file

t = {
    "z.f32": torch.tensor([[1.5, -2.0, 3.25], [0.0, -0.0, 1e-40]], dtype=torch.float32),
    "a.f32": torch.tensor([7.0], dtype=torch.float32),
    "f64": torch.tensor([1 / 3, -1e300], dtype=torch.float64),
    "f16": torch.tensor([0.1, 65504.0, -6e-8], dtype=torch.float16),
    "bf16": torch.tensor([0.1, 3e38, -1e-40, 2.0, 5.0], dtype=torch.bfloat16),
    "i64": torch.tensor([-(2**63), 2**63 - 1]),
    "i32": torch.tensor([-5, 6, 7], dtype=torch.int32),
    "i16": torch.tensor([-5, 300], dtype=torch.int16),
    "i8": torch.tensor([-128, 127], dtype=torch.int8),
    "u8": torch.tensor([0, 255, 3], dtype=torch.uint8),
    "u16": torch.tensor([65535], dtype=torch.uint16),
    "u32": torch.tensor([4294967295], dtype=torch.uint32),
    "u64": torch.tensor([3], dtype=torch.uint64),
    "bool": torch.tensor([True, False, True]),
    "e4m3": torch.tensor([1.0, -448.0], dtype=torch.float8_e4m3fn),
    "e5m2": torch.tensor([1.0, -57344.0], dtype=torch.float8_e5m2),
    "scalar": torch.tensor(42, dtype=torch.int32),
    "empty": torch.zeros(3, 0, 2),
    'odd "name" \\ / \t\n\x01 <é> & \u2028 \x7f': torch.tensor([1], dtype=torch.int8),
}
here = os.path.dirname(os.path.abspath(__file__))
save_file(t, os.path.join(here, "python.safetensors"), metadata={"format": 'pt "x" <é>'})
