"""A model to carry away: exported without the data and without anybody's private state, loaded and served."""
