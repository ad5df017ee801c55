"""Small, complete programs that use qo; tests/examples runs each of them."""
