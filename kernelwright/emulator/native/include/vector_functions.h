// <vector_functions.h>: there without any #include; see kwemu/vector_types.h.
