"""The parts of fine-tuning: batches, parameters, the way to torch and back, learning rates, descent."""
