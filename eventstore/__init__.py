"""Commands become events, events become topic records, and any service may subscribe."""
