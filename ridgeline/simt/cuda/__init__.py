"""Thread programs as CUDA C++, as a person would write them."""
