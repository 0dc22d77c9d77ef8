// expect: threadIdx.x starts again at 0 in every block
__global__ void add_one(const float* x, float* out) {
    int i = threadIdx.x;
    out[i] = x[i] + 1.0f;
}
