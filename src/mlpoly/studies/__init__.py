"""The paper's experiments: data, training, dynamics, features, attack, and the report about them."""
