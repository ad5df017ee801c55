"""The worker side: claims tasks, runs their handlers, settles what came of them."""
