"""The bare pipeline: dispatcher, workers and finalizer over ZeroMQ with nothing but the hot path, as a yardstick."""
