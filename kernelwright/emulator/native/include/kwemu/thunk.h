// How a launch calls a kernel: each parameter is read from the bytes that Python packed.
#ifndef KWEMU_THUNK_H
#define KWEMU_THUNK_H

// The parameters are in constant memory on a GPU: reading them is no access.
#define KWEMU_UNTRACED __attribute__((noinline, no_sanitize("thread")))

namespace kwemu {

template <class Function>
struct Call;

template <class... Parameters>
struct Call<void(Parameters...)> {
    static_assert((!std::is_reference<Parameters>::value && ...),
                  "a kernel's parameters are passed by value");
    static constexpr unsigned count = sizeof...(Parameters);
    // One more than there are parameters: an array may not be empty.
    static constexpr unsigned sizes[count + 1] = {sizeof(Parameters)..., 0};

    template <void (*kernel)(Parameters...), size_t... I>
    KWEMU_UNTRACED static void run(void** arguments, std::index_sequence<I...>) {
        (void)arguments;
        kernel(*static_cast<std::remove_cv_t<Parameters>*>(arguments[I])...);
    }
};

template <class Result, class... Parameters>
struct Call<Result(Parameters...)> {
    static_assert(std::is_void<Result>::value, "a kernel returns void");
};

struct Entry {
    void (*thunk)(void**);
    const char* type;
    const unsigned* sizes;
    unsigned count;
};

}  // namespace kwemu

#define KWEMU_ENTRY(number, ...)                                        \
    KWEMU_UNTRACED static void kwemu_thunk_##number(void** arguments) { \
        using kwemu_type = kwemu::Call<decltype(__VA_ARGS__)>;          \
        kwemu_type::template run<&__VA_ARGS__>(                         \
            arguments, std::make_index_sequence<kwemu_type::count>{});  \
    }                                                                   \
    extern "C" __attribute__((visibility("default"), used))             \
    const kwemu::Entry kwemu_entry_##number = {                         \
        kwemu_thunk_##number, typeid(decltype(__VA_ARGS__)).name(),     \
        kwemu::Call<decltype(__VA_ARGS__)>::sizes,                      \
        kwemu::Call<decltype(__VA_ARGS__)>::count};

#endif  // KWEMU_THUNK_H
