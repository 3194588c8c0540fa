// lossscale.cu: the loss scale of the next step from how this one went, as torch's GradScaler: half after a gradient that is not
// finite, double after `interval` steps in a row.
// Layout: scaling [3] fp32 = scale, steps since it changed, steps skipped; factor [1] fp32, the clip factor, NaN where gradient or
// loss is not finite; loss [1] fp32. One thread. Bytes: 20. Goal: latency.
#include "common.cuh"

// A loss that is not finite, or a gradient at a scale of one or less, changes nothing: the host ends the run. Grid 1, block 32.
extern "C" __global__ void lossscale_update(float *scaling, const float *factor, const float *loss, int interval) {
    if (threadIdx.x) return;
    float scale = scaling[0];
    bool overflowed = *factor != *factor;
    if (!isfinite(*loss) || overflowed && scale <= 1.f) return;
    if (overflowed) {
        scaling[0] = scale * 0.5f;
        scaling[1] = 0.f;
        scaling[2] += 1.f;
    } else if ((int)scaling[1] + 1 < interval) {
        scaling[1] += 1.f;
    } else {
        scaling[1] = 0.f;
        if (isfinite(2.f * scale)) scaling[0] = 2.f * scale;
    }
}
