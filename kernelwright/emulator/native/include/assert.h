// <assert.h> and <cassert> for kernels: a failed assert ends the launch with its line.
// No guard: the standard lets every inclusion look at NDEBUG again.
#undef assert
#ifdef NDEBUG
#define assert(expression) static_cast<void>(0)
#else
#define assert(expression) \
    ((expression) ? static_cast<void>(0) : kwemu_assert_failed(#expression, __LINE__))
#endif
