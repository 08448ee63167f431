"""The bundled sample corpus of `penstock demo`: a small careers site and a folder of résumés."""
