"""Knowledge: ontologies and what follows from them, what events mean, and how both may change while events come."""
