"""Word documents, read from their package of XML parts."""
