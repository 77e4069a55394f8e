"""The learned retriever that rank may recall by."""
