// token_loss.cu: losses that are a function of the log-probability of each token's label, times the token's weight, and their gradient.
// Layout: logp, each, nll, dlogp [M] fp32; labels [M] int32, -100 = not trained: zeros; weights [M] fp32, 0 = all are one; scale: one fp32
// on the device (1 / the divisor of the whole accumulated batch); scaling: one fp32, the loss scale that the gradient is multiplied by too,
// or 0 (none); dlogp 0 = not wanted.
// One token a thread. Accumulation fp32. Bytes: 24 a token. Goal: latency; a call moves a few thousand numbers.
#include "common.cuh"

enum { UNTRAINED = -100 };
enum Form { DFT, FOCAL };

template <Form FORM>
__device__ void tokens(float *each, float *nll, float *dlogp, const float *logp, const int *labels, const float *weights, const float *scale,
                       const float *scaling, float gamma, int M) {
    for (int m = blockIdx.x * blockDim.x + threadIdx.x; m < M; m += gridDim.x * blockDim.x) {
        float e = 0.f, n = 0.f, d = 0.f;
        if (labels[m] != UNTRAINED) {
            float l = logp[m], weight = weights ? weights[m] : 1.f;
            n = -l;
            if (FORM == DFT) {
                float p = expf(l);
                e = weight * n * p;
                d = -weight * p;
            } else {
                float rest = -expm1f(l), power = powf(rest, gamma);
                e = weight * n * power;
                d = rest > 0.f ? weight * power * (gamma * l * (1.f - rest) / rest - 1.f) : 0.f;
                if (!(rest >= 0.f)) d = NANF;
            }
        }
        each[m] = e;
        nll[m] = n;
        if (dlogp) dlogp[m] = d * *scale * (scaling ? *scaling : 1.f);
    }
}

// each[M], nll[M] and dlogp[M]; gamma is not read. Flat over M.
extern "C" __global__ void __launch_bounds__(256) token_loss_dft(float *each, float *nll, float *dlogp, const float *logp, const int *labels,
                                                                  const float *weights, const float *scale, const float *scaling, float gamma,
                                                                  int M) {
    tokens<DFT>(each, nll, dlogp, logp, labels, weights, scale, scaling, gamma, M);
}
// The same of the focal loss.
extern "C" __global__ void __launch_bounds__(256) token_loss_focal(float *each, float *nll, float *dlogp, const float *logp,
                                                                    const int *labels, const float *weights, const float *scale,
                                                                    const float *scaling, float gamma, int M) {
    tokens<FOCAL>(each, nll, dlogp, logp, labels, weights, scale, scaling, gamma, M);
}
