"""The reference kernels, one family a module or folder, named by the stem."""
