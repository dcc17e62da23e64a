"""The parts of fine-tuning: batches, parameters, conversion to torch and back, learning rates, descent."""
