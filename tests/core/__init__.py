"""The op families against torch: values, element types, gradients of first and second order."""
