"""Files on a local disk or in an object store, behind the same few methods."""
