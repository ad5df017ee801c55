"""`sqlite:///file.db`: the default store. `store` is the way in; writing goes through one thread (`writer`)."""
