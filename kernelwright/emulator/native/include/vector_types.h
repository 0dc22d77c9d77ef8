// <vector_types.h>: there without any #include; see kwemu/vector_types.h.
