"""Text to vectors. Every vector carries the identity `provider/model@dims` of its maker."""
