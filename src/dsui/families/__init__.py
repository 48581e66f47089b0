"""What the components of a class's mixture are: Gaussians and what can take their place."""
