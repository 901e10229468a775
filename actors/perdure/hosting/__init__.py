"""What a host is put together from; `perdure.host` is the face."""
