"""How good extraction is: labelled documents, and how their fields compare with what is found."""
