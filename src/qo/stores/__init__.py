"""The engines that hold the tasks. `protocol` is the contract, `open` finds the engine for a URL."""
