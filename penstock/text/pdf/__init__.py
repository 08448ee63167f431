"""PDF: pdfium for speed, pdfplumber for the pages whose tables or order call for it."""
