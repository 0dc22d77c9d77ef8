// <device_launch_parameters.h>: what a kernel needs of it is there without any #include.
