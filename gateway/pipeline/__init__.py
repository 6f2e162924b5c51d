"""The request's story: what happens to a request between the door and the last byte of its answer."""
