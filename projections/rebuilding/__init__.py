"""A new generation while another one serves: built, compared, verified, switched to."""
